"""Audit by enumeration: the exact law of all decisions in small worlds."""
