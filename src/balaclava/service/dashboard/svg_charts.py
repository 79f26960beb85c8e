"""The charts of an experiment as SVG: shares of decisions and released means over time.

The templates draw what these functions return; JavaScript only displays values at the pointer.
Positions are percentages, or units of a drawing that stretches: text keeps its size at any width.
The page has no inline styles, because its content security policy forbids them.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from balaclava._core.number_format import tick_label, within_interval
from balaclava.reporting.chart_scales import Scale
from balaclava.service.dashboard.formatting import clock, date, percent
from balaclava.service.engine.served_experiment import finite

HEIGHT = 220  # pixels of a chart over time; dashboard.css has the same
DRAWING_WIDTH = 1000  # units of the drawing, which stretches to its column
CHART_COLOURS = 7  # colours in dashboard.css that stay distinguishable
LABEL_GAP, LABEL_EDGE = 17.0, 7.0  # pixels: between two labels, and from a label to the edge
AXIS_MARGIN = 0.06  # share of an axis left free at both ends
TIME_STEPS = [1, 2, 5, 10, 15, 30, *(60 * m for m in (1, 2, 5, 10, 15, 30))]  # seconds
TIME_STEPS += [3_600 * h for h in (1, 2, 3, 6, 12)]
TIME_STEPS += [86_400 * d for d in (1, 2, 4, 7, 14, 30, 60, 91, 182, 365)]
MOST_TIME_STEPS = 4  # more labels would touch at a width of 390 pixels
MOST_READINGS = 60  # moments at which the pointer reads values: one every 10 pixels

Row = Sequence[float | None]


def colours(arms: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    """Map arms to colours: all arms, or the most frequent ones if there are too few colours.

    >>> colours([{"decisions": 3}, {"decisions": 5}])
    {0: 0, 1: 1}
    >>> colours([{"decisions": d} for d in (9, 1, 8, 2, 7, 3, 6, 4)])
    {0: 0, 2: 1, 4: 2, 5: 3, 6: 4, 7: 5}
    """
    return {arm: i for i, arm in enumerate(most_chosen(arms, CHART_COLOURS, CHART_COLOURS - 1))}


def most_chosen(arms: Sequence[Mapping[str, Any]], room: int, kept: int) -> list[int]:
    """All arms if there is room, otherwise the `kept` most frequent, in their order.

    >>> most_chosen([{"decisions": 3}, {"decisions": 1}, {"decisions": 5}], room=2, kept=2)
    [0, 2]
    """
    order = sorted(range(len(arms)), key=lambda arm: -arms[arm]["decisions"])
    return sorted(order if len(order) <= room else order[:kept])


def curves(history: Mapping[str, Any], colour: Mapping[int, int]) -> dict[str, Any]:
    """Turn a history into one list per curve; arms without a colour become one, `others`.

    Example:
        >>> history = {"at": [0, 60], "arms": ["a", "b"], "shares": [[0.5, 0.5], [0.3, 0.7]],
        ...            "means": [[None, None], [0.2, 0.4]], "low": [[None, None], [0.1, 0.3]],
        ...            "high": [[None, None], [0.3, 0.5]]}
        >>> curves(history, {0: 0, 1: 1})["arms"]
        [{'label': 'a', 'colour': 0}, {'label': 'b', 'colour': 1}]
        >>> curves(history, {0: 0, 1: 1})["shares"]
        [[0.5, 0.3], [0.5, 0.7]]
    """
    labels, shares = list(history["arms"]), history["shares"]
    kept = list(colour)
    drawn: dict[str, Any] = {
        "at": list(history["at"]),
        "arms": [{"label": labels[arm], "colour": colour[arm]} for arm in kept],
        "shares": _columns(shares, kept),
        "others": None,
    }
    if len(kept) < len(labels):
        rest = set(range(len(labels))) - set(kept)
        drawn["others"] = [sum(row[arm] for arm in rest) for row in shares]
    for name in ("means", "low", "high"):
        drawn[name] = _columns(history[name], kept)
    for name in ("low", "high"):  # without a mean, the interval is the whole range
        drawn[name] = [
            [end if mean is not None else None for end, mean in zip(ends, means, strict=True)]
            for ends, means in zip(drawn[name], drawn["means"], strict=True)
        ]
    drawn["range"] = _means_range(drawn)
    return drawn


def _columns(rows: Sequence[Row], kept: Sequence[int]) -> list[list[float | None]]:
    return [[finite(row[arm]) for row in rows] for arm in kept]


def _means_range(drawn: Mapping[str, Any]) -> tuple[float, float] | None:
    """The range of all means, and of all bands after the first third, where they are wide."""
    late = len(drawn["at"]) // 3
    values = [value for curve in drawn["means"] for value in curve]
    values += [v for name in ("low", "high") for curve in drawn[name] for v in curve[late:]]
    return extent(values)


def extent(values: Iterable[float | None]) -> tuple[float, float] | None:
    """The ends of an axis for these numbers, with a margin; None without numbers.

    >>> extent([0.0, None, 1.0]), extent([])
    ((-0.06, 1.06), None)
    """
    known = [value for value in map(finite, values) if value is not None]
    if not known:
        return None
    low, high = min(known), max(known)
    margin = AXIS_MARGIN * (high - low) or 0.5
    return low - margin, high + margin


def interval_axis(arms: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The axis that all arms' intervals share; None before the first release."""
    known = [arm for arm in arms if arm["mean"] is not None]
    ends = extent(arm[name] for arm in known for name in ("mean", "low", "high"))
    if ends is None:
        return None
    scale = Scale("linear", *ends)
    return {"at": lambda value: f"{100 * float(scale(value)):.2f}%", "ticks": _named(scale)}


def _named(scale: Scale) -> list[tuple[float, str]]:
    """Ticks with their labels, as fractions of the axis."""
    return [(float(scale(tick)), tick_label(round(tick, 12) + 0.0)) for tick in scale.ticks()]


def time_ticks(at: Sequence[float]) -> list[tuple[float, str]]:
    """Round times with their labels, as fractions of the axis.

    >>> time_ticks([0, 3600])
    [(0.0, '00:00'), (0.25, '00:15'), (0.5, '00:30'), (0.75, '00:45'), (1.0, '01:00')]
    """
    first, last = at[0], at[-1]
    if last <= first:
        return [(0.5, clock(first, 0))]
    step = next((s for s in TIME_STEPS if (last - first) / s <= MOST_TIME_STEPS), 365 * 86_400)
    numbers = range(math.ceil(first / step), math.floor(last / step) + 1)
    return [((n * step - first) / (last - first), clock(n * step, last - first)) for n in numbers]


def shares_chart(drawn: Mapping[str, Any]) -> dict[str, Any]:
    """Shares of decisions as stacked areas, the first arm on top."""
    names = [(str(arm["colour"]), arm["label"]) for arm in drawn["arms"]]
    columns = list(drawn["shares"])
    if drawn["others"]:
        names.append(("others", "others"))
        columns.append(drawn["others"])
    scale = Scale("linear", 0.0, 1.0)
    x = _places(drawn["at"])
    upper = [1.0] * len(x)
    areas, labels = [], []
    for (colour, label), column in zip(names, columns, strict=True):
        lower = [top - share for top, share in zip(upper, column, strict=True)]
        areas.append((colour, _closed(x, lower, upper, scale)))
        labels.append((_height((lower[-1] + upper[-1]) / 2, scale), colour, label))
        upper = lower
    ticks = [(tick, f"{100 * tick:.0f} %") for tick in (0.0, 0.25, 0.5, 0.75, 1.0)]
    readings = _readings(
        drawn["at"],
        lambda i: [
            (label, percent(column[i])) for (_, label), column in zip(names, columns, strict=True)
        ],
    )
    return _frame(drawn, ticks, labels) | {"areas": areas, "lines": [], "readings": readings}


def means_chart(drawn: Mapping[str, Any]) -> dict[str, Any] | None:
    """Released means as lines with bands; None before the first release."""
    if drawn["range"] is None or len(drawn["at"]) < 2:
        return None
    scale = Scale("linear", *drawn["range"])
    x = _places(drawn["at"])
    areas, lines, labels = [], [], []
    for arm, means, low, high in _by_arm(drawn):
        colour = str(arm["colour"])
        for run in _runs(low, high):
            areas.append((colour, _closed(x[run], low[run], high[run], scale)))
        for run in _runs(means):
            lines.append((colour, "M" + _path(x[run], means[run], scale)))
        last = next((mean for mean in reversed(means) if mean is not None), None)
        if last is not None:
            labels.append((_height(last, scale), colour, arm["label"]))
    readings = _readings(
        drawn["at"],
        lambda i: [
            (arm["label"], _mean_text(means[i], low[i], high[i]))
            for arm, means, low, high in _by_arm(drawn)
        ],
    )
    frame = _frame(drawn, _named(scale), labels)
    return frame | {"areas": areas, "lines": lines, "readings": readings}


def _by_arm(drawn: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    return list(zip(drawn["arms"], drawn["means"], drawn["low"], drawn["high"], strict=True))


def _mean_text(mean: float | None, low: float | None, high: float | None) -> str:
    if mean is None or low is None or high is None:
        return within_interval(mean, low, high)
    ends = [within_interval(value, low, high) for value in (mean, low, high)]
    return "{} ({} to {})".format(*ends)


def _readings(
    at: Sequence[float], values: Callable[[int], Sequence[tuple[str, str]]]
) -> list[dict[str, Any]]:
    """Vertical strips of a chart, each with the values at its time, a line per arm."""
    places = [place / DRAWING_WIDTH for place in _places(at)]
    step = -(-len(at) // MOST_READINGS)
    chosen = sorted({*range(0, len(at), step), len(at) - 1})
    ends = [0.0, *((places[i] + places[j]) / 2 for i, j in itertools.pairwise(chosen)), 1.0]
    return [
        {
            "x": round(100 * left, 2),
            "width": round(100 * (right - left), 2),
            "text": "\n".join([date(at[i]), *("\t".join(line) for line in values(i))]),
        }
        for i, (left, right) in zip(chosen, itertools.pairwise(ends), strict=True)
    ]


def _frame(
    drawn: Mapping[str, Any],
    ticks: Sequence[tuple[float, str]],
    labels: Sequence[tuple[float, str, str]],
) -> dict[str, Any]:
    return {
        "height": HEIGHT,
        "width": DRAWING_WIDTH,
        "y": [(round(HEIGHT * (1 - place), 1), text) for place, text in ticks],
        "x": [(round(100 * place, 2), text) for place, text in time_ticks(drawn["at"])],
        "labels": spread(labels),
    }


def spread(labels: Sequence[tuple[float, str, str]]) -> list[tuple[float, str, str]]:
    """Move labels apart where they would overlap.

    >>> [height for height, *_ in spread([(100.0, "0", "a"), (102.0, "1", "b")])]
    [100.0, 117.0]
    """
    placed: list[tuple[float, str, str]] = []
    lowest = LABEL_EDGE - LABEL_GAP
    for height, *name in sorted(labels):
        lowest = max(height, lowest + LABEL_GAP)
        placed.append((lowest, name[0], name[1]))
    ceiling = HEIGHT - LABEL_EDGE
    for i in reversed(range(len(placed))):  # back into the drawing
        height, colour, label = placed[i]
        placed[i] = (min(height, ceiling), colour, label)
        ceiling = placed[i][0] - LABEL_GAP
    return placed


def _runs(*columns: Row) -> list[slice]:
    """The longest slices without a gap."""
    runs: list[slice] = []
    for i, values in enumerate(zip(*columns, strict=True)):
        if any(value is None for value in values):
            continue
        joins = bool(runs) and runs[-1].stop == i
        start = runs.pop().start if joins else i
        runs.append(slice(start, i + 1))
    return runs


def _places(at: Sequence[float]) -> list[float]:
    length = (at[-1] - at[0]) or 1
    return [DRAWING_WIDTH * (moment - at[0]) / length for moment in at]


def _height(value: float, scale: Scale) -> float:
    return HEIGHT * (1 - float(scale(value)))


def _path(x: Sequence[float], values: Row, scale: Scale) -> str:
    heights = HEIGHT * (1 - scale(values))  # type: ignore[arg-type]
    return "L".join(f"{px:.1f} {py:.1f}" for px, py in zip(x, heights, strict=True))


def _closed(x: Sequence[float], low: Row, high: Row, scale: Scale) -> str:
    return f"M{_path(x, high, scale)}L{_path(x[::-1], low[::-1], scale)}Z"
