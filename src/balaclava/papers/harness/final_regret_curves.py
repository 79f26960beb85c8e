"""Final regret against a varied quantity: of the policies, the environment, or both."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from balaclava.environments.base import Environment
from balaclava.papers.harness import figure_plots
from balaclava.papers.harness.claims import count_misled_runs
from balaclava.papers.harness.figure_policies import make_policy
from balaclava.papers.harness.figure_run import FigurePanel, FigureRun, RunSize
from balaclava.policies.base import Policy
from balaclava.simulation.analysis.statistics import mean_of_regret
from balaclava.simulation.results import Results

SYMBOLS = {"epsilon": "ε", "delta": "δ"}


class RegretStudy(NamedTuple):
    """A varied quantity, with the policies and the environment at each value.

    The labels are the same at all values.
    """

    symbol: str
    values: Sequence[float]
    world: Callable[[float], Environment]
    policies: Callable[[float], Mapping[str, Policy]]
    heading: str
    size: RunSize

    def panels(self, letter: str) -> dict[str, FigurePanel]:
        return {
            f"{letter}{i}": FigurePanel(self.policies(value), self.world(value))
            for i, value in enumerate(self.values, 1)
        }


class FinalRegretCurve(NamedTuple):
    """The final regret of a policy at each value: mean and 95 % plus-minus."""

    values: np.ndarray
    means: np.ndarray
    errors: np.ndarray
    uniform: np.ndarray  # the regret of playing all arms in turn
    misled: np.ndarray  # runs that played another arm more than the best
    guarantee: str

    def slope(self, first: int = 0, last: int | None = None) -> float:
        """Slope of log regret against log value, fitted to some of the points."""
        part = slice(first, last)
        return float(np.polyfit(np.log(self.values[part]), np.log(self.means[part]), 1)[0])

    def at(self, i: int) -> tuple[float, float]:
        return float(self.means[i]), float(self.errors[i])


def play_studies(
    run: FigureRun, studies: Mapping[str, RegretStudy], seed: int
) -> dict[str, dict[str, FinalRegretCurve]]:
    """Simulate all studies and save a table; the curves of each study, by label."""
    panels = {letter: study.panels(letter) for letter, study in studies.items()}
    sizes = {key: studies[letter].size for letter in panels for key in panels[letter]}
    every = {key: panel for of_study in panels.values() for key, panel in of_study.items()}
    run.play(every, sizes, seed=seed, checkpoints=20)
    curves = {letter: _curves(run, letter, study) for letter, study in studies.items()}
    rows = [
        (letter, studies[letter].symbol, value, label, curve.guarantee, mean, error)
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
        guarantees = {str(results.policies[label].guarantee) for results in by_value}
        scope = by_value[0].policies[label].guarantee.scope
        guarantee = guarantees.pop() if len(guarantees) == 1 else f"ε per {scope}"
        misled = np.array([count_misled_runs(results, label) for results in by_value])
        values = np.array(study.values, float)
        curves[label] = FinalRegretCurve(
            values, np.array(means), np.array(errors), uniform, misled, guarantee
        )
    return curves


def draw_studies(
    studies: Mapping[str, RegretStudy],
    curves: Mapping[str, Mapping[str, FinalRegretCurve]],
    title: str,
    extra: int = 0,
) -> figure_plots.Figure:
    """A panel for each study, both axes logarithmic; `extra` panels to the right stay empty."""
    columns = len(studies) + extra
    figure = figure_plots.new_picture(title, 6.4 * columns, 6.4)
    axes: Any = figure.subplots(1, columns, squeeze=False)[0]
    for ax, (letter, study) in zip(axes, studies.items(), strict=False):
        _draw_study(ax, curves[letter])
        ax.set_title(f"({letter}) {study.heading}", fontsize=10, loc="left")
        ax.set(xlabel=study.symbol, ylabel="regret (sum of gaps, log scale)")
        figure_plots.legend_below(ax)
    return figure


def _draw_study(ax: figure_plots.Axes, curves: Mapping[str, FinalRegretCurve]) -> None:
    for i, (label, curve) in enumerate(curves.items()):
        name = f"{label} [{curve.guarantee}]"
        look = figure_plots.line_look(i) | {"markersize": 5}
        ax.errorbar(curve.values, curve.means, curve.errors, capsize=3, label=name, **look)
    curve = next(iter(curves.values()))
    ax.plot(curve.values, curve.uniform, color="0.5", lw=1, ls=":", label="all arms in turn")
    figure_plots.frame_axes(ax)
    ax.set_xticks(curve.values, [f"{value:g}" for value in curve.values])
    ax.set_xticks([], minor=True)


def describe_ranges(curves: Mapping[str, FinalRegretCurve]) -> str:
    parts = [
        f"{label} {curve.means[0]:,.0f} to {curve.means[-1]:,.0f}"
        for label, curve in curves.items()
    ]
    return "; ".join(parts)


class CurveFamily(NamedTuple):
    """A parameter of policies and its values, the constant parameters, and the policies."""

    parameter: str
    values: list[float]
    constants: dict[str, float]
    names: tuple[str, ...]

    def __str__(self) -> str:
        return ", ".join(f"{SYMBOLS[name]} = {value:g}" for name, value in self.constants.items())

    def label(self, name: str, value: float) -> str:
        return f"{name} {SYMBOLS[self.parameter]}={value:g}"

    def panel(self, world: Environment, size: RunSize) -> FigurePanel:
        common = {"arms": world.arms, "horizon": size.horizon, **self.constants}
        policies = {
            self.label(name, value): make_policy(name, **common, **{self.parameter: value})
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
        """The largest slope of log regret against -log value, between adjacent values."""
        means, _ = self.curve(results, name)
        return float(np.max(np.diff(np.log(means)) / -np.diff(np.log(self.values))))

    def describe(self, results: Results) -> str:
        reached, grown = [], []
        for name in self.names:
            means, _ = self.curve(results, name)
            power = f"1/{SYMBOLS[self.parameter]}^{self.steepest(results, name):.1f}"
            reached.append(f"{name} {means[0]:,.0f} to {means[-1]:,.0f}")
            grown.append(f"{name} {power}")
        return f"regret from {'; '.join(reached)}. Steepest growth: {'; '.join(grown)}."


def log_grid(high: float, low: float, points: int) -> list[float]:
    """Values evenly spaced on a logarithmic scale, from high to low, to three digits."""
    return [float(f"{value:.3g}") for value in np.geomspace(high, low, points)]


def draw_curves(
    run: FigureRun, families: dict[str, CurveFamily], title: str
) -> figure_plots.Figure:
    """Final regret against the varied parameter, both axes logarithmic."""
    figure = figure_plots.new_picture(title, 13, 5.6)
    axes: Any = figure.subplots(1, len(families), sharey=True, squeeze=False)[0]
    for ax, (letter, family) in zip(axes, families.items(), strict=True):
        _draw_family(ax, run.results[letter], family)
        ax.set_title(f"({letter}) {family}", fontsize=10, loc="left")
    axes[0].set_ylabel("regret (sum of gaps)")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return figure


def _draw_family(ax: figure_plots.Axes, results: Results, family: CurveFamily) -> None:
    for i, name in enumerate(family.names):
        means, errors = family.curve(results, name)
        scope = results.policies[family.label(name, family.values[0])].guarantee.scope
        label = f"{name} [ε, δ per {scope}]"
        ax.errorbar(
            family.values, means, errors, capsize=3, label=label, **figure_plots.line_look(i)
        )
    uniform = results.horizon * float(results.environment.gaps.mean())
    ax.axhline(uniform, color="0.5", lw=1, ls=":", label="all arms in turn")
    figure_plots.frame_axes(ax)
    ax.invert_xaxis()
    ax.set_xlabel(f"{SYMBOLS[family.parameter]} (more private to the right)")
