"""Agents: run a policy online, with late and lost rewards, estimates, save and restore."""
