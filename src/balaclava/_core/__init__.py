"""What everything stands on: kernels, declared parameters, the registry."""
