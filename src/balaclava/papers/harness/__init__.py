"""What the figures of all papers share."""
