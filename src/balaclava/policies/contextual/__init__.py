"""Linear contextual bandits."""
