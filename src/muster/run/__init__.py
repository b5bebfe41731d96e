"""Runs: one round, many rounds, and what they leave."""
