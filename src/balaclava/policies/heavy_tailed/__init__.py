"""Policies for rewards with a finite moment."""
