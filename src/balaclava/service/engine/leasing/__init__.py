"""Leases: several processes decide for one experiment, from slots of the same batches."""
