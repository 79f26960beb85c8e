"""Simulation: play policies against environments, fast and reproducibly."""
