"""Auditing: try to refute a claim of privacy, three ways."""
