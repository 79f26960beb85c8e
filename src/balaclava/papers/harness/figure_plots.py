"""Shared parts of pictures, and panels of regret curves."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from balaclava.simulation.analysis.regret_plots import COLOURS, LINE_STYLES, MARKERS, Band, plot
from balaclava.simulation.results import Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure
else:  # matplotlib is imported when a picture is drawn
    Axes = Figure = Any

# Beyond the colours of `results.plot`: two more that remain distinct for colour-blind readers.
_MORE_COLOURS = (*COLOURS, "#332288", "#8C564B")


def new_picture(title: str, width: float, height: float) -> Figure:
    """An empty picture with its title; width and height in inches."""
    from matplotlib.figure import Figure

    picture = Figure(figsize=(width, height), layout="constrained", dpi=110)
    picture.suptitle(title, fontsize=12, x=0.01, ha="left")
    return picture


def frame_axes(ax: Axes, *, log: bool = True) -> None:
    """Give axes a light frame and, by default, logarithmic scales."""
    if log:
        ax.set_xscale("log")
        ax.set_yscale("log")
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25)


def legend_below(ax: Axes) -> None:
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.11), frameon=False, fontsize=8)


def line_look(i: int) -> dict[str, Any]:
    return {
        "color": _MORE_COLOURS[i % len(_MORE_COLOURS)],
        "linestyle": LINE_STYLES[i % len(LINE_STYLES)],
        "marker": MARKERS[i % len(MARKERS)],
    }


def _use_medians(ax: Axes, results: Results) -> None:
    """Move the curves of `plot` to the medians, and end the axis below the lowest of them."""
    curves = [np.median(results.regret(label), axis=0) for label in results.labels]
    for line, curve in zip(ax.lines, curves, strict=True):
        line.set_ydata(curve)
    ax.set_ylim(bottom=0.5 * max(1.0, min(curve[curve.size // 20] for curve in curves)))


def regret_panels(
    panels: Mapping[str, Results],
    headings: Mapping[str, str],
    title: str,
    band: Band = (0.1, 0.9),
    *,
    medians: bool = False,
) -> Figure:
    """Regret curves, two panels in a row, with a legend to the right of each.

    With `medians`, one bad run does not carry a curve; a mean of few runs may be one run's.
    """
    from matplotlib.ticker import MaxNLocator

    rows = math.ceil(len(panels) / 2)
    figure = new_picture(title, 17, 0.6 + 4.2 * rows)
    axes = figure.subplots(rows, 2, squeeze=False).ravel()
    for ax, (letter, results) in zip(axes, panels.items(), strict=False):
        plot(results, ax=ax, log_regret=True, band=band)
        if medians:
            _use_medians(ax, results)
        ax.set_xlim(0, results.horizon)
        ax.xaxis.set_major_locator(MaxNLocator(4))
        ax.xaxis.set_major_formatter("{x:,.0f}")
        ax.set_title(f"({letter}) {headings[letter]}", fontsize=10, loc="left")
        ax.set_ylabel("regret (sum of gaps, log scale)")
        drawn = ax.get_legend()
        ax.legend(
            drawn.legend_handles,
            [text.get_text() for text in drawn.get_texts()],
            loc="upper left",
            bbox_to_anchor=(1.01, 1.0),
            frameon=False,
            handlelength=3.2,
            fontsize=8,
        )
    for ax in axes[len(panels) :]:
        ax.remove()
    return figure
