"""Estimation: tallies of rewards, indices and confidence radii, as kernels."""
