"""Which policy to take, and with which scale."""
