"""What holds for all tests."""

from __future__ import annotations

from hypothesis import settings

# The same examples in every run, and no limit on time: a test passes or fails by the code alone.
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.load_profile("fixed")
