"""The papers' experiments: run again, and their claims judged by what comes out."""
