"""Environments: where rewards come from; one family, one file."""
