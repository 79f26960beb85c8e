"""Foundations: kernels and their compiler, declared parameters, registries, tables, files."""
