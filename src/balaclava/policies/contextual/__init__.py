"""Policies that decide by features: linear bandits."""
