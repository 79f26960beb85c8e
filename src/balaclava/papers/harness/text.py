"""What the figures have in common: panels of curves, verdicts on claims, and the text."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from balaclava.simulation.plots import Band, plot
from balaclava.simulation.results import Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDTH = 100
_CERTAIN = 2.0  # standard errors by which two means must differ to be called different


def only(results: Results, labels: Iterable[str]) -> Results:
    """The results of some of the policies."""
    chosen = {label: results.policies[label] for label in labels}
    part = Results.empty(
        chosen,
        results.environment,
        horizon=results.horizon,
        seed=results.seed,
        checkpoints=results.checkpoints,
    )
    part.runs = {label: results.runs[label] for label in chosen}
    return part


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


def mean_and_error(results: Results, label: str) -> tuple[float, float]:
    """The mean final regret and its standard error."""
    final = results.final_regret(label)
    spread = final.std(ddof=1) / math.sqrt(final.size) if final.size > 1 else math.nan
    return float(final.mean()), float(spread)


def below(results: Results, label: str, others: Sequence[str]) -> str:
    """Whether a policy's mean regret is below that of each other: a verdict on a claim."""
    mean, error = mean_and_error(results, label)
    verdict = "agrees"
    for other in others:
        theirs, spread = mean_and_error(results, other)
        gap = _CERTAIN * math.hypot(error, spread)
        if theirs < mean - gap:
            return "differs"
        if not theirs > mean + gap:
            verdict = "unclear"
    return verdict


def ranking(results: Results) -> str:
    """The policies from the lowest mean regret to the highest."""
    means = {label: mean_and_error(results, label) for label in results.labels}
    ordered = sorted(means, key=lambda label: means[label][0])
    return "; ".join(
        f"{label} {means[label][0]:,.0f} ± {means[label][1]:,.0f}" for label in ordered
    )


def strays(results: Results, labels: Iterable[str]) -> str:
    """In how many runs an arm that is not the best was played most."""
    best = results.environment.gaps == 0
    counts = []
    for label in labels:
        favourite = results.pulls(label).argmax(axis=1)
        counts.append(f"{label} {int((~best[favourite]).sum())} of {favourite.size}")
    return f"runs that played some other arm more than the best: {'; '.join(counts)}."


def costs(results: Results, labels: Iterable[str]) -> str:
    """What the promises about single decisions amount to for the run as a whole."""
    alike: dict[str, list[str]] = {}
    for label in labels:
        guarantee = results.policies[label].guarantee
        if guarantee.scope == "decision":
            together = guarantee.over(results.horizon)
            total = str(together) if together.private else "no promise at all"
            alike.setdefault(f"{guarantee} is {total}", []).append(label)
    stated = "; ".join(f"for {', '.join(names)} {cost}" for cost, names in alike.items())
    return f"All {results.horizon:,} decisions together: {stated}."


def verdicts(claim: str, by_panel: dict[str, str]) -> str:
    """One line a claim: in which panels it is seen."""
    parts = []
    for word in ("agrees", "unclear", "differs"):
        letters = [f"({letter})" for letter, verdict in by_panel.items() if verdict == word]
        if letters:
            parts.append(f"{word} in {', '.join(letters)}")
    return f"{claim}: {'; '.join(parts)}."


def compose(heading: str, sections: Mapping[str, Sequence[str]]) -> str:
    """The text: a heading, and under each title its points."""
    lines = [heading]
    for title, points in sections.items():
        lines += ["", title]
        lines += [
            textwrap.fill(
                point,
                _WIDTH,
                initial_indent="- ",
                subsequent_indent="  ",
                break_on_hyphens=False,
            )
            for point in points
        ]
    return "\n".join(lines)
