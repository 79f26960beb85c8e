"""Asi, Raman, Talwar 2025: the rows of Table 1 without experts, measured."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from balaclava.papers.asi2025.loss_families import (
    ASI_2025,
    BASELINES,
    LARGEST_GAP,
    TUNED,
    describe_slopes,
    family,
    private,
)
from balaclava.papers.harness import worst_case_slopes
from balaclava.papers.harness.figure_registry import figure
from balaclava.papers.harness.figure_run import FigureRun, FigureText
from balaclava.papers.harness.final_regret_curves import log_grid


class TablePlan(NamedTuple):
    arms: int
    horizon: int  # in panel (a)
    epsilons: int  # how many
    side_horizon: int  # in panel (b)
    arm_counts: tuple[int, ...]
    horizons: tuple[int, ...]
    long_horizons: tuple[int, ...]  # in panel (d)
    repetitions: int

    @property
    def threshold(self) -> float:
        """T^(-1/2): below it, no policy with local privacy learns."""
        return 1.0 / math.sqrt(self.horizon)


TABLE_PLANS = {
    "quick": TablePlan(
        4,
        200_000,
        9,
        100_000,
        (4, 8, 16, 32, 64),
        (10_000, 30_000, 100_000, 300_000),
        (20_000, 80_000, 320_000, 1_280_000),
        6,
    ),
    "paper": TablePlan(
        10,
        1_000_000,
        10,
        1_000_000,
        (4, 8, 16, 32, 64),
        (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000),
        (20_000, 200_000, 2_000_000, 20_000_000),
        10,
    ),
    "tiny": TablePlan(2, 400, 3, 400, (2, 3, 4), (100, 200, 400), (100, 200, 400), 2),
}
SIDE_EPSILON = 0.25  # in panels (b) and (c); our choice
SHORT_LIST = ("dp-htinf", "dp-tsallis-inf", f"dp-exp3{TUNED}", f"ldp-exp3{TUNED}")
FULL_LIST = (*SHORT_LIST, "dp-exp3", "dp-ftpl", "ldp-exp3")


def bandit_setting(
    panel: str, x: float, labels: Sequence[str], arms: int, horizon: int, epsilon: float | None
) -> worst_case_slopes.LossSetting:
    """The policies for this epsilon, on the family that is hard at it."""
    parameters = {"arms": arms, "horizon": horizon, "epsilon": epsilon}
    policies = {label: private(label, **parameters) for label in labels}
    ceiling = LARGEST_GAP * horizon * (1.0 - 1.0 / arms)
    return worst_case_slopes.LossSetting(
        panel, x, horizon, policies, family(arms, horizon, epsilon), ceiling
    )


def settings_of_table_1(plan: TablePlan) -> list[worst_case_slopes.LossSetting]:
    """Regret against epsilon, K and T, and against T at epsilon = T^(-1/2)."""
    epsilons = log_grid(1.0, plan.threshold / 10.0, plan.epsilons)
    side = SIDE_EPSILON
    settings = [bandit_setting("a", e, FULL_LIST, plan.arms, plan.horizon, e) for e in epsilons]
    settings.append(bandit_setting("a", 1.0, BASELINES, plan.arms, plan.horizon, None))
    for arms in plan.arm_counts:
        settings.append(bandit_setting("b", arms, SHORT_LIST, arms, plan.side_horizon, side))
        settings.append(bandit_setting("b", arms, BASELINES, arms, plan.side_horizon, None))
    for horizon in plan.horizons:
        settings.append(bandit_setting("c", horizon, SHORT_LIST, plan.arms, horizon, side))
        settings.append(bandit_setting("c", horizon, BASELINES, plan.arms, horizon, None))
    for horizon in plan.long_horizons:
        epsilon = 1.0 / math.sqrt(horizon)
        settings.append(bandit_setting("d", horizon, SHORT_LIST, 2, horizon, epsilon))
    return settings


def separation(regrets: worst_case_slopes.WorstRegrets, plan: TablePlan) -> list[str]:
    """Central against local privacy, at each epsilon up to 0.1 and at the threshold."""
    ours, theirs = "dp-htinf", f"ldp-exp3{TUNED}"
    pairs = zip(regrets.points("a", ours), regrets.points("a", theirs), strict=True)
    small = [(a, b) for a, b in pairs if a.x <= 0.1]
    sure = [a.x for a, b in small if a.mean + math.hypot(a.error, b.error) < b.mean]
    figures = "; ".join(f"ε = {a.x:g}: {a.mean:,.0f} and {b.mean:,.0f}" for a, b in small)
    lines = [
        f"(a) {ours} and {theirs} at ε up to 0.1: {figures}. {ours} is below, with "
        f"95 % confidence, at {len(sure)} of {len(small)}."
    ]
    for label in (ours, theirs):
        learned = [point.x for point in regrets.points("a", label) if point.learned]
        least = f"down to ε = {min(learned):g}" if learned else "nowhere"
        lines.append(
            f"(a) {label} stays below {worst_case_slopes.LEARNED_SHARE:.0%} of even play {least}; "
            f"T^(-1/2) = {plan.threshold:.3g}."
        )
    for label in (ours, theirs):
        points = regrets.points("d", label)
        shares = [point.mean / point.ceiling for point in points]
        falls = all(np.diff(shares) < 0) and shares[-1] < worst_case_slopes.LEARNED_SHARE
        lines.append(
            f"(d) {label} at ε = T^(-1/2), regret as a share of even play, T from "
            f"{points[0].x:,.0f} to {points[-1].x:,.0f}: "
            f"{', '.join(f'{share:.0%}' for share in shares)}: "
            f"{'sublinear' if falls else 'not seen to be sublinear'}."
        )
    return lines


def few_arms_power(plan: TablePlan) -> float:
    """Why the power of K is above 1/2 for few arms: that of sqrt(K - 1) (1 - 1/K)."""
    K = np.array(plan.arm_counts, float)
    return float(np.polyfit(np.log(K), np.log(np.sqrt(K - 1.0) * (1.0 - 1.0 / K)), 1)[0])


@figure("asi2025-table1", "Regret against ε, K and T: central against local privacy", ASI_2025)
def table_1(run: FigureRun) -> FigureText:
    plan = TABLE_PLANS[run.scale]
    regrets = worst_case_slopes.measure_settings(
        run, settings_of_table_1(plan), repetitions=plan.repetitions, seed=ASI_2025.seed
    )
    axes = {
        "a": worst_case_slopes.PanelAxis(
            f"{plan.arms} arms, T = {plan.horizon:,}",
            "ε (more private to the right)",
            falling=True,
            marks={plan.threshold: " T^(-1/2)"},
        ),
        "b": worst_case_slopes.PanelAxis(
            f"T = {plan.side_horizon:,}, ε = {SIDE_EPSILON:g}", "number of arms K"
        ),
        "c": worst_case_slopes.PanelAxis(f"{plan.arms} arms, ε = {SIDE_EPSILON:g}", "rounds T"),
        "d": worst_case_slopes.PanelAxis("2 arms, ε = T^(-1/2)", "rounds T"),
    }
    title = (
        "Asi, Raman, Talwar 2025, Table 1, measured: the largest mean regret on losses with "
        f"one arm better by some gap\n{run.scale_words}: mean ± 95 % interval of "
        f"{plan.repetitions} repetitions; 'tuned' is at the rate whose proved bound is least"
    )
    run.save_picture(worst_case_slopes.draw_slopes(regrets, axes, title))
    slopes = [line for panel in axes for line in describe_slopes(regrets, panel)]
    return run.text(
        statements=[*slopes, *separation(regrets, plan)],
        learned=worst_case_slopes.LEARNED_SHARE,
        few_arms_power=few_arms_power(plan),
        mixing=2.0 * math.log(plan.arms * plan.horizon),
    )
