"""Frames: states and kernels that policies share, from tallies to batches and epochs."""
