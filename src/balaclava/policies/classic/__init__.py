"""Policies without privacy: the yardsticks."""
