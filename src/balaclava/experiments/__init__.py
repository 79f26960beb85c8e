"""Experiment files, grids and sweeps."""
