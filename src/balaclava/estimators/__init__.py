"""Estimators: robust means, divergences, and probabilities and weights of arms and experts."""
