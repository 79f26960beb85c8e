"""Grids in an experiment file: one section that stands for many.

A value may be a range. `{ grid = [0.1, 1, 10] }` lists values. `{ log = [0.01, 1, 5] }` and
`{ linear = [0, 1, 5] }` give the first value, the last value and the count. "log" spaces them by
equal ratios, "linear" by equal differences. A section with ranges stands for every combination.
"""

import difflib
import itertools
import json
import math
from collections.abc import Iterator
from typing import Any

from balaclava._core.declared import brief
from balaclava.errors import ExperimentFileError

RANGES = ("grid", "log", "linear")
_LONGEST_LABEL = 40  # characters of a value in a label; a longer one is shown by its number
_RANGE_DIGITS = 12  # significant digits in a range: 0.3, not 0.30000000000000004


def expand(label: str, table: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """All sections that a section stands for; labels contain the chosen values."""
    grids = dict(_grids(table))
    if not grids:
        return {label: table}
    sections = {}
    for point in itertools.product(*(enumerate(values) for values in grids.values())):
        words = [
            f"{'.'.join(path)}={_text(value, i)}"
            for path, (i, value) in zip(grids, point, strict=True)
        ]
        values = {path: value for path, (_, value) in zip(grids, point, strict=True)}
        sections[f"{label}({', '.join(words)})"] = _filled(table, values)
    if len(sections) < math.prod(map(len, grids.values())):
        raise ExperimentFileError("a grid contains a value twice; give each value once")
    return sections


def range_values(name: str, value: Any) -> list[Any] | None:
    """The values of a range; None if it is not a range."""
    if not isinstance(value, dict) or len(value) != 1:
        return None
    ((kind, entries),) = value.items()
    if kind not in RANGES:
        close = difflib.get_close_matches(kind, RANGES, n=1, cutoff=0.7)
        if close and isinstance(entries, list):
            raise ExperimentFileError(
                f"{name} = {{ {kind} = ... }} is not a range; did you mean {close[0]!r}?"
            )
        return None
    if kind == "grid":
        if not isinstance(entries, list) or not entries:
            raise ExperimentFileError(
                f"{name} = {{ grid = {brief(entries)} }} is not a grid; give a list of values"
            )
        return entries
    match entries:
        case [int() | float() as low, int() | float() as high, int(count)] if (
            count >= 2 and low < high and (kind == "linear" or low > 0)
        ):
            return [_step(kind, low, high, i / (count - 1)) for i in range(count)]
    lowest = " (above 0)" if kind == "log" else ""
    raise ExperimentFileError(
        f"{name} = {{ {kind} = {brief(entries)} }} is not a range; give the first number"
        f"{lowest}, a larger last one, and how many, at least 2"
    )


def _step(kind: str, low: float, high: float, share: float) -> float:
    value = low + share * (high - low) if kind == "linear" else low * (high / low) ** share
    value = float(f"{value:.{_RANGE_DIGITS}g}")
    return int(value) if value.is_integer() else value


def _grids(table: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], list[Any]]]:
    """Each range in a section, also in nested tables, with its path."""
    for key, value in table.items():
        values = range_values(key, value)
        if values is not None:
            yield (key,), values
        elif isinstance(value, dict):
            for path, inner in _grids(value):
                yield (key, *path), inner


def _filled(
    table: dict[str, Any], values: dict[tuple[str, ...], Any], path: tuple[str, ...] = ()
) -> dict[str, Any]:
    return {
        key: values[*path, key]
        if (*path, key) in values
        else _filled(value, values, (*path, key))
        if isinstance(value, dict)
        else value
        for key, value in table.items()
    }


def _text(value: Any, place: int) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= _LONGEST_LABEL else f"#{place + 1}"
