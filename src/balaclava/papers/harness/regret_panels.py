"""Panels of regret curves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from balaclava.simulation.analysis.regret_plots import Band, plot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from balaclava.simulation.results import Results


def regret_panels(
    panels: Mapping[str, Results],
    headings: Mapping[str, str],
    title: str,
    band: Band = (0.1, 0.9),
) -> Figure:
    """Regret curves, two panels a row, each with its legend to the right of the curves."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    rows = math.ceil(len(panels) / 2)
    figure = Figure(figsize=(17, 0.6 + 4.2 * rows), layout="constrained", dpi=110)
    figure.suptitle(title, fontsize=12, x=0.01, ha="left")
    axes = figure.subplots(rows, 2, squeeze=False).ravel()
    for ax, (letter, results) in zip(axes, panels.items(), strict=False):
        plot(results, ax=ax, log_regret=True, band=band)
        ax.set_xlim(0, results.horizon)
        ax.xaxis.set_major_locator(MaxNLocator(4))
        ax.xaxis.set_major_formatter("{x:,.0f}")
        ax.set_title(f"({letter}) {headings[letter]}", fontsize=10, loc="left")
        ax.set_ylabel("regret (sum of gaps, log scale)")
        handles, labels = _of(ax.get_legend())
        ax.legend(
            handles,
            labels,
            loc="upper left",
            bbox_to_anchor=(1.01, 1.0),
            frameon=False,
            handlelength=3.2,
            fontsize=8,
        )
    for ax in axes[len(panels) :]:
        ax.remove()
    return figure


def _of(legend: Any) -> tuple[list[Any], list[str]]:
    """What a legend shows, in its order."""
    return legend.legend_handles, [text.get_text() for text in legend.get_texts()]
