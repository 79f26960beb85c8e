"""Theory: bounds on regret, confidence radii, and the conditions under which they hold."""
