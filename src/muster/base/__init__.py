"""Errors, checks, randomness, the registry and files: what every other room stands on."""
