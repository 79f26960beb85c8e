"""Policies: one algorithm, one file."""
