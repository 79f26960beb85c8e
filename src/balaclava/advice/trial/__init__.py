"""Policies played on worlds drawn from a log, ranked by their regret."""
