"""Privacy: guarantees, accounting, exact noise, and the mechanisms that use it."""
