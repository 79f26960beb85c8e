"""Shared by the figures of all papers: simulation, pictures, text and the gallery."""
