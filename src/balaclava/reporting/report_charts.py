"""Charts of a page: geometry here, SVG and HTML in templates/charts.html.

The SVG stretches to any width; its text stands beside it and does not. Every chart is drawn once
for each kind of scale, and the style sheet displays the chosen one. So a chart needs no JavaScript.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from balaclava._core.number_format import significant
from balaclava.reporting.chart_scales import SCALE_KINDS, Scale, ScaleKind, fit_scale

# Size of a drawing in SVG units: whole numbers that are fine enough for any screen.
CHART_WIDTH, CHART_HEIGHT = 10_000, 4_000
# Colours and dash patterns of templates/report.css. They have no common divisor, so that 28 looks
# differ; beyond those, dots are added.
_LINE_COLOURS, _LINE_DASHES = 7, 4
_HEADROOM = 1.05  # factor above the highest point of a scale; appearance only
_FARTHEST_BOUND = 10  # times the highest point of a log scale: a bound above it is not drawn
# Cividis (Nuñez, Anderton, Renslow 2018) at five places: even steps of lightness, legible in grey.
_CIVIDIS = ((0, 32, 77), (59, 77, 108), (107, 111, 119), (163, 147, 103), (254, 232, 56))


@dataclass(frozen=True)
class LineLook:
    """How a policy is drawn, everywhere on a page."""

    index: int

    @property
    def css(self) -> str:
        dots = min(self.index // (_LINE_COLOURS * _LINE_DASHES), 2)
        return f"c{self.index % _LINE_COLOURS} d{self.index % _LINE_DASHES} m{dots}"

    @property
    def dots(self) -> bool:
        return self.index >= _LINE_COLOURS * _LINE_DASHES


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
    dots: bool = False  # a dot at each point, also in the legend


@dataclass(frozen=True)
class ChartLevel:
    """A horizontal line: a proved bound or a baseline."""

    label: str
    scope: str
    look: LineLook
    value: float
    dots: bool = False


class Shape(NamedTuple):
    css: str
    path: str
    policy: int | None = None  # the index of its look


@dataclass(frozen=True)
class PlotView:
    """A chart for one pair of scales."""

    x: Scale
    y: Scale
    x_name: str
    shapes: Sequence[Shape]


def curve_views(curves: Sequence[ChartCurve], bounds: Sequence[ChartLevel]) -> list[PlotView]:
    return [_view(curves, bounds, *kinds) for kinds in itertools.product(SCALE_KINDS, SCALE_KINDS)]


def epsilon_views(curves: Sequence[ChartCurve], levels: Sequence[ChartLevel]) -> list[PlotView]:
    """Regret against epsilon: dots with intervals, and baselines as levels."""
    return [_view(curves, levels, "log", kind, dots=True) for kind in SCALE_KINDS]


def _view(
    curves: Sequence[ChartCurve],
    levels: Sequence[ChartLevel],
    x_kind: ScaleKind,
    y_kind: ScaleKind,
    *,
    dots: bool = False,
) -> PlotView:
    x = fit_scale(x_kind, np.concatenate([curve.x for curve in curves]))
    y = _y_scale(curves, levels, y_kind, dots)
    if dots:  # a dot on the very edge would be cut in half
        x = Scale(x_kind, x.low / 1.25, x.high * 1.25)
    bands = [] if dots else [_band(curve, x, y) for curve in curves if curve.high is not None]
    kind = "baseline" if dots else "bound"
    lines = [
        Shape(
            f"{kind} {level.look.css}", f"M0 {_y(y, level.value)}H{CHART_WIDTH}", level.look.index
        )
        for level in levels
        if level.value <= y.high
    ]
    shapes = [_grid(x, y), *bands, *lines]
    shapes += itertools.chain.from_iterable(_line(curve, x, y, dots) for curve in curves)
    return PlotView(x, y, "epsilon" if dots else "round", shapes)


def _y_scale(
    curves: Sequence[ChartCurve], levels: Sequence[ChartLevel], kind: ScaleKind, dots: bool
) -> Scale:
    tops = [curve.mean if curve.high is None else curve.high for curve in curves]
    # Without the lower ends: a band that reaches 0 would stretch a log scale over empty decades.
    values = np.concatenate([*tops, *(curve.mean for curve in curves)])
    highest = float(values.max())
    far = _FARTHEST_BOUND if kind == "log" else 1.0
    known = [level.value for level in levels if dots or level.value <= far * highest]
    scale = fit_scale(kind, [*values, *known])
    return Scale(kind, scale.low / (1.25 if kind == "log" else 1), scale.high * _HEADROOM)


def _grid(x: Scale, y: Scale) -> Shape:
    across = "".join(f"M0 {_y(y, tick)}H{CHART_WIDTH}" for tick in y.ticks())
    up = "".join(f"M{_x(x, tick)} 0V{CHART_HEIGHT}" for tick in x.ticks())
    return Shape("grid", across + up)


def _x(scale: Scale, value: float) -> int:
    return round(float(scale(value)) * CHART_WIDTH)


def _y(scale: Scale, value: float) -> int:
    return round((1 - float(scale(value))) * CHART_HEIGHT)


def _points(x: np.ndarray, y: np.ndarray, x_scale: Scale, y_scale: Scale) -> list[np.ndarray]:
    places = x_scale(x) * CHART_WIDTH, (1 - y_scale(y)) * CHART_HEIGHT
    return [np.rint(place).astype(np.int64) for place in places]


def _path(x: np.ndarray, y: np.ndarray) -> str:
    """A line through points, in relative coordinates, which are short."""
    steps = zip(np.diff(x).tolist(), np.diff(y).tolist(), strict=True)
    joined = " ".join(f"{dx} {dy}" for dx, dy in steps)
    return f"M{x[0]} {y[0]}" + (f"l{joined}" if joined else "h0")


def _reach(curve: ChartCurve, x_scale: Scale, y_scale: Scale) -> list[np.ndarray]:
    """Positions, and the upper and lower end of the interval at each."""
    low, high = np.asarray(curve.low), np.asarray(curve.high)
    x, above = _points(curve.x, high, x_scale, y_scale)
    return [x, above, _points(curve.x, low, x_scale, y_scale)[1]]


def _band(curve: ChartCurve, x_scale: Scale, y_scale: Scale) -> Shape:
    x, above, below = _reach(curve, x_scale, y_scale)
    outline = _path(np.concatenate([x, x[::-1]]), np.concatenate([above, below[::-1]]))
    return Shape(f"band {curve.look.css}", f"{outline}z", curve.look.index)


def _line(curve: ChartCurve, x_scale: Scale, y_scale: Scale, dots: bool) -> list[Shape]:
    x, y = _points(curve.x, curve.mean, x_scale, y_scale)
    paths = {"line": _path(x, y)}
    if dots and curve.high is not None:
        ends = zip(*_reach(curve, x_scale, y_scale), strict=True)
        paths["reach"] = "".join(f"M{a} {low}V{high}" for a, high, low in ends)
    if dots or curve.look.dots:
        every = 1 if dots else max(len(x) // 10, 1)
        spots = zip(x[::every], y[::every], strict=True)
        paths["dots"] = "".join(f"M{a} {b}h0" for a, b in spots)
    look = curve.look
    return [Shape(f"{name} {look.css}", path, look.index) for name, path in paths.items()]


@dataclass(frozen=True)
class IntervalRow:
    """A policy's final regret: its mean, the interval of the mean, quantiles of repetitions."""

    label: str
    scope: str
    look: LineLook
    mean: float
    low: float
    high: float
    quantiles: tuple[float, float]

    @property
    def value(self) -> str:
        """The mean and, after two repetitions or more, its plus-minus."""
        mean = significant(self.mean)
        return mean if np.isnan(self.high) else f"{mean} ± {significant(self.high - self.mean)}"

    def shapes(self, scale: Scale) -> list[Shape]:
        grid = "".join(f"M{_x(scale, tick)} 0V10" for tick in scale.ticks())
        paths = {"spread": "M{} 5H{}".format(*(_x(scale, value) for value in self.quantiles))}
        if not np.isnan(self.high):
            paths["sure"] = f"M{_x(scale, self.low)} 5H{_x(scale, self.high)}"
        paths["spot"] = f"M{_x(scale, self.mean)} 5h0"
        drawn = [Shape(f"{name} {self.look.css}", path) for name, path in paths.items()]
        return [Shape("grid", grid), *drawn]


def interval_scales(rows: Sequence[IntervalRow]) -> list[Scale]:
    """A scale of each kind that holds every row."""
    high = [value for row in rows for value in (row.mean, row.quantiles[1], row.high)]
    linear = fit_scale("linear", [*high, *(row.quantiles[0] for row in rows)])
    log = fit_scale("log", high)
    return [linear, Scale("log", log.low / 1.5, log.high * 1.1)]


@dataclass(frozen=True)
class SharesRow:
    """A policy's pulls, as shares of all, for groups of arms from the best to the worst."""

    label: str
    scope: str
    look: LineLook
    shares: Sequence[float]


class ArmGroup(NamedTuple):
    """Arms that share a part of a bar."""

    name: str
    colour: str


def arm_groups(names: Sequence[str]) -> list[ArmGroup]:
    """Groups coloured from dark blue to yellow.

    >>> [group.colour for group in arm_groups(["best", "others"])]
    ['#00204d', '#fee838']
    """
    steps = max(len(names) - 1, 1)
    return [ArmGroup(name, _cividis(i / steps)) for i, name in enumerate(names)]


def _cividis(at: float) -> str:
    place = at * (len(_CIVIDIS) - 1)
    i = min(int(place), len(_CIVIDIS) - 2)
    share = place - i
    mixed = (round(a + (b - a) * share) for a, b in zip(_CIVIDIS[i], _CIVIDIS[i + 1], strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)
