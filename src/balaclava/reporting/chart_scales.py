"""Axes of a chart: where a number lies on a scale, and which ticks the scale has."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from balaclava._core.number_format import tick_label

ScaleKind = Literal["linear", "log"]
SCALE_KINDS: tuple[ScaleKind, ...] = ("linear", "log")
_MOST_DECADES = 6  # powers of ten on a log scale; smaller values are noise near 0
_FEWEST_TICKS = 3  # with labels, so that a reader can interpolate


@dataclass(frozen=True)
class Scale:
    """A range of numbers, mapped to [0, 1].

    Example:
        >>> scale = Scale("log", 1.0, 100.0)
        >>> [round(float(scale(value)), 2) for value in (1, 10, 100)]
        [0.0, 0.5, 1.0]
        >>> scale.ticks()
        [1.0, 10.0, 100.0]
    """

    kind: ScaleKind
    low: float
    high: float

    def __call__(self, values: np.ndarray | float) -> np.ndarray:
        """Positions of numbers; those out of range lie at the edge."""
        numbers = np.clip(np.asarray(values, dtype=np.float64), self.low, self.high)
        if self.kind == "log":
            span = math.log(self.high / self.low)
            return np.asarray(np.log(numbers / self.low) / span)
        return np.asarray((numbers - self.low) / (self.high - self.low))

    @property
    def limits(self) -> str:
        """The scale as the page's script reads it."""
        return f"{self.kind},{self.low:.6g},{self.high:.6g}"

    def ticks(self) -> list[float]:
        """Round numbers, about five of them."""
        if self.kind == "linear":
            return _round_numbers(self.low, self.high)
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        for factors in ((1,), (1, 3), (1, 2, 5)):
            ticks = [m * 10.0**e for e in range(first, last + 1) for m in factors]
            inside = [tick for tick in ticks if self.low * 0.999 <= tick <= self.high * 1.001]
            if len(inside) >= _FEWEST_TICKS:
                return inside
        return _round_numbers(self.low, self.high)

    def tick_marks(self) -> list[tuple[str, str]]:
        return [(f"{100 * float(self(tick)):.2f}", tick_label(tick)) for tick in self.ticks()]


def fit_scale(kind: ScaleKind, values: Iterable[float]) -> Scale:
    """Fit a scale to numbers: a linear one starts at 0, a log one holds the positive numbers."""
    known = [float(value) for value in values if math.isfinite(value)]
    if kind == "linear":
        low, high = min([0.0, *known]), max([0.0, *known])
        return Scale(kind, low, high if high > low else low + 1.0)
    positive = [value for value in known if value > 0] or [1.0]
    high = max(positive)
    low = max(min(positive), high * 10.0**-_MOST_DECADES)
    return Scale(kind, low, high) if high > low * 1.01 else Scale(kind, low / 2, low * 2)


def _round_numbers(low: float, high: float) -> list[float]:
    raw = (high - low) / 5
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * m for m in (1, 2, 5, 10) if size * m >= raw * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [step * i for i in range(first, last + 1)]
