"""Wang and Zhu, Optimal learning policies for differential privacy in multi-armed bandits, 2024.

Figures 1 to 3 draw the law of one arm's index before and after one reward is changed, inside the
region that Lemma 8 allows. Figures 4 to 7 are simulations on two instances of Bernoulli arms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from balaclava.environments.base import Environment, environment
from balaclava.papers.harness.base import Desk, Panel, Size, figure
from balaclava.papers.harness.curves import Sweep, draw_sweeps, grid
from balaclava.papers.harness.scopes import make, share_of_one, whole_run_policies
from balaclava.papers.harness.text import (
    below,
    compose,
    costs,
    only,
    ranking,
    regret_panels,
    strays,
    verdicts,
)
from balaclava.papers.wang2024.regions import Neighbours, keep_regions, neighbours
from balaclava.privacy.accounting import interval_epsilon

if TYPE_CHECKING:
    from balaclava.simulation.results import Results

REFERENCE = (
    "Wang, Zhu. Optimal learning policies for differential privacy in multi-armed bandits. "
    "JMLR 2024"
)
INSTANCE_1 = tuple(round(0.3 + 0.05 * i, 2) for i in range(9))
INSTANCE_2 = tuple(round(0.3 + 0.004 * i, 3) for i in range(101))
SIZES = {"quick": Size(200_000, 5), "paper": Size(1_000_000, 100), "tiny": Size(300, 2)}
GRID_POINTS = {"quick": 11, "paper": 21, "tiny": 3}
SEED = 2024

_SHOWS, _SEES, _WHY = "What the paper shows", "What we see", "Where they differ, and why"


# Figures 1 to 3: what Lemma 8 allows.


def of_policy(policy: Any, pulls: int, total: int, points: int = 500) -> Neighbours:
    """An arm of `pulls` rewards of 0 and 1, of which `total`, or one more, are 1."""
    return neighbours(
        f"{policy.name}, N = {pulls:,}",
        policy.epsilon,
        policy.delta,
        policy.index_law(pulls, total),
        policy.index_law(pulls, total + 1),
        points,
    )


def plain_beta(epsilon: float, delta: float, pulls: int) -> Neighbours:
    """The Beta index without the extra count k, all rewards 0 but perhaps one."""
    from scipy import stats

    laws = stats.beta(1, pulls + 1), stats.beta(2, pulls)
    return neighbours(f"Beta without k, N = {pulls:,}", epsilon, delta, *laws)


def last_outside(policy: Any, total: Callable[[int], int]) -> int:
    """The largest number of rewards, below the start phase, whose index leaves the region; or 0."""
    for pulls in range(policy.start_phase - 1, 0, -1):
        if not of_policy(policy, pulls, total(pulls), points=100).inside:
            return pulls
    return 0


@figure("wang2024-fig1", "Why DP-FTPL-Gauss is private: its index in the region", REFERENCE)
def figure_1(desk: Desk) -> str:
    policy = make("dp-ftpl-gauss", arms=9, epsilon=1.0, delta=0.01)
    start = policy.start_phase
    last = last_outside(policy, lambda pulls: pulls // 2)
    panels = [of_policy(policy, n, n // 2) for n in (max(last, 1), start, 10 * start)]
    keep_regions(desk, panels, "Wang, Zhu 2024, Figure 1: DP-FTPL-Gauss, ε=1, δ=0.01 per decision")
    return compose(
        "wang2024-fig1: why DP-FTPL-Gauss is private",
        {
            _SHOWS: [
                "F' leaves the allowed region when an arm has fewer than N_G rewards, begins to "
                f"lie in it at N_G = {start}, and comes closer to F as their number grows."
            ],
            _SEES: [f"{panel.heading}: {panel}" for panel in panels],
            _WHY: [
                f"F' is outside only up to N = {last}. The start phase of {start} is what the "
                "proof needs, not where F' enters: there the delta that it needs is far below the "
                "one allowed, and the paper's picture of N_G as the threshold is not borne out.",
                "The paper does not print the numbers of rewards of its panels (a) and (c). Ours: "
                "the largest that is outside, and ten times the start phase.",
            ],
        },
    )


@figure("wang2024-fig2", "Why DP-FTPL-Beta is private, and why it adds k", REFERENCE)
def figure_2(desk: Desk) -> str:
    policy = make("dp-ftpl-beta", arms=9, epsilon=1.0, delta=0.01)
    start = policy.start_phase
    last = last_outside(policy, lambda pulls: 0)
    panels = [of_policy(policy, n, 0) for n in (max(last, 1), start, 10 * start)]
    panels += [plain_beta(1.0, 0.01, n) for n in (10, 10**4, 10**7)]
    keep_regions(desk, panels, "Wang, Zhu 2024, Figure 2: DP-FTPL-Beta, ε=1, δ=0.01 per decision")
    return compose(
        "wang2024-fig2: why DP-FTPL-Beta is private, and why it adds k",
        {
            _SHOWS: [
                "With a = 1 (no reward of 1 yet): F' is outside for fewer than N_B rewards, begins "
                f"to lie inside at N_B = {start}, and is well inside beyond.",
                "Without the extra count k, F' is outside however many rewards there are.",
            ],
            _SEES: [f"{panel.heading}: {panel}" for panel in panels],
            _WHY: [
                f"F' is outside only up to N = {last}: N_B = {start} is what the proof needs, and "
                "is longer than necessary by far. That costs regret in figure 4.",
                "That k is needed is confirmed: without it the delta that is needed does not fall.",
                "The paper does not print the numbers of rewards of its panels (a) and (c). Ours: "
                "the largest that is outside, and ten times the start phase.",
            ],
        },
    )


@figure("wang2024-fig3", "Why DP-FTPL-New is private, and tight", REFERENCE)
def figure_3(desk: Desk) -> str:
    policy = make("dp-ftpl-new", arms=9, epsilon=0.1, delta=0.0, horizon=10**6)
    panels = [of_policy(policy, n, n // 2) for n in (10, 1_000, 100_000)]
    keep_regions(desk, panels, "Wang, Zhu 2024, Figure 3: DP-FTPL-New, ε=0.1, δ=0 per decision")
    return compose(
        "wang2024-fig3: why DP-FTPL-New is private, and tight",
        {
            _SHOWS: [
                "However many rewards an arm has, F' is the edge of the allowed region, so that no "
                "start phase is needed and no privacy is left unused."
            ],
            _SEES: [
                f"{panel.heading}: {panel}; on the edge for {panel.touching:.1%} of the mass"
                for panel in panels
            ],
            _WHY: [
                "Between the two centres, which are 1/N apart, F' leaves the lower edge and comes "
                "back to it: there it is strictly inside. Everywhere else it is the edge, as the "
                "paper says, and the whole epsilon is used.",
                "The paper does not print the numbers of rewards. Only the scale of x depends on "
                "them. The index is drawn for a horizon of a million rounds.",
            ],
        },
    )


# Figures 4 and 5: regret over the rounds.


class Setting(NamedTuple):
    """One panel: where it is played, and what is promised."""

    instance: int
    epsilon: float
    delta: float = 0.0

    @property
    def world(self) -> Environment:
        means = INSTANCE_1 if self.instance == 1 else INSTANCE_2
        return environment("bernoulli", means=means)

    def __str__(self) -> str:
        delta = f", δ={self.delta:.3g}"
        return f"Instance {self.instance}, {self.world.arms} arms, ε={self.epsilon:g}{delta}"


SPLIT = "dp-ftpl-new, split"


def play_settings(
    desk: Desk, settings: dict[str, Setting], names: tuple[str, ...]
) -> dict[str, list[str]]:
    """Play the paper's policies and those of the companion; the companion's labels by panel."""
    size = SIZES[desk.scale]
    panels, companions = {}, {}
    for letter, setting in settings.items():
        world = setting.world
        common = {"arms": world.arms, "horizon": size.horizon, "epsilon": setting.epsilon}
        shown = {name: make(name, **common, delta=setting.delta) for name in names}
        equal = whole_run_policies(**common, delta=setting.delta)
        epsilon, delta = share_of_one(setting.epsilon, setting.delta, size.horizon)
        equal[SPLIT] = make("dp-ftpl-new", **common | {"epsilon": epsilon, "delta": delta})
        panels[letter] = Panel(shown | equal, world)
        companions[letter] = list(equal)
    results = desk.play(panels, size, seed=SEED)
    headings = {letter: str(setting) for letter, setting in settings.items()}
    scale = f"{size}; mean and 10 % to 90 % quantiles"
    pictures = {
        "": ({letter: list(names) for letter in settings}, ": scopes differ, see the legends"),
        "-equal-scope": (companions, " at equal scope: ε and δ hold for the whole trajectory"),
    }
    for ending, (labels, remark) in pictures.items():
        parts = {letter: only(results[letter], labels[letter]) for letter in settings}
        title = f"{_title(desk)}{remark}\n{desk.scale} scale: {scale}"
        desk.picture(regret_panels(parts, headings, title), ending)
    return companions


def _sees(
    results: dict[str, Results], settings: dict[str, Setting], names: tuple[str, ...]
) -> list[str]:
    """The ranking in each panel."""
    return [
        f"({letter}) {setting}: {ranking(only(results[letter], names))}"
        for letter, setting in settings.items()
    ]


def _equal_scope(
    results: dict[str, Results], settings: dict[str, Setting], companions: dict[str, list[str]]
) -> list[str]:
    lines = [
        "The picture that ends in -equal-scope shows the policies that protect all decisions of a "
        f"run together, at the same epsilon and delta. '{SPLIT}' is DP-FTPL-New with the epsilon "
        "and delta of one decision made so small that all of them together keep the panel's."
    ]
    return lines + [
        f"({letter}) {setting}: {ranking(only(results[letter], companions[letter]))}"
        for letter, setting in settings.items()
    ]


def _title(desk: Desk) -> str:
    return f"Wang, Zhu 2024, Figure {desk.name.removeprefix('wang2024-fig')}"


def _scale_note(desk: Desk) -> str:
    size, paper = SIZES[desk.scale], SIZES["paper"]
    if size == paper:
        return f"The scale is the paper's: {paper}."
    return f"The scale is smaller than the paper's: {size}, not {paper}."


_SCOPES = (
    "Scope: the DP-FTPL policies protect one decision at a time; the others protect all decisions "
    "of a run together, which is far more. Lower regret at a weaker promise is no surprise."
)


@figure("wang2024-fig4", "Regret under (ε, δ): DP-FTPL against DP-UCB-INT", REFERENCE)
def figure_4(desk: Desk) -> str:
    names = ("dp-ftpl-gauss", "dp-ftpl-beta", "dp-ftpl-new", "dp-ucb-int")
    *ours, baseline = names
    others = [name for name in names if name != "dp-ftpl-new"]
    pairs = ((1, 0.01), (1, math.exp(-10)), (2, 0.01), (2, math.exp(-10)))
    settings = {
        letter: Setting(instance, 1.0, delta)
        for letter, (instance, delta) in zip("abcd", pairs, strict=True)
    }
    companions = play_settings(desk, settings, names)
    results = desk.results
    loose: Any = results["a"].policies[baseline]
    strict: Any = results["b"].policies[baseline]
    claims = [
        verdicts(
            f"{name} below {baseline}",
            {letter: below(results[letter], name, [baseline]) for letter in settings},
        )
        for name in ours
    ]
    claims.append(
        verdicts(
            "dp-ftpl-new lowest of the four",
            {letter: below(results[letter], "dp-ftpl-new", others) for letter in settings},
        )
    )
    claims += [f"({letter}) {_after_start(results[letter])}" for letter in settings]
    claims += [f"({letter}) {strays(results[letter], names)}" for letter in "ab"]
    return compose(
        "wang2024-fig4: regret under (ε, δ), DP-FTPL against DP-UCB-INT",
        {
            _SHOWS: [
                "All three DP-FTPL policies are far below DP-UCB-INT, and DP-FTPL-New is the "
                "lowest. DP-FTPL-Beta pays for a long start phase, more so at the small delta, "
                "and nothing after it. DP-FTPL-Gauss grows steadily."
            ],
            _SEES: [*_sees(results, settings, names), *claims],
            "At equal scope": _equal_scope(results, settings, companions),
            _WHY: [
                _scale_note(desk),
                _SCOPES,
                *(f"({letter}) {costs(results[letter], names)}" for letter in "ab"),
                "How the paper chose the parameters of DP-UCB-INT for a given epsilon and delta is "
                "not stated. Here an accountant picks the shortest interval between refreshes "
                f"that keeps them: {loose.interval} pulls in (a) and (c), {strict.interval} in "
                "(b) and (d). The original's interval, ceil(1/ε) = 1, would come to "
                f"ε={interval_epsilon(1, loose.delta, loose.v):.3g} and "
                f"{interval_epsilon(1, strict.delta, strict.v):.3g} instead of 1.",
                "A run of DP-UCB-INT may settle on a wrong arm after unlucky noise. On Instance 1 "
                "such runs weigh heavily in its mean, and make it uncertain.",
            ],
        },
    )


def _after_start(results: Results) -> str:
    """How much of DP-FTPL-Beta's regret comes after its start phase."""
    policy: Any = results.policies["dp-ftpl-beta"]
    rounds = policy.arms * policy.start_phase
    if rounds >= results.horizon:
        return f"the start phase of dp-ftpl-beta, {rounds:,} rounds, does not end."
    mean = results.regret("dp-ftpl-beta").mean(axis=0)
    at = int(np.searchsorted(results.checkpoints, rounds))
    later = (mean[-1] - mean[at]) / mean[-1]
    return (
        f"dp-ftpl-beta after its start phase of {rounds:,} rounds: "
        f"{100 * later:.1f} % of its regret."
    )


@figure("wang2024-fig5", "Regret under pure ε: DP-FTPL-New against DP-UCB and DP-SE", REFERENCE)
def figure_5(desk: Desk) -> str:
    names = ("dp-ftpl-new", "dp-ucb", "dp-ucb-bound", "dp-se")
    _, *others = names
    pairs = ((1, 1.0), (1, 0.1), (2, 1.0), (2, 0.1))
    settings = {
        letter: Setting(instance, epsilon)
        for letter, (instance, epsilon) in zip("abcd", pairs, strict=True)
    }
    companions = play_settings(desk, settings, names)
    results = desk.results
    claims = [
        verdicts(
            "dp-ftpl-new lowest of the four",
            {letter: below(results[letter], "dp-ftpl-new", others) for letter in settings},
        )
    ]
    claims += [
        verdicts(
            f"dp-se above {name}",
            {letter: below(results[letter], name, ["dp-se"]) for letter in settings},
        )
        for name in ("dp-ucb", "dp-ucb-bound")
    ]
    claims += [f"({letter}) {strays(results[letter], names)}" for letter in "ab"]
    return compose(
        "wang2024-fig5: regret under pure ε, DP-FTPL-New against DP-UCB and DP-SE",
        {
            _SHOWS: [
                "DP-FTPL-New is far below DP-UCB, DP-UCB-BOUND and DP-SE. DP-SE, optimal in order, "
                "is worse than both UCB policies because of its constants."
            ],
            _SEES: [*_sees(results, settings, names), *claims],
            "At equal scope": _equal_scope(results, settings, companions),
            _WHY: [
                _scale_note(desk),
                _SCOPES,
                *(f"({letter}) {costs(results[letter], names)}" for letter in "ab"),
                "DP-UCB trusts its noisy sums without allowing for the noise: an unlucky first "
                "draw makes a run leave the best arm for good, and the regret of such runs is "
                "linear. Means of few repetitions say little about it. The paper does not mention "
                "this; its DP-UCB may differ in how it draws or starts.",
                "DP-SE drops nothing before its first epoch ends; where the horizon ends earlier "
                "its regret is that of playing all arms in turn.",
                "The paper gives no constants for the baselines. Here they are those of the "
                "papers they come from, DP-SE's failure probability 1/T among them.",
            ],
        },
    )


# Figures 6 and 7: regret at the end, against delta and against epsilon.


SWEPT = ("dp-ftpl-gauss", "dp-ftpl-new")


def play_sweeps(desk: Desk, sweeps: dict[str, Sweep]) -> list[str]:
    """Play the sweeps on Instance 1, draw the final regrets, and say what is seen."""
    size, world = SIZES[desk.scale], Setting(1, 0.0).world
    panels = {letter: sweep.panel(world, size) for letter, sweep in sweeps.items()}
    results = desk.play(panels, size, seed=SEED, checkpoints=20)
    title = (
        f"{_title(desk)}: Instance 1, regret after {size.horizon:,} rounds\n{desk.scale} scale: "
        f"mean ± standard error of {size.repetitions} repetitions"
    )
    desk.picture(draw_sweeps(desk, sweeps, title))
    return [
        f"({letter}) {sweep}: {sweep.describe(results[letter])}" for letter, sweep in sweeps.items()
    ]


def _why_sweeps(desk: Desk) -> list[str]:
    return [
        _scale_note(desk),
        "The paper does not state its grids; ours are evenly spaced on a logarithmic scale, and "
        "steepest slopes are between neighbouring points of it.",
        "At the dotted line all arms are played equally until the rounds end: there a curve bends "
        "because the horizon is short, not because privacy has become cheaper.",
        "Both policies promise epsilon and delta for each decision by itself.",
    ]


@figure("wang2024-fig6", "Regret against δ, at ε = 0 and ε = 0.1", REFERENCE)
def figure_6(desk: Desk) -> str:
    points = GRID_POINTS[desk.scale]
    sweeps = {
        "a": Sweep("delta", grid(0.9, 1e-4, points), {"epsilon": 0.0}, SWEPT),
        "b": Sweep("delta", grid(0.9, 1e-6, points), {"epsilon": 0.1}, SWEPT),
    }
    seen = play_sweeps(desk, sweeps)
    return compose(
        "wang2024-fig6: regret against δ, at ε = 0 and ε = 0.1",
        {
            _SHOWS: [
                "(a) ε = 0: both curves are flat down to δ = 0.01; below, DP-FTPL-Gauss grows as "
                "1/δ^2 and DP-FTPL-New as 1/δ.",
                "(b) ε = 0.1: DP-FTPL-Gauss is flat to 0.02, grows as 1/δ^2 to 0.01, and slowly "
                "beyond, where log(1/δ)/ε^2 takes over; DP-FTPL-New is lower and smooth.",
            ],
            _SEES: seen,
            _WHY: _why_sweeps(desk),
        },
    )


@figure("wang2024-fig7", "Regret against ε, at δ = 1e-10 and δ = 0.001", REFERENCE)
def figure_7(desk: Desk) -> str:
    points = GRID_POINTS[desk.scale]
    sweeps = {
        "a": Sweep("epsilon", grid(10.0, 1e-5, points), {"delta": 1e-10}, SWEPT),
        "b": Sweep("epsilon", grid(10.0, 1e-5, points), {"delta": 1e-3}, SWEPT),
    }
    seen = play_sweeps(desk, sweeps)
    return compose(
        "wang2024-fig7: regret against ε, at δ = 1e-10 and δ = 0.001",
        {
            _SHOWS: [
                "(a) δ = 1e-10: flat at first; then DP-FTPL-Gauss grows as 1/ε^2 and DP-FTPL-New "
                "as 1/ε.",
                "(b) δ = 0.001: DP-FTPL-Gauss grows likewise until 1/δ^2 is the smaller start "
                "phase, and is flat then; DP-FTPL-New is smooth and flat below ε = 0.0001.",
            ],
            _SEES: seen,
            _WHY: _why_sweeps(desk),
        },
    )
