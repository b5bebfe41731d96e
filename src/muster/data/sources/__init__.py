"""Where data sets are obtained, verified and kept."""
