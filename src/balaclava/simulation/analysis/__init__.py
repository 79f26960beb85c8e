"""Statistics, tables and plots of results."""
