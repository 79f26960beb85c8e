"""Estimates from rewards and losses."""
