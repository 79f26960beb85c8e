"""What became of a deployment: its record for public registries, and the results of a trial."""
