"""The worst-case regret over a family of losses, against one parameter, and its growth.

Losses with one fixed gap do not test a theorem on the worst case. Below the gap that is hardest for
it, a policy cannot lose much; above that gap, it learns. So each policy plays a family of gaps, and
its largest mean regret counts.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from balaclava.environments.base import Environment
from balaclava.papers.harness.figure_plots import Axes, Figure, frame_axes, line_look, new_picture
from balaclava.papers.harness.figure_run import FigurePanel, FigureRun, RunSize
from balaclava.policies.base import Policy
from balaclava.simulation.analysis.statistics import mean_of_regret
from balaclava.simulation.results import Results

# Share of the regret of even play below which a policy has learned. Points above it bend towards
# even play and are not fitted. A guess.
LEARNED_SHARE = 0.5
FEWEST_FIT_POINTS = 3  # with fewer, a slope has no check


class LossSetting(NamedTuple):
    """One value of the varied quantity: policies made for it, and the family they play on."""

    panel: str
    x: float
    horizon: int
    policies: Mapping[str, Policy]
    worlds: tuple[Environment, ...]
    ceiling: float  # the regret of even play, on the world where it is largest


class WorstPoint(NamedTuple):
    """The largest mean regret of a policy at one value."""

    x: float
    mean: float
    error: float
    ceiling: float
    bound: float | None  # the proved one

    @property
    def learned(self) -> bool:
        return self.mean < LEARNED_SHARE * self.ceiling


class FittedSlope(NamedTuple):
    """The power of a line fitted to the points at which the policy learned."""

    power: float
    error: float
    bound: float | None  # the same fit to the proved bounds, with their logarithms

    def __str__(self) -> str:
        bound = "" if self.bound is None else f" (its bound {self.bound:+.2f})"
        return f"{self.power:+.2f} ± {self.error:.2f}{bound}"


class WorstRegrets(NamedTuple):
    """All settings, and the results on each world of their families."""

    settings: list[LossSetting]
    results: list[list[Results]]

    def points(self, panel: str, label: str) -> list[WorstPoint]:
        return [
            worst_point(setting, worlds, label)
            for setting, worlds in zip(self.settings, self.results, strict=True)
            if setting.panel == panel and label in setting.policies
        ]

    def labels(self, panel: str) -> list[str]:
        of_panel = [setting.policies for setting in self.settings if setting.panel == panel]
        return list(dict.fromkeys(label for policies in of_panel for label in policies))

    def policy(self, label: str) -> Policy:
        return next(s.policies[label] for s in self.settings if label in s.policies)

    def slope(self, panel: str, label: str) -> FittedSlope | None:
        """The fitted power; None if the policy learned at too few points."""
        used = [point for point in self.points(panel, label) if point.learned]
        return fit_slope(used) if len(used) >= FEWEST_FIT_POINTS else None

    def columns(self) -> dict[str, list[Any]]:
        rows: list[dict[str, Any]] = []
        for setting, worlds in zip(self.settings, self.results, strict=True):
            for results in worlds:
                for label, policy in setting.policies.items():
                    row = {
                        "panel": setting.panel,
                        "x": setting.x,
                        "policy": label,
                        "guarantee": str(policy.guarantee),
                        "arms": results.environment.arms,
                        "horizon": setting.horizon,
                        "largest_gap": float(results.environment.gaps.max()),
                        "learning_rate_scale": policy.learning_rate_scale,
                    }
                    finals = enumerate(results.final_regret(label).tolist())
                    rows += [{**row, "repetition": i, "regret": final} for i, final in finals]
        return {name: [row[name] for row in rows] for name in rows[0]}


def worst_point(setting: LossSetting, worlds: Sequence[Results], label: str) -> WorstPoint:
    """The mean regret on the world where it is largest."""
    mean, error = max(mean_of_regret(results, label) for results in worlds)
    bound = setting.policies[label].proved_bound(worlds[0].environment, setting.horizon)
    return WorstPoint(setting.x, mean, error, setting.ceiling, bound)


def fit_slope(points: Sequence[WorstPoint]) -> FittedSlope:
    """Fit a line to the logarithms by least squares."""
    x = np.log([point.x for point in points])
    weights = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    power = weights @ np.log([point.mean for point in points])
    relative = np.array([point.error / point.mean for point in points])
    bounds = [point.bound for point in points if point.bound]
    bound = weights @ np.log(bounds) if len(bounds) == len(points) else None
    error = np.sqrt(((weights * relative) ** 2).sum())
    return FittedSlope(float(power), float(error), None if bound is None else float(bound))


def measure_settings(
    run: FigureRun,
    settings: list[LossSetting],
    *,
    repetitions: int,
    seed: int,
    checkpoints: int | np.ndarray = 1,
) -> WorstRegrets:
    panels = [
        (FigurePanel(setting.policies, world), RunSize(setting.horizon, repetitions))
        for setting in settings
        for world in setting.worlds
    ]
    played = run.simulate(panels, seed=seed, checkpoints=checkpoints)
    all_results = [list(itertools.islice(played, len(setting.worlds))) for setting in settings]
    regrets = WorstRegrets(settings, all_results)
    run.save_table(regrets.columns())
    return regrets


class PanelAxis(NamedTuple):
    title: str
    name: str
    falling: bool = False  # large values on the left
    marks: Mapping[float, str] = {}


def draw_slopes(regrets: WorstRegrets, axes: Mapping[str, PanelAxis], title: str) -> Figure:
    columns = 3 if len(axes) == 3 else 2
    rows = -(-len(axes) // columns)
    figure = new_picture(title, 3 + 5 * columns, 1.2 + 4.4 * rows)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    labels = list(dict.fromkeys(label for panel in axes for label in regrets.labels(panel)))
    looks = {label: line_look(i) for i, label in enumerate(labels)}
    handles: dict[str, Any] = {}
    for ax, (panel, axis) in zip(grid, axes.items(), strict=False):
        for label in regrets.labels(panel):
            points = regrets.points(panel, label)
            flat = len(points) == 1 and not regrets.policy(label).guarantee.private
            handles.setdefault(label, _curve(ax, points, looks[label], flat))
        _frame(ax, regrets, panel, axis)
    even = grid[0].lines[-1]
    names = [f"{label} [{guarantee_kind(regrets.policy(label))}]" for label in handles]
    figure.legend(
        [*handles.values(), even],
        [*names, "regret of even play at the largest gap"],
        loc="outside lower center",
        ncols=3,
        frameon=False,
        handlelength=3.2,
    )
    return figure


def format_value(x: float) -> str:
    """A count with its thousands, a small number in full."""
    return f"{x:,.0f}" if x >= 1.0 else f"{x:g}"


def guarantee_kind(policy: Policy) -> str:
    guarantee = policy.guarantee
    if not guarantee.private:
        return "not private"
    return f"{'ε, δ' if guarantee.delta else 'ε'} per {guarantee.scope}"


def _curve(ax: Axes, points: list[WorstPoint], look: dict[str, Any], flat: bool) -> Any:
    x, means, errors, _, _ = zip(*points, strict=True)
    if flat:  # does not depend on the varied quantity
        return ax.axhline(means[0], lw=1.2, color=look["color"], linestyle=look["linestyle"])
    return ax.errorbar(x, means, errors, capsize=2, lw=1.4, markersize=5, **look)


def _frame(ax: Axes, regrets: WorstRegrets, panel: str, axis: PanelAxis) -> None:
    settings = {s.x: s.ceiling for s in regrets.settings if s.panel == panel}
    frame_axes(ax)
    for value, name in axis.marks.items():
        ax.axvline(value, color="0.6", lw=1)
        ax.annotate(name, (value, 0.32), xycoords=("data", "axes fraction"), color="0.35")
    values = sorted(settings)
    ax.plot(values, [settings[x] for x in values], color="0.5", lw=1, ls=":")
    if values[-1] < 100 * values[0]:  # too few powers of ten to read from
        ax.set_xticks(values, [format_value(x) for x in values])
        ax.set_xticks([], minor=True)
    if axis.falling:
        ax.invert_xaxis()
    ax.set_title(f"({panel}) {axis.title}", fontsize=10, loc="left")
    ax.set(xlabel=axis.name, ylabel="largest mean regret")
