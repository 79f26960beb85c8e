"""What a log of decisions says, and worlds drawn from it."""
