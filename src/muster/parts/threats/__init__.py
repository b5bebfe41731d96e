"""Attacks and faults."""
