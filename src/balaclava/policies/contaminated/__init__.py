"""Policies for heavy-tailed rewards with outliers among them."""
