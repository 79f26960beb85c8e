"""Numbers as text: one rule for each kind of number, in tables, pages, plots and messages."""

import math
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext

UNKNOWN = "–"  # stands for a number that is not known; text tables write it in ASCII
# Digits after the point where an interval is narrow: below a millionth of the unit of the rewards.
_MOST_DECIMALS = 6


def rounded_down(value: float, spec: str = ".6g") -> str:
    """Format a lower bound, or the rest of a budget: rounded down.

    >>> rounded_down(0.62499, ".3f"), rounded_down(0.1, ".3f"), rounded_down(1 - 0.9, ".4g")
    ('0.624', '0.100', '0.1')
    """
    return _rounded(value, spec, ROUND_FLOOR)


def rounded_up(value: float, spec: str = ".6g") -> str:
    """Format an upper bound, such as an epsilon or a delta: rounded up.

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


def count(value: float | None) -> str:
    """Format a whole number with its thousands apart.

    >>> count(12400), count(32_500.0), count(None)
    ('12,400', '32,500', '–')
    """
    return UNKNOWN if value is None or math.isnan(value) else f"{value:,.0f}"


def counted(number: int, noun: str) -> str:
    """Format a number with its noun, which gets an s in the plural.

    >>> counted(1, "window"), counted(1200, "release")
    ('1 window', '1,200 releases')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def percent(share: float | None, spec: str = ".1f") -> str:
    """Format a share of 1 as a percentage.

    >>> percent(0.8251), percent(0.999, "g"), percent(None)
    ('82.5 %', '99.9 %', '–')
    """
    return UNKNOWN if share is None or math.isnan(share) else f"{100 * share:{spec}} %"


def significant(
    value: float | None, digits: int = 3, write: Callable[[float, str], str] = format
) -> str:
    """Format a number with three significant digits, thousands apart.

    `write` rounds: `rounded_up` for an upper bound.

    >>> [significant(value) for value in (12345.6, 61.02, 3.14159, 0.01234, 0, float("nan"))]
    ['12,346', '61.0', '3.14', '0.0123', '0', '–']
    """
    if value is None or math.isnan(value):
        return UNKNOWN
    size = abs(value)
    if size >= 1e12 or 0 < size < 1:
        return write(value, f".{digits}g")
    decimals = digits - 1 - math.floor(math.log10(size)) if size else 0
    return write(value, f",.{max(decimals, 0)}f")


def decimal(value: float | None) -> str:
    """Format a number without an exponent: one to three digits after the point.

    >>> [decimal(value) for value in (12345.6, 61.02, 3.14159, 0.01234, 0, float("nan"))]
    ['12345.6', '61.0', '3.14', '0.012', '0.00', '–']
    """
    if value is None or math.isnan(value):
        return UNKNOWN
    size = abs(value)
    return f"{value:.{1 if size >= 10 else 2 if size >= 1 or size == 0 else 3}f}"


def mean_reward(value: float | None) -> str:
    """Format the mean reward of an arm: four digits after the point, fewer above 10.

    >>> mean_reward(0.5), mean_reward(123.4567), mean_reward(None)
    ('0.5000', '123.457', '–')
    """
    if value is None:
        return UNKNOWN
    return f"{value:.4f}" if abs(value) < 10 else f"{value:.6g}"


def within_interval(
    value: float | None, low: float | None = None, high: float | None = None
) -> str:
    """Format a number with as many digits as its interval supports: two digits of the width.

    >>> within_interval(0.61234, 0.58, 0.64), within_interval(12.3456, 3.0, 21.0)
    ('0.612', '12')
    >>> within_interval(0.5), within_interval(None)
    ('0.5', '–')
    """
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if low is None or high is None or not 0 < high - low < math.inf:
        return f"{value:,.4g}"
    digits = 1 - math.floor(math.log10(high - low))
    return f"{value:,.{min(max(digits, 0), _MOST_DECIMALS)}f}"


def tick_label(value: float) -> str:
    """Format a number for an axis, with k, M or G for thousands, millions and billions.

    >>> [tick_label(value) for value in (0, 0.05, 250, 20_000, 1_500_000, 3e9, 1e-7)]
    ['0', '0.05', '250', '20k', '1.5M', '3G', '1e-07']
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size <= abs(value) < 1e12:
            return f"{value / size:.4g}{letter}"
    return f"{value:.4g}"
