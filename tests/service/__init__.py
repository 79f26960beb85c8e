"""Tests of the decision service and what lies around it."""
