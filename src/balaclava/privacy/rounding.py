"""Bounds in print: a lower bound never above what it is, an upper bound never below.

Digits beyond the twelfth, which floating-point sums leave, do not count: 0.1 + 0.2 is 0.3.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext


def rounded_down(value: float, spec: str) -> str:
    """A lower bound, or what is left of a budget, with the digits of a format: rounded down.

    >>> rounded_down(0.62499, ".3f"), rounded_down(0.1, ".3f"), rounded_down(1 - 0.9, ".4g")
    ('0.624', '0.100', '0.1')
    """
    return _rounded(value, spec, ROUND_FLOOR)


def rounded_up(value: float, spec: str = ".6g") -> str:
    """An upper bound, such as an epsilon or a delta, with the digits of a format: rounded up.

    >>> rounded_up(1 / 3), rounded_up(0.1 + 0.2), rounded_up(1e-7), rounded_up(1234.2, ",.0f")
    ('0.333334', '0.3', '1e-07', '1,235')
    """
    return _rounded(value, spec, ROUND_CEILING)


def _rounded(value: float, spec: str, rounding: str) -> str:
    if not math.isfinite(value):
        return format(value, spec)
    with localcontext(rounding=rounding):
        digits = format(Decimal(f"{value:.12g}"), spec.replace(",", ""))
    return format(float(digits), spec)
