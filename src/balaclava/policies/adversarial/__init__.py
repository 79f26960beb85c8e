"""Policies for losses in [0, 1] that an adversary chose."""
