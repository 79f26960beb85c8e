"""Policies that follow the advice of experts."""
