"""Protocols of the ecosystem: feature flags, snapshots for the edge, webhooks, language models."""
