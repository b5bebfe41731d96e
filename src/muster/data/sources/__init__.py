"""Sources of data sets: catalogue, download, checksums, cache."""
