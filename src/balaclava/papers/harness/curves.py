"""Final regret against a parameter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from balaclava.papers.harness.figure_policies import make_policy
from balaclava.papers.harness.figure_run import FigurePanel, FigureRun, RunSize
from balaclava.simulation.analysis.statistics import mean_of_regret

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from balaclava.environments.base import Environment
    from balaclava.simulation.results import Results

SYMBOLS = {"epsilon": "ε", "delta": "δ"}


class CurveFamily(NamedTuple):
    """What is varied, over which values, what is held, and for which policies."""

    parameter: str
    values: list[float]
    constants: dict[str, float]
    names: tuple[str, ...]

    def __str__(self) -> str:
        return ", ".join(f"{SYMBOLS[name]} = {value:g}" for name, value in self.constants.items())

    def label(self, name: str, value: float) -> str:
        """The label of a policy at one value."""
        return f"{name} {SYMBOLS[self.parameter]}={value:g}"

    def panel(self, world: Environment, size: RunSize) -> FigurePanel:
        """Every policy at every value."""
        policies = {
            self.label(name, value): make_policy(
                name,
                arms=world.arms,
                horizon=size.horizon,
                **{self.parameter: value},
                **self.constants,
            )
            for name in self.names
            for value in self.values
        }
        return FigurePanel(policies, world)

    def curve(self, results: Results, name: str) -> tuple[np.ndarray, np.ndarray]:
        """The mean final regret at each value, and its plus-minus."""
        pairs = [mean_of_regret(results, self.label(name, value)) for value in self.values]
        means, errors = zip(*pairs, strict=True)
        return np.array(means), np.array(errors)

    def steepest(self, results: Results, name: str) -> float:
        """The largest slope of log regret against -log of the value, between neighbours."""
        means, _ = self.curve(results, name)
        return float(np.max(np.diff(np.log(means)) / -np.diff(np.log(self.values))))

    def describe(self, results: Results) -> str:
        """From where to where the regret goes, and how fast at most."""
        reached, grown = [], []
        for name in self.names:
            means, _ = self.curve(results, name)
            power = f"1/{SYMBOLS[self.parameter]}^{self.steepest(results, name):.1f}"
            reached.append(f"{name} {means[0]:,.0f} to {means[-1]:,.0f}")
            grown.append(f"{name} {power}")
        return f"regret from {'; '.join(reached)}. Steepest growth: {'; '.join(grown)}."


def grid(high: float, low: float, points: int) -> list[float]:
    """Values evenly spaced on a logarithmic scale, from high to low, to three digits."""
    return [float(f"{value:.3g}") for value in np.geomspace(high, low, points)]


def draw_curves(run: FigureRun, families: dict[str, CurveFamily], title: str) -> Figure:
    """Final regret against what is varied, both on logarithmic scales."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 5.6), layout="constrained", dpi=110)
    figure.suptitle(title, fontsize=12, x=0.01, ha="left")
    axes: Any = figure.subplots(1, len(families), sharey=True, squeeze=False)[0]
    for ax, (letter, family) in zip(axes, families.items(), strict=True):
        _draw(ax, run.results[letter], family)
        ax.set_title(f"({letter}) {family}", fontsize=10, loc="left")
    axes[0].set_ylabel("regret (sum of gaps)")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure


def _draw(ax: Axes, results: Results, family: CurveFamily) -> None:
    from balaclava.simulation.analysis.regret_plots import COLOURS, LINE_STYLES

    for i, name in enumerate(family.names):
        means, errors = family.curve(results, name)
        scope = results.policies[family.label(name, family.values[0])].guarantee.scope
        look: dict[str, Any] = {
            "color": COLOURS[i],
            "linestyle": LINE_STYLES[i],
            "marker": "o^sD"[i],
        }
        label = f"{name} [ε, δ per {scope}]"
        ax.errorbar(family.values, means, errors, capsize=3, label=label, **look)
    uniform = results.horizon * float(results.environment.gaps.mean())
    ax.axhline(uniform, color="0.5", lw=1, ls=":", label="all arms in turn")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.invert_xaxis()
    ax.set_xlabel(f"{SYMBOLS[family.parameter]} (more private to the right)")
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25)
