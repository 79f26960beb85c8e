"""Wang and Zhu 2024."""
