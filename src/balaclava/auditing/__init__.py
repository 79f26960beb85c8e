"""Auditing: try to refute a claim of privacy, four ways."""
