"""Runs as values and files: ledger, measures, model, prediction, export."""
