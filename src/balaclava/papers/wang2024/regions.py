"""The region that Lemma 8 of Wang and Zhu (2024) leaves to the law of an arm's index.

F is the distribution function of the index under one history, F' under a history with one reward
changed. The decision is (epsilon, delta)-private if at every x

    F <= e^epsilon F' + delta   and   1 - F <= e^epsilon (1 - F') + delta,

and both with F and F' exchanged, as either history may be the original one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from balaclava.papers.harness.figure_run import FigureRun

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from balaclava.privacy.mechanisms.perturbed_index import IndexLaw

_TAIL = 1e-12  # mass that the grid leaves out at either end
_SHOWN = 1e-5  # mass that the picture leaves out
_ROUNDING = 1e-11


def allowed_range(cdf: Any, sf: Any, epsilon: float, delta: float) -> tuple[Any, Any]:
    """Between what F'(x) must lie, given F(x) and 1 - F(x)."""
    grow = math.exp(epsilon)
    low = np.maximum((cdf - delta) / grow, 1.0 - grow * sf - delta)
    high = np.minimum(1.0 - (sf - delta) / grow, grow * cdf + delta)
    return np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)


class IndexPair(NamedTuple):
    """The index of an arm under two histories that differ in one reward, on a grid of x."""

    heading: str
    epsilon: float
    delta: float
    x: np.ndarray
    cdf: np.ndarray
    sf: np.ndarray
    other_cdf: np.ndarray
    other_sf: np.ndarray

    @property
    def region(self) -> tuple[np.ndarray, np.ndarray]:
        """The lowest and the highest F' that is allowed."""
        return allowed_range(self.cdf, self.sf, self.epsilon, self.delta)

    @property
    def needed_delta(self) -> float:
        """The smallest delta for which F' lies in the region everywhere."""
        grow = math.exp(self.epsilon)
        pairs = ((self.cdf, self.other_cdf), (self.sf, self.other_sf))
        worst = max(
            float(np.max(np.maximum(one - grow * two, two - grow * one))) for one, two in pairs
        )
        return worst if worst > _ROUNDING else 0.0

    @property
    def inside(self) -> bool:
        """Whether F' lies in the region everywhere."""
        return self.needed_delta <= self.delta

    @property
    def touching(self) -> float:
        """The share of F's mass where F' is on the edge of the region."""
        low, high = self.region
        on_edge = np.minimum(abs(self.other_cdf - low), abs(high - self.other_cdf)) < _ROUNDING
        steps = np.diff(self.cdf)
        return float(steps[on_edge[1:] & on_edge[:-1]].sum() / steps.sum())

    def __str__(self) -> str:
        verdict = "inside" if self.inside else "outside"
        needed = self.needed_delta
        needs = f"δ = {needed:.3g}" if needed else f"δ < {_ROUNDING:g}"
        return f"{verdict}, needs {needs} and has {self.delta:g}"


def index_pair(
    heading: str, epsilon: float, delta: float, law: IndexLaw, other: IndexLaw, points: int = 500
) -> IndexPair:
    """Two laws on a grid that is dense where their mass is, and reaches far into the tails."""
    half = points // 2
    shares = np.concatenate([np.geomspace(_TAIL, 0.01, half), np.linspace(0.01, 0.5, half)])
    ends = [side(shares) for one in (law, other) for side in (one.ppf, one.isf)]
    x = np.unique(np.concatenate(ends))
    return IndexPair(heading, epsilon, delta, x, law.cdf(x), law.sf(x), other.cdf(x), other.sf(x))


def save_regions(run: FigureRun, panels: list[IndexPair], title: str) -> None:
    """The data and the picture."""
    columns: dict[str, list[Any]] = {}
    for letter, panel in zip("abcdef", panels, strict=False):
        low, high = panel.region
        values = {
            "panel": np.full(panel.x.size, letter),
            "epsilon": np.full(panel.x.size, panel.epsilon),
            "delta": np.full(panel.x.size, panel.delta),
            "x": panel.x,
            "F": panel.cdf,
            "F_changed": panel.other_cdf,
            "lowest_allowed": low,
            "highest_allowed": high,
        }
        for name, column in values.items():
            columns.setdefault(name, []).extend(column.tolist())
    run.save_table(columns)
    run.save_picture(draw_regions(panels, title))


def draw_regions(panels: list[IndexPair], title: str) -> Figure:
    """Above, the two distribution functions and the region; below, all of them minus F."""
    from matplotlib.figure import Figure

    blocks = math.ceil(len(panels) / 3)
    figure = Figure(figsize=(13, 0.8 + 5.6 * blocks), layout="constrained", dpi=110)
    figure.suptitle(title, fontsize=12, x=0.01, ha="left")
    axes = figure.subplots(2 * blocks, 3, squeeze=False)
    for i, (letter, panel) in enumerate(zip("abcdef", panels, strict=False)):
        above, beneath = axes[2 * (i // 3), i % 3], axes[2 * (i // 3) + 1, i % 3]
        _draw(above, panel, np.zeros_like(panel.cdf))
        _draw(beneath, panel, panel.cdf)
        above.set_ylabel("F(x), F'(x): probability")
        beneath.set_ylabel("F'(x) - F(x)")
        above.set_title(f"({letter}) {panel.heading}:\n{panel}", fontsize=10, loc="left")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    return figure


def _draw(ax: Axes, panel: IndexPair, minus: np.ndarray) -> None:
    from matplotlib.ticker import MaxNLocator

    from balaclava.simulation.analysis.regret_plots import COLOURS

    blue, red = COLOURS[:2]
    low, high = panel.region
    allowed = "allowed for F' (Lemma 8)"
    ax.fill_between(panel.x, low - minus, high - minus, color=red, alpha=0.25, lw=0, label=allowed)
    ax.plot(panel.x, panel.cdf - minus, color="black", lw=1.5, label="F")
    changed = panel.other_cdf - minus
    ax.plot(panel.x, changed, color=blue, lw=1.8, ls="--", label="F', one reward changed")
    out = (panel.other_cdf < low - _ROUNDING) | (panel.other_cdf > high + _ROUNDING)
    ax.plot(panel.x, np.where(out, changed, np.nan), color=red, lw=3, label="F' outside")
    inside = (np.minimum(panel.cdf, panel.other_cdf) < 1 - _SHOWN) & (
        np.maximum(panel.cdf, panel.other_cdf) > _SHOWN
    )
    ax.set_xlim(panel.x[inside][0], panel.x[inside][-1])
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.set_xlabel("index x")
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25)
