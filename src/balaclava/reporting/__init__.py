"""Results as one page for the browser that needs nothing else."""
