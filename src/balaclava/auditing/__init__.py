"""Auditing: try to refute a claim of privacy, five ways."""
