"""Policies without privacy: the baselines."""
