"""A client of the decision service."""
