"""Federations from files of one's own."""
