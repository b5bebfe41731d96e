"""Robust aggregation and the trust audit."""
