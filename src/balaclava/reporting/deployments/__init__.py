"""Records of deployments for public registries."""
