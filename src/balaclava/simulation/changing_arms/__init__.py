"""Simulations whose arms come and leave, or that some participants cannot get."""
