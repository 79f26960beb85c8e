"""Charts as HTML: SVG that stretches to any width, with text beside it that does not.

Every chart is drawn once for each kind of scale; the style sheet shows the one that was chosen.
So it works without JavaScript, on paper, and at any width.
"""

from __future__ import annotations

import html
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from balaclava._core.number_format import significant, tick_label
from balaclava.reporting.chart_scales import (
    SCALE_KINDS,
    Scale,
    ScaleKind,
    fit_scale,
)

WIDTH, HEIGHT = 10_000, 4_000  # of a drawing, in its own units
_COLOURS, _DASHES = 7, 4  # without a common divisor: 28 looks that differ, then dots are added
_ROOM = 1.05  # above the highest point of a linear scale
_FAR = 10  # times the highest point: a bound above it is told, not drawn


@dataclass(frozen=True)
class LineLook:
    """How a policy is drawn, everywhere on a page."""

    index: int

    @property
    def css(self) -> str:
        """The classes that the style sheet knows."""
        i = self.index
        dots = min(i // (_COLOURS * _DASHES), 2)
        return f"c{i % _COLOURS} d{i % _DASHES} m{dots}"

    @property
    def dots(self) -> bool:
        """Whether dots on the line tell it apart from another."""
        return self.index >= _COLOURS * _DASHES


@dataclass(frozen=True)
class ChartCurve:
    """A mean with a band or with intervals around it."""

    label: str
    scope: str
    look: LineLook
    x: np.ndarray
    mean: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None


@dataclass(frozen=True)
class ChartLevel:
    """A number without a course: a proved bound, a baseline."""

    label: str
    scope: str
    look: LineLook
    value: float


def escape(text: object) -> str:
    """Text that no browser takes for anything else."""
    return html.escape(str(text), quote=True)


def curves_chart(
    curves: Sequence[ChartCurve],
    bounds: Sequence[ChartLevel],
    *,
    title: str,
    key: str,
) -> str:
    """Regret over the rounds: four drawings, one for each pair of scales."""
    views = [
        _view(curves, bounds, x_kind, y_kind, title=title, x_name="round", key=key)
        for x_kind, y_kind in itertools.product(SCALE_KINDS, SCALE_KINDS)
    ]
    return "".join(views)


def points_chart(curves: Sequence[ChartCurve], levels: Sequence[ChartLevel], *, title: str) -> str:
    """Regret against epsilon: dots with intervals, and baselines as levels."""
    views = [
        _view(curves, levels, "log", y_kind, title=title, x_name="epsilon", key="", dots=True)
        for y_kind in SCALE_KINDS
    ]
    return "".join(views)


def _view(
    curves: Sequence[ChartCurve],
    levels: Sequence[ChartLevel],
    x_kind: ScaleKind,
    y_kind: ScaleKind,
    *,
    title: str,
    x_name: str,
    key: str,
    dots: bool = False,
) -> str:
    x_scale = _x_scale(curves, x_kind, dots)
    y_scale = _y_scale(curves, levels, y_kind, dots)
    rounds = "" if dots else f" rounds-{x_kind}"
    shapes = [_grid(x_scale, y_scale)]
    if not dots:
        shapes += [_band(curve, x_scale, y_scale) for curve in curves]
    shapes += [_level(level, y_scale, dots) for level in levels if level.value <= y_scale.high]
    shapes += [_line(curve, x_scale, y_scale, dots) for curve in curves]
    data = f' data-panel="{key}"' if key else ""
    limits = f' data-y="{y_kind},{y_scale.low:.6g},{y_scale.high:.6g}"'
    limits += f' data-x="{x_kind},{x_scale.low:.6g},{x_scale.high:.6g}"'
    return (
        f'<div class="plot regret-{y_kind}{rounds}"{data}{limits}>'
        f'<div class="ylabel">regret{" (log)" if y_kind == "log" else ""}</div>'
        f'<div class="yticks" aria-hidden="true">{_ticks(y_scale, "bottom")}</div>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(title)}">{"".join(shapes)}</svg>'
        f'<div class="xticks" aria-hidden="true">{_ticks(x_scale, "left")}</div>'
        f'<div class="xlabel">{x_name}{" (log)" if x_kind == "log" else ""}</div></div>'
    )


def _x_scale(curves: Sequence[ChartCurve], kind: ScaleKind, dots: bool) -> Scale:
    scale = fit_scale(kind, np.concatenate([curve.x for curve in curves]))
    if dots:  # not on the very edge
        return Scale(kind, scale.low / 1.25, scale.high * 1.25)
    return scale


def _y_scale(
    curves: Sequence[ChartCurve], levels: Sequence[ChartLevel], kind: ScaleKind, dots: bool
) -> Scale:
    tops = [curve.mean if curve.high is None else curve.high for curve in curves]
    # A band that reaches down to 0 would stretch a logarithmic scale over decades of nothing.
    values = np.concatenate([*tops, *(curve.mean for curve in curves)])
    highest = float(values.max())
    far = _FAR if kind == "log" else 1.0
    known = [level.value for level in levels if dots or level.value <= far * highest]
    scale = fit_scale(kind, [*values, *known])
    return Scale(kind, scale.low / (1.25 if kind == "log" else 1), scale.high * _ROOM)


def _ticks(scale: Scale, side: str) -> str:
    return "".join(
        f'<span style="{side}:{100 * float(scale(tick)):.2f}%">{tick_label(tick)}</span>'
        for tick in scale.ticks()
    )


def _grid(x_scale: Scale, y_scale: Scale) -> str:
    across = "".join(f"M0 {_y(y_scale, tick)}H{WIDTH}" for tick in y_scale.ticks())
    up = "".join(f"M{_x(x_scale, tick)} 0V{HEIGHT}" for tick in x_scale.ticks())
    return f'<path class="grid" d="{across}{up}"/>'


def _x(scale: Scale, value: float) -> int:
    return round(float(scale(value)) * WIDTH)


def _y(scale: Scale, value: float) -> int:
    return round((1 - float(scale(value))) * HEIGHT)


def _points(
    x: np.ndarray, y: np.ndarray, x_scale: Scale, y_scale: Scale
) -> tuple[np.ndarray, np.ndarray]:
    return (
        np.rint(x_scale(x) * WIDTH).astype(np.int64),
        np.rint((1 - y_scale(y)) * HEIGHT).astype(np.int64),
    )


def _path(x: np.ndarray, y: np.ndarray) -> str:
    """A line through the points, written as steps: they are short."""
    steps = " ".join(
        f"{dx} {dy}" for dx, dy in zip(np.diff(x).tolist(), np.diff(y).tolist(), strict=True)
    )
    return f"M{x[0]} {y[0]}" + (f"l{steps}" if steps else "h0")


def _band(curve: ChartCurve, x_scale: Scale, y_scale: Scale) -> str:
    if curve.low is None or curve.high is None:
        return ""
    x, above = _points(curve.x, curve.high, x_scale, y_scale)
    _, below = _points(curve.x, curve.low, x_scale, y_scale)
    round_trip = np.concatenate([x, x[::-1]]), np.concatenate([above, below[::-1]])
    return f'<path class="band {curve.look.css}" {_tag(curve)} d="{_path(*round_trip)}z"/>'


def _line(curve: ChartCurve, x_scale: Scale, y_scale: Scale, dots: bool) -> str:
    x, y = _points(curve.x, curve.mean, x_scale, y_scale)
    shape = f'class="line {curve.look.css}" {_tag(curve)}'
    paths = f'<path {shape} d="{_path(x, y)}"/>'
    if dots and curve.low is not None and curve.high is not None:
        _, above = _points(curve.x, curve.high, x_scale, y_scale)
        _, below = _points(curve.x, curve.low, x_scale, y_scale)
        reach = "".join(f"M{a} {b}V{c}" for a, b, c in zip(x, below, above, strict=True))
        paths += f'<path class="reach {curve.look.css}" {_tag(curve)} d="{reach}"/>'
    if dots or curve.look.dots:
        every = 1 if dots else max(len(x) // 10, 1)
        spots = "".join(f"M{a} {b}h0" for a, b in zip(x[::every], y[::every], strict=True))
        paths += f'<path class="dots {curve.look.css}" {_tag(curve)} d="{spots}"/>'
    return paths


def _level(level: ChartLevel, y_scale: Scale, dots: bool) -> str:
    kind = "baseline" if dots else "bound"
    y = _y(y_scale, level.value)
    return f'<path class="{kind} {level.look.css}" {_tag(level)} d="M0 {y}H{WIDTH}"/>'


def _tag(item: ChartCurve | ChartLevel) -> str:
    return f'data-policy="{item.look.index}"'


def swatch(look: LineLook, dots: bool = False) -> str:
    """A piece of a policy's line, for legends."""
    spot = f'<path class="dots {look.css}" d="M18 6h0"/>' if dots or look.dots else ""
    return (
        '<svg class="swatch" viewBox="0 0 36 12" aria-hidden="true">'
        f'<path class="line {look.css}" d="M0 6H36"/>{spot}</svg>'
    )


def _who(item: ChartCurve | ChartLevel | IntervalRow | SharesRow) -> str:
    """A name with the scope beside it, always."""
    return (
        f'<span><span class="name">{escape(item.label)}</span> '
        f'<span class="scope">{escape(item.scope)}</span></span>'
    )


def legend(items: Iterable[ChartCurve | ChartLevel], dots: bool = False) -> str:
    """Which line is whose."""
    rows = "".join(
        f'<li data-policy="{item.look.index}">'
        f"{swatch(item.look, dots and isinstance(item, ChartCurve))}{_who(item)}</li>"
        for item in items
    )
    return f'<ul class="legend">{rows}</ul>'


@dataclass(frozen=True)
class IntervalRow:
    """A policy's final regret: its mean, how sure that is, and how repetitions spread."""

    label: str
    scope: str
    look: LineLook
    mean: float
    low: float
    high: float
    spread: tuple[float, float]


def intervals_chart(rows: Sequence[IntervalRow]) -> str:
    """One line for each policy."""
    return "".join(_intervals_view(rows, kind) for kind in SCALE_KINDS)


def _intervals_view(rows: Sequence[IntervalRow], kind: ScaleKind) -> str:
    known = [v for row in rows for v in (row.mean, row.spread[1], row.high)]
    scale = fit_scale(kind, [*known, *(row.spread[0] for row in rows if kind == "linear")])
    if kind == "log":
        scale = Scale(kind, scale.low / 1.5, scale.high * 1.1)
    grid = "".join(f"M{_x(scale, tick)} 0V10" for tick in scale.ticks())
    lines = []
    for row in rows:
        left, right = (_x(scale, value) for value in row.spread)
        paths = f'<path class="spread {row.look.css}" d="M{left} 5H{right}"/>'
        sure = significant(row.mean)
        if row.high == row.high:  # not after one repetition
            left, right = _x(scale, row.low), _x(scale, row.high)
            paths += f'<path class="sure {row.look.css}" d="M{left} 5H{right}"/>'
            sure += f" ± {significant(row.high - row.mean)}"
        spot = f'<path class="spot {row.look.css}" d="M{_x(scale, row.mean)} 5h0"/>'
        lines.append(
            f'<div class="row" data-policy="{row.look.index}">'
            f'<div class="who">{swatch(row.look)}{_who(row)}</div>'
            f'<svg viewBox="0 0 {WIDTH} 10" preserveAspectRatio="none" aria-hidden="true">'
            f'<path class="grid" d="{grid}"/>{paths}{spot}</svg>'
            f'<div class="value">{sure}</div></div>'
        )
    return (
        f'<div class="intervals regret-{kind}">{"".join(lines)}'
        f'<div class="row axis"><div></div><div class="xticks" aria-hidden="true">'
        f"{_ticks(scale, 'left')}</div><div></div></div>"
        f'<div class="row axis"><div></div><div class="xlabel">regret at the horizon'
        f"{' (log)' if kind == 'log' else ''}</div><div></div></div></div>"
    )


@dataclass(frozen=True)
class SharesRow:
    """A policy's pulls, as shares of all, for groups of arms from the best to the worst."""

    label: str
    scope: str
    look: LineLook
    shares: Sequence[float]


def shares_chart(rows: Sequence[SharesRow], names: Sequence[str]) -> str:
    """A bar for each policy, divided among the arms."""
    steps = max(len(names) - 1, 1)
    # From dark blue to yellow in even steps of lightness: it reads in grey as well.
    colours = [_cividis(i / steps) for i in range(len(names))]
    lines = []
    for row in rows:
        parts = "".join(
            f'<span style="width:{100 * share:.2f}%;background:{colour}" '
            f'title="{escape(name)}: {share:.1%} of the pulls"></span>'
            for share, name, colour in zip(row.shares, names, colours, strict=True)
            if share > 0
        )
        lines.append(
            f'<div class="row" data-policy="{row.look.index}">'
            f'<div class="who">{_who(row)}</div>'
            f'<div class="bar" role="img" aria-label="{row.shares[0]:.0%} {escape(names[0])}">'
            f'{parts}</div><div class="value">{row.shares[0]:.0%}</div></div>'
        )
    key = "".join(
        f'<li><span class="chip" style="background:{colour}"></span>{escape(name)}</li>'
        for name, colour in zip(names, colours, strict=True)
    )
    return f'<ul class="legend chips">{key}</ul><div class="intervals">{"".join(lines)}</div>'


_CIVIDIS = ((0, 32, 77), (59, 77, 108), (107, 111, 119), (163, 147, 103), (254, 232, 56))


def _cividis(at: float) -> str:
    place = at * (len(_CIVIDIS) - 1)
    i = min(int(place), len(_CIVIDIS) - 2)
    share = place - i
    mixed = (round(a + (b - a) * share) for a, b in zip(_CIVIDIS[i], _CIVIDIS[i + 1], strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)
