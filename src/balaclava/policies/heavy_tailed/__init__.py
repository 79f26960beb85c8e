"""Policies for rewards of which a moment is finite."""
