"""The papers' experiments: run again, and their claims judged by the results."""
