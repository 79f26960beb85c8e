"""Bounds on regret, and the radii behind them."""
