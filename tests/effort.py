"""How long a test looks: shortly in `make test`, long in `make test-all`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def looks(short: int, long: int) -> list[Any]:
    """Values of a parameter: a few pairs of games for every run, many for the slow ones."""
    return [short, pytest.param(long, marks=pytest.mark.slow)]


def but_slow(values: Iterable[Any], *slow: Any) -> list[Any]:
    """Values of a parameter, of which some are for the slow tests."""
    return [pytest.param(value, marks=[pytest.mark.slow] * (value in slow)) for value in values]
