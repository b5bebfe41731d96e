"""Partitions of rows over clients, train/test split, rows for tuning."""
