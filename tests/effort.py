"""How long a test looks: shortly in `make test`, long in `make test-all`."""

from __future__ import annotations

from typing import Any

import pytest


def looks(short: int, long: int) -> list[Any]:
    """Values of a parameter: a few pairs of games for every run, many for the slow ones."""
    return [short, pytest.param(long, marks=pytest.mark.slow)]
