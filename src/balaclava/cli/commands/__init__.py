"""One module per command; each prints what a function of another package returns."""
