"""Replay: check the privacy proof on recorded runs of neighbouring reward streams."""
