"""Final regret against anything that changes the policies, the environment, or both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from balaclava.papers.harness.claims import count_misled_runs
from balaclava.papers.harness.figure_run import FigurePanel, FigureRun, RunSize
from balaclava.simulation.analysis.statistics import mean_of_regret

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from balaclava.environments.base import Environment
    from balaclava.policies.base import Policy


class RegretStudy(NamedTuple):
    """What is varied, and what is played where at each value: the same labels at all of them."""

    symbol: str
    values: Sequence[float]
    world: Callable[[float], Environment]
    policies: Callable[[float], Mapping[str, Policy]]
    heading: str
    size: RunSize

    def panels(self, letter: str) -> dict[str, FigurePanel]:
        """One for each value."""
        return {
            f"{letter}{i}": FigurePanel(self.policies(value), self.world(value))
            for i, value in enumerate(self.values, 1)
        }


class FinalRegretCurve(NamedTuple):
    """The final regret of a policy at each value: mean and plus-minus."""

    values: np.ndarray
    means: np.ndarray
    errors: np.ndarray
    uniform: np.ndarray  # the regret of playing all arms in turn
    strays: np.ndarray  # runs that played some other arm more than the best
    promise: str

    def slope(self, first: int = 0, last: int | None = None) -> float:
        """Of log regret against log value, fitted to a part of the points."""
        part = slice(first, last)
        return float(np.polyfit(np.log(self.values[part]), np.log(self.means[part]), 1)[0])

    def at(self, i: int) -> tuple[float, float]:
        """Mean and plus-minus at one of the values."""
        return float(self.means[i]), float(self.errors[i])


def play_studies(
    run: FigureRun, studies: Mapping[str, RegretStudy], seed: int
) -> dict[str, dict[str, FinalRegretCurve]]:
    """Play all of them; the curves of each, by label. They are also kept as a table."""
    panels = {letter: study.panels(letter) for letter, study in studies.items()}
    sizes = {key: studies[letter].size for letter in panels for key in panels[letter]}
    every = {key: panel for of_study in panels.values() for key, panel in of_study.items()}
    run.play(every, sizes, seed=seed, checkpoints=20)
    curves = {letter: _curves(run, letter, study) for letter, study in studies.items()}
    rows = [
        (letter, studies[letter].symbol, value, label, curve.promise, mean, error)
        for letter, by_label in curves.items()
        for label, curve in by_label.items()
        for value, mean, error in zip(curve.values, curve.means, curve.errors, strict=True)
    ]
    names = ("panel", "varied", "value", "policy", "guarantee", "mean_regret", "plus_minus")
    run.save_table(dict(zip(names, zip(*rows, strict=True), strict=True)))
    return curves


def _curves(run: FigureRun, letter: str, study: RegretStudy) -> dict[str, FinalRegretCurve]:
    by_value = [run.results[key] for key in study.panels(letter)]
    uniform = np.array([r.horizon * float(r.environment.gaps.mean()) for r in by_value])
    curves = {}
    for label in by_value[0].labels:
        means, errors = zip(*(mean_of_regret(results, label) for results in by_value), strict=True)
        promises = {str(results.policies[label].guarantee) for results in by_value}
        scope = by_value[0].policies[label].guarantee.scope
        promise = promises.pop() if len(promises) == 1 else f"ε per {scope}"
        values = np.array(study.values, float)
        strays = np.array([count_misled_runs(results, label) for results in by_value])
        curves[label] = FinalRegretCurve(
            values, np.array(means), np.array(errors), uniform, strays, promise
        )
    return curves


def draw_studies(
    studies: Mapping[str, RegretStudy],
    curves: Mapping[str, Mapping[str, FinalRegretCurve]],
    title: str,
    extra: int = 0,
) -> Figure:
    """A panel for each study, both axes logarithmic, with legends that tell the promises.

    `extra` panels to the right stay empty.
    """
    from matplotlib.figure import Figure

    columns = len(studies) + extra
    figure = Figure(figsize=(6.4 * columns, 6.4), layout="constrained", dpi=110)
    figure.suptitle(title, fontsize=12, x=0.01, ha="left")
    axes: Any = figure.subplots(1, columns, squeeze=False)[0]
    for ax, (letter, study) in zip(axes, studies.items(), strict=False):
        _draw(ax, curves[letter])
        ax.set_title(f"({letter}) {study.heading}", fontsize=10, loc="left")
        ax.set_xlabel(study.symbol)
        ax.set_ylabel("regret (sum of gaps, log scale)")
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.11), frameon=False, fontsize=8)
    return figure


def _draw(ax: Axes, curves: Mapping[str, FinalRegretCurve]) -> None:
    from balaclava.simulation.analysis.regret_plots import COLOURS, LINE_STYLES

    for i, (label, curve) in enumerate(curves.items()):
        look: dict[str, Any] = {
            "color": COLOURS[i % len(COLOURS)],
            "linestyle": LINE_STYLES[i % len(LINE_STYLES)],
            "marker": "o^sDv<>"[i % 7],
            "markersize": 5,
        }
        name = f"{label} [{curve.promise}]"
        ax.errorbar(curve.values, curve.means, curve.errors, capsize=3, label=name, **look)
    any_curve = next(iter(curves.values()))
    ax.plot(
        any_curve.values, any_curve.uniform, color="0.5", lw=1, ls=":", label="all arms in turn"
    )
    ax.set_xscale("log")
    ax.set_xticks(any_curve.values, [f"{value:g}" for value in any_curve.values])
    ax.set_xticks([], minor=True)
    ax.set_yscale("log")
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25)


def describe_ranges(curves: Mapping[str, FinalRegretCurve]) -> str:
    """The regret of each policy at the first and the last value."""
    parts = [
        f"{label} {curve.means[0]:,.0f} to {curve.means[-1]:,.0f}"
        for label, curve in curves.items()
    ]
    return "; ".join(parts)
