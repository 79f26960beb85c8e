"""Figures of published papers, reproduced: a module or a folder for each paper."""
