"""From a question or a log to a policy."""
