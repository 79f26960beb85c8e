"""Wang and Zhu 2024, Figures 1 to 3: the distribution of an index, and the region Lemma 8 allows.

F is the distribution function of the index under one history, F' under a history with one reward
changed. The decision is (epsilon, delta)-private if at every x

    F <= e^epsilon F' + delta   and   1 - F <= e^epsilon (1 - F') + delta,

and both with F and F' exchanged, as either history may be the original one.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from balaclava.papers.harness.figure_plots import Axes, Figure, frame_axes, new_picture
from balaclava.papers.harness.figure_policies import make_policy
from balaclava.papers.harness.figure_registry import figure
from balaclava.papers.harness.figure_run import COMPUTED, FigureRun, FigureText
from balaclava.papers.wang2024.bernoulli_instances import WANG_2024
from balaclava.privacy.mechanisms.perturbed_index import IndexLaw
from balaclava.simulation.analysis.regret_plots import COLOURS

_OMITTED_MASS = 1e-12  # beyond the grid, at either end; far below any delta of the paper
_INVISIBLE_MASS = 1e-5  # beyond the picture, at either end: less than a pixel
_REGION_ROUNDING = 1e-11  # tolerance for rounding errors in F and F'


def allowed_range(cdf: Any, sf: Any, epsilon: float, delta: float) -> tuple[Any, Any]:
    """The lowest and the highest F'(x) that Lemma 8 allows, given F(x) and 1 - F(x)."""
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
        return allowed_range(self.cdf, self.sf, self.epsilon, self.delta)

    @property
    def needed_delta(self) -> float:
        """The smallest delta for which F' lies in the region everywhere."""
        grow = math.exp(self.epsilon)
        pairs = ((self.cdf, self.other_cdf), (self.sf, self.other_sf))
        worst = max(
            float(np.max(np.maximum(one - grow * two, two - grow * one))) for one, two in pairs
        )
        return worst if worst > _REGION_ROUNDING else 0.0

    @property
    def inside(self) -> bool:
        return self.needed_delta <= self.delta

    @property
    def touching(self) -> float:
        """The share of F's mass for which F' is on the edge of the region."""
        low, high = self.region
        on_edge = (
            np.minimum(abs(self.other_cdf - low), abs(high - self.other_cdf)) < _REGION_ROUNDING
        )
        steps = np.diff(self.cdf)
        return float(steps[on_edge[1:] & on_edge[:-1]].sum() / steps.sum())

    def __str__(self) -> str:
        verdict = "inside" if self.inside else "outside"
        needed = self.needed_delta
        needs = f"δ = {needed:.3g}" if needed else f"δ < {_REGION_ROUNDING:g}"
        return f"{verdict}, needs {needs} and has {self.delta:g}"


def index_pair(
    heading: str, epsilon: float, delta: float, law: IndexLaw, other: IndexLaw, points: int = 500
) -> IndexPair:
    """Two laws on a grid that is dense at their mass and reaches far into the tails."""
    half = points // 2
    shares = np.concatenate([np.geomspace(_OMITTED_MASS, 0.01, half), np.linspace(0.01, 0.5, half)])
    ends = [side(shares) for one in (law, other) for side in (one.ppf, one.isf)]
    x = np.unique(np.concatenate(ends))
    return IndexPair(heading, epsilon, delta, x, law.cdf(x), law.sf(x), other.cdf(x), other.sf(x))


def save_regions(run: FigureRun, panels: list[IndexPair], title: str) -> None:
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
    blocks = math.ceil(len(panels) / 3)
    picture = new_picture(title, 13, 0.8 + 5.6 * blocks)
    axes = picture.subplots(2 * blocks, 3, squeeze=False)
    for i, (letter, panel) in enumerate(zip("abcdef", panels, strict=False)):
        above, beneath = axes[2 * (i // 3), i % 3], axes[2 * (i // 3) + 1, i % 3]
        _draw_region(above, panel, np.zeros_like(panel.cdf))
        _draw_region(beneath, panel, panel.cdf)
        above.set_ylabel("F(x), F'(x): probability")
        beneath.set_ylabel("F'(x) - F(x)")
        above.set_title(f"({letter}) {panel.heading}:\n{panel}", fontsize=10, loc="left")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    picture.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    return picture


def _draw_region(ax: Axes, panel: IndexPair, minus: np.ndarray) -> None:
    from matplotlib.ticker import MaxNLocator

    blue, red = COLOURS[:2]
    low, high = panel.region
    allowed = "allowed for F' (Lemma 8)"
    ax.fill_between(panel.x, low - minus, high - minus, color=red, alpha=0.25, lw=0, label=allowed)
    ax.plot(panel.x, panel.cdf - minus, color="black", lw=1.5, label="F")
    changed = panel.other_cdf - minus
    ax.plot(panel.x, changed, color=blue, lw=1.8, ls="--", label="F', one reward changed")
    out = (panel.other_cdf < low - _REGION_ROUNDING) | (panel.other_cdf > high + _REGION_ROUNDING)
    ax.plot(panel.x, np.where(out, changed, np.nan), color=red, lw=3, label="F' outside")
    inside = (np.minimum(panel.cdf, panel.other_cdf) < 1 - _INVISIBLE_MASS) & (
        np.maximum(panel.cdf, panel.other_cdf) > _INVISIBLE_MASS
    )
    ax.set_xlim(panel.x[inside][0], panel.x[inside][-1])
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.set_xlabel("index x")
    frame_axes(ax, log=False)


def policy_pair(policy: Any, pulls: int, total: int, points: int = 500) -> IndexPair:
    """The index of an arm with `pulls` rewards in {0, 1} that sum to `total`, or to one more."""
    return index_pair(
        f"{policy.name}, N = {pulls:,}",
        policy.epsilon,
        policy.delta,
        policy.index_law(pulls, total),
        policy.index_law(pulls, total + 1),
        points,
    )


def plain_beta(epsilon: float, delta: float, pulls: int) -> IndexPair:
    """The Beta index without the extra count k, after rewards of 0, or one 1 and else 0."""
    from scipy import stats

    laws = stats.beta(1, pulls + 1), stats.beta(2, pulls)
    return index_pair(f"Beta without k, N = {pulls:,}", epsilon, delta, *laws)


def last_outside(policy: Any, total: Callable[[int], int]) -> int:
    """The largest number of rewards, below the start phase, whose index leaves the region; or 0."""
    for pulls in range(policy.start_phase - 1, 0, -1):
        if not policy_pair(policy, pulls, total(pulls), points=100).inside:
            return pulls
    return 0


@figure(
    "wang2024-fig1", "Why DP-FTPL-Gauss is private: its index in the region", WANG_2024, COMPUTED
)
def figure_1(run: FigureRun) -> FigureText:
    policy = make_policy("dp-ftpl-gauss", arms=9, epsilon=1.0, delta=0.01)
    start = policy.start_phase
    last = last_outside(policy, lambda pulls: pulls // 2)
    panels = [policy_pair(policy, n, n // 2) for n in (max(last, 1), start, 10 * start)]
    save_regions(run, panels, "Wang, Zhu 2024, Figure 1: DP-FTPL-Gauss, ε=1, δ=0.01 per decision")
    return run.text(start=start, last=last, panels=panels)


@figure("wang2024-fig2", "Why DP-FTPL-Beta is private, and why it adds k", WANG_2024, COMPUTED)
def figure_2(run: FigureRun) -> FigureText:
    policy = make_policy("dp-ftpl-beta", arms=9, epsilon=1.0, delta=0.01)
    start = policy.start_phase
    last = last_outside(policy, lambda pulls: 0)
    panels = [policy_pair(policy, n, 0) for n in (max(last, 1), start, 10 * start)]
    panels += [plain_beta(1.0, 0.01, n) for n in (10, 10**4, 10**7)]
    save_regions(run, panels, "Wang, Zhu 2024, Figure 2: DP-FTPL-Beta, ε=1, δ=0.01 per decision")
    return run.text(start=start, last=last, panels=panels)


@figure("wang2024-fig3", "Why DP-FTPL-New is private, and tight", WANG_2024, COMPUTED)
def figure_3(run: FigureRun) -> FigureText:
    policy = make_policy("dp-ftpl-new", arms=9, epsilon=0.1, delta=0.0, horizon=10**6)
    panels = [policy_pair(policy, n, n // 2) for n in (10, 1_000, 100_000)]
    save_regions(run, panels, "Wang, Zhu 2024, Figure 3: DP-FTPL-New, ε=0.1, δ=0 per decision")
    return run.text(panels=panels)
