"""Privacy: what is promised, the mechanisms that keep the promise, and their randomness."""
