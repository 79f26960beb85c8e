"""Asi, Raman and Talwar 2025."""
