"""Foundations of the package: errors, checks, randomness, the registry and files."""
