"""Private policies for rewards in a known range."""
