"""How a policy keeps its books."""
