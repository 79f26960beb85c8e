"""Policies for heavy-tailed rewards of which a share are outliers."""
