"""Template filters: numbers, times and durations as text."""

import re
from datetime import UTC, datetime

from balaclava._core.number_format import UNKNOWN, rounded_down, rounded_up

_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


def percent(share: float | None) -> str:
    """Format a share in percent, without decimals from 10 % on.

    >>> [percent(share).replace("\\xa0", " ") for share in (0.4512, 0.0312, 0.05, None)]
    ['45 %', '3.1 %', '5 %', '–']
    """
    if share is None:
        return UNKNOWN
    digits = f"{100 * share:.0f}" if share >= 0.0995 else f"{100 * share:.1f}".removesuffix(".0")
    return f"{digits}\xa0%"


def most(value: float | None) -> str:
    """Format a spent epsilon or delta, rounded up.

    >>> most(0.12341), most(1.0), most(None)
    ('0.1235', '1', '–')
    """
    return UNKNOWN if value is None else rounded_up(value, ",.4g")


def least(value: float | None) -> str:
    """Format the rest of a budget, rounded down.

    >>> least(0.87659), least(1.0), least(None)
    ('0.8765', '1', '–')
    """
    return UNKNOWN if value is None else rounded_down(value, ",.4g")


def plain(value: object) -> str:
    """Format a parameter's value.

    >>> plain(1.0), plain([0, 1.5]), plain("one"), plain(None)
    ('1', '0, 1.5', 'one', 'none')
    """
    if isinstance(value, list | tuple):
        return ", ".join(map(plain, value))
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None else str(value)


def span(seconds: float | None) -> str:
    """Format a duration in its two largest units.

    >>> span(604800), span(5400), span(90), span(0.25), span(None)
    ('7 days', '1 hour 30 minutes', '1 minute 30 seconds', '0.25 seconds', '–')
    """
    if seconds is None:
        return UNKNOWN
    parts: list[str] = []
    rest = seconds
    for size, name in _UNITS:
        amount = rest // size if size > 1 or parts else rest
        if amount and len(parts) < 2:
            parts.append(f"{amount:.3g} {name}{'' if amount == 1 else 's'}")
            rest -= amount * size
        elif parts:
            break
    return " ".join(parts) or "0 seconds"


def about(seconds: float | None) -> str:
    """Format a measured duration in two digits.

    >>> about(340.2), about(2900), about(0.141), about(93e4), about(None)
    ('5.7 min', '48 min', '0.14 s', '11 d', '–')
    """
    if seconds is None:
        return UNKNOWN
    size, name = next((unit for unit in _UNITS if seconds >= unit[0]), _UNITS[-1])
    letters = "min" if name == "minute" else name[0]
    amount = seconds / size
    return f"{amount:,.0f} {letters}" if amount >= 10 else f"{amount:.2g} {letters}"


def paragraphs(text: str) -> list[str]:
    """Split an explanation into paragraphs, before known openings of sentences.

    >>> paragraphs("Hides one reward. Not covered: the time. It assumes: nothing.")
    ['Hides one reward.', 'Not covered: the time.', 'It assumes: nothing.']
    """
    return re.split(r"\s+(?=With ε|The operator|When and whether|Not covered:|It assumes:)", text)


def moment(when: str | float) -> datetime:
    """Parse a time, in ISO format or in seconds since 1970, as UTC."""
    if isinstance(when, int | float):
        return datetime.fromtimestamp(when, UTC)
    read = datetime.fromisoformat(when)
    return read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)


def date(when: str | float) -> str:
    """Format a time.

    >>> date("2026-11-15T21:06:30+00:00")
    '15 Nov 2026, 21:06 UTC'
    """
    point = moment(when)
    return f"{point.day} {point:%b %Y, %H:%M} UTC"


def clock(when: float, axis_seconds: float) -> str:
    """Format a tick of a time axis that spans `axis_seconds`.

    >>> clock(0, 60), clock(0, 7200), clock(0, 864000), clock(0, 5e7)
    ('00:00:00', '00:00', '1 Jan', 'Jan 1970')
    """
    point = moment(when)
    if axis_seconds < 600:
        return f"{point:%H:%M:%S}"
    if axis_seconds < 2 * 86_400:
        return f"{point:%H:%M}"
    return f"{point.day} {point:%b}" if axis_seconds < 300 * 86_400 else f"{point:%b %Y}"
