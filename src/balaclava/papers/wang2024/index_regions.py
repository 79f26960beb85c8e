"""Wang and Zhu 2024, Figures 1 to 3: the law of an index, inside the region that is allowed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from balaclava.papers.harness.figure_policies import make_policy
from balaclava.papers.harness.figure_registry import figure
from balaclava.papers.harness.figure_run import FigureRun
from balaclava.papers.harness.figure_text import SEES, SHOWS, WHY, FigureText
from balaclava.papers.wang2024.bernoulli_instances import REFERENCE
from balaclava.papers.wang2024.regions import IndexPair, index_pair, save_regions


def of_policy(policy: Any, pulls: int, total: int, points: int = 500) -> IndexPair:
    """An arm of `pulls` rewards of 0 and 1, of which `total`, or one more, are 1."""
    return index_pair(
        f"{policy.name}, N = {pulls:,}",
        policy.epsilon,
        policy.delta,
        policy.index_law(pulls, total),
        policy.index_law(pulls, total + 1),
        points,
    )


def plain_beta(epsilon: float, delta: float, pulls: int) -> IndexPair:
    """The Beta index without the extra count k, all rewards 0 but perhaps one."""
    from scipy import stats

    laws = stats.beta(1, pulls + 1), stats.beta(2, pulls)
    return index_pair(f"Beta without k, N = {pulls:,}", epsilon, delta, *laws)


def last_outside(policy: Any, total: Callable[[int], int]) -> int:
    """The largest number of rewards, below the start phase, whose index leaves the region; or 0."""
    for pulls in range(policy.start_phase - 1, 0, -1):
        if not of_policy(policy, pulls, total(pulls), points=100).inside:
            return pulls
    return 0


@figure("wang2024-fig1", "Why DP-FTPL-Gauss is private: its index in the region", REFERENCE)
def figure_1(run: FigureRun) -> FigureText:
    policy = make_policy("dp-ftpl-gauss", arms=9, epsilon=1.0, delta=0.01)
    start = policy.start_phase
    last = last_outside(policy, lambda pulls: pulls // 2)
    panels = [of_policy(policy, n, n // 2) for n in (max(last, 1), start, 10 * start)]
    save_regions(run, panels, "Wang, Zhu 2024, Figure 1: DP-FTPL-Gauss, ε=1, δ=0.01 per decision")
    return FigureText(
        "wang2024-fig1: why DP-FTPL-Gauss is private",
        {
            SHOWS: [
                "F' leaves the allowed region when an arm has fewer than N_G rewards, begins to "
                f"lie in it at N_G = {start}, and comes closer to F as their number grows."
            ],
            SEES: [f"{panel.heading}: {panel}" for panel in panels],
            WHY: [
                f"F' is outside only up to N = {last}. The start phase of {start} is what the "
                "proof needs, not where F' enters: there the delta that it needs is far below the "
                "one allowed, and the paper's picture of N_G as the threshold is not borne out.",
                "The paper does not print the numbers of rewards of its panels (a) and (c). Ours: "
                "the largest that is outside, and ten times the start phase.",
            ],
        },
    )


@figure("wang2024-fig2", "Why DP-FTPL-Beta is private, and why it adds k", REFERENCE)
def figure_2(run: FigureRun) -> FigureText:
    policy = make_policy("dp-ftpl-beta", arms=9, epsilon=1.0, delta=0.01)
    start = policy.start_phase
    last = last_outside(policy, lambda pulls: 0)
    panels = [of_policy(policy, n, 0) for n in (max(last, 1), start, 10 * start)]
    panels += [plain_beta(1.0, 0.01, n) for n in (10, 10**4, 10**7)]
    save_regions(run, panels, "Wang, Zhu 2024, Figure 2: DP-FTPL-Beta, ε=1, δ=0.01 per decision")
    return FigureText(
        "wang2024-fig2: why DP-FTPL-Beta is private, and why it adds k",
        {
            SHOWS: [
                "With a = 1 (no reward of 1 yet): F' is outside for fewer than N_B rewards, begins "
                f"to lie inside at N_B = {start}, and is well inside beyond.",
                "Without the extra count k, F' is outside however many rewards there are.",
            ],
            SEES: [f"{panel.heading}: {panel}" for panel in panels],
            WHY: [
                f"F' is outside only up to N = {last}: N_B = {start} is what the proof needs, and "
                "is longer than necessary by far. That costs regret in figure 4.",
                "That k is needed is confirmed: without it the delta that is needed does not fall.",
                "The paper does not print the numbers of rewards of its panels (a) and (c). Ours: "
                "the largest that is outside, and ten times the start phase.",
            ],
        },
    )


@figure("wang2024-fig3", "Why DP-FTPL-New is private, and tight", REFERENCE)
def figure_3(run: FigureRun) -> FigureText:
    policy = make_policy("dp-ftpl-new", arms=9, epsilon=0.1, delta=0.0, horizon=10**6)
    panels = [of_policy(policy, n, n // 2) for n in (10, 1_000, 100_000)]
    save_regions(run, panels, "Wang, Zhu 2024, Figure 3: DP-FTPL-New, ε=0.1, δ=0 per decision")
    return FigureText(
        "wang2024-fig3: why DP-FTPL-New is private, and tight",
        {
            SHOWS: [
                "However many rewards an arm has, F' is the edge of the allowed region, so that no "
                "start phase is needed and no privacy is left unused."
            ],
            SEES: [
                f"{panel.heading}: {panel}; on the edge for {panel.touching:.1%} of the mass"
                for panel in panels
            ],
            WHY: [
                "Between the two centres, which are 1/N apart, F' leaves the lower edge and comes "
                "back to it: there it is strictly inside. Everywhere else it is the edge, as the "
                "paper says, and the whole epsilon is used.",
                "The paper does not print the numbers of rewards. Only the scale of x depends on "
                "them. The index is drawn for a horizon of a million rounds.",
            ],
        },
    )
