"""Two servers add up secret shares: the aggregators, and what the decider asks them."""
