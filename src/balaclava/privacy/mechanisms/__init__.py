"""Mechanisms: each module states a law, its privacy claim and the proof."""
