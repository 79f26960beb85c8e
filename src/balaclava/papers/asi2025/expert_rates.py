"""Asi, Raman, Talwar 2025: the rows of Table 1 with experts, which Table 2 compares, measured."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from balaclava.advice.choose.expert_bounds import recommend_experts
from balaclava.environments.expert_advice import Advice
from balaclava.environments.hard_losses import hidden_best
from balaclava.errors import ParameterError
from balaclava.papers.asi2025 import loss_families
from balaclava.papers.harness.figure_policies import make_policy
from balaclava.papers.harness.figure_registry import figure
from balaclava.papers.harness.figure_run import FigureRun, FigureText
from balaclava.papers.harness.worst_case_slopes import (
    LEARNED_SHARE,
    LossSetting,
    PanelAxis,
    WorstRegrets,
    draw_slopes,
    format_value,
    measure_settings,
)
from balaclava.policies.base import Policy
from balaclava.simulation.analysis.statistics import mean_of_regret


class ExpertPlan(NamedTuple):
    experts: int
    horizon: int
    epsilons: tuple[float, ...]
    expert_counts: tuple[int, ...]
    horizons: tuple[int, ...]
    repetitions: int


EXPERT_PLANS = {
    "quick": ExpertPlan(
        16,
        100_000,
        (1.0, 0.3, 0.1, 0.03, 0.01, 0.003),
        (4, 16, 64, 256),
        (10_000, 30_000, 100_000, 300_000),
        3,
    ),
    "paper": ExpertPlan(
        16,
        1_000_000,
        (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003),
        (4, 16, 64, 256, 1024),
        (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000),
        10,
    ),
    "tiny": ExpertPlan(4, 400, (1.0, 0.3, 0.1), (2, 4, 8), (100, 200, 400), 2),
}
# Our choices: the paper has no experiments.
EXPERT_ARMS = 2
EXPERT_EPSILON = 1.0  # in panels (b) and (c)
EXPERT_DELTA = 1e-5  # of dp-exp4
EXPERT_LIST = ("dp-htinf-experts", "ldp-exp4", "dp-exp4")


def one_good_expert(experts: int, horizon: int, gap: float) -> Advice:
    """Advice with one good expert: the last one always names the last arm, which is the best."""
    losses = hidden_best(EXPERT_ARMS, horizon, gap=gap)
    arms = np.arange(experts) % (EXPERT_ARMS - 1)
    arms[-1] = EXPERT_ARMS - 1
    return Advice(losses=losses, advice=np.eye(EXPERT_ARMS)[arms])


class Refusals(NamedTuple):
    """The values at which a policy was refused, by label and panel."""

    places: dict[str, dict[str, list[str]]]

    def add(self, label: str, panel: str, x: float) -> None:
        self.places.setdefault(label, {}).setdefault(panel, []).append(format_value(x))

    def __str__(self) -> str:
        parts = [
            f"{label} at " + ", ".join(f"({panel}) {'; '.join(xs)}" for panel, xs in where.items())
            for label, where in self.places.items()
        ]
        return f"Refused, since the horizon is too short: {', '.join(parts) or 'nothing'}."


def expert_setting(
    panel: str, x: float, experts: int, horizon: int, epsilon: float, refusals: Refusals
) -> LossSetting:
    """Each policy as printed, and at the rate with the least bound, if it accepts them."""
    parameters: dict[str, Any] = {
        "arms": EXPERT_ARMS,
        "experts": experts,
        "horizon": horizon,
        "epsilon": epsilon,
        "delta": EXPERT_DELTA,
    }
    candidates = recommend_experts(**parameters, tuned=True).candidates
    scales = {one.policy: one.learning_rate_scale for one in candidates if one.bound is not None}
    policies: dict[str, Policy] = {}
    for name in EXPERT_LIST:
        rates = {name: 1.0}
        if scales.get(name, 1.0) != 1.0:
            rates[name + loss_families.TUNED] = scales[name]
        for label, scale in rates.items():
            try:
                policies[label] = make_policy(name, **parameters, learning_rate_scale=scale)
            except ParameterError:
                refusals.add(label, panel, x)
    return _among_experts(panel, x, policies, experts, horizon, epsilon)


def expert_baseline(panel: str, x: float, experts: int, horizon: int) -> LossSetting:
    """The policy without privacy, on the losses that are hard for it."""
    policy = make_policy("exp4", arms=EXPERT_ARMS, experts=experts, horizon=horizon)
    return _among_experts(panel, x, {"exp4": policy}, experts, horizon, None)


def _among_experts(
    panel: str,
    x: float,
    policies: Mapping[str, Policy],
    experts: int,
    horizon: int,
    epsilon: float | None,
) -> LossSetting:
    start = loss_families.hardest(experts, horizon, epsilon)
    worlds = tuple(one_good_expert(experts, horizon, gap) for gap in loss_families.gaps(start))
    ceiling = loss_families.LARGEST_GAP * horizon * (1.0 - 1.0 / experts)
    return LossSetting(panel, x, horizon, policies, worlds, ceiling)


def recommendations(regrets: WorstRegrets) -> list[str]:
    """The policies that the bounds recommend, next to the least measured regret."""
    lines = []
    for panel, symbol in (("a", "ε"), ("b", "N"), ("c", "T")):
        parts = []
        for one, worlds in zip(regrets.settings, regrets.results, strict=True):
            if one.panel != panel or "exp4" in one.policies:
                continue
            first: Any = next(iter(one.policies.values()))
            question = (first.arms, first.experts, one.horizon, first.epsilon)
            means = {
                label: max(mean_of_regret(results, label)[0] for results in worlds)
                for label in one.policies
            }
            printed = recommend_experts(*question, delta=EXPERT_DELTA).policy
            tuned = recommend_experts(*question, delta=EXPERT_DELTA, tuned=True).policy
            least = min(means, key=lambda label: means[label])
            if means[least] > LEARNED_SHARE * one.ceiling:
                least = "none learns"
            parts.append(f"{symbol} = {format_value(one.x)}: {printed}, {tuned}; {least}")
        lines.append(
            f"({panel}) the least bound as printed, the least bound tuned; the least regret "
            f"measured. {'. '.join(parts)}."
        )
    return lines


@figure("asi2025-table2", "Regret with experts, against N, ε and T", loss_families.ASI_2025)
def table_2(run: FigureRun) -> FigureText:
    plan, refusals = EXPERT_PLANS[run.scale], Refusals({})
    N, T, e = plan.experts, plan.horizon, EXPERT_EPSILON
    settings = [
        *(expert_setting("a", x, N, T, x, refusals) for x in plan.epsilons),
        *(expert_setting("b", x, x, T, e, refusals) for x in plan.expert_counts),
        *(expert_setting("c", x, N, x, e, refusals) for x in plan.horizons),
        expert_baseline("a", plan.epsilons[0], N, T),
        *(expert_baseline("b", x, x, T) for x in plan.expert_counts),
        *(expert_baseline("c", x, N, x) for x in plan.horizons),
    ]
    regrets = measure_settings(
        run, settings, repetitions=plan.repetitions, seed=loss_families.ASI_2025.seed
    )
    axes = {
        "a": PanelAxis(f"{N} experts, T = {T:,}", "ε (more private to the right)", falling=True),
        "b": PanelAxis(f"T = {T:,}, ε = {e:g}", "number of experts N"),
        "c": PanelAxis(f"{N} experts, ε = {e:g}", "rounds T"),
    }
    title = (
        "Asi, Raman, Talwar 2025, Table 2, measured: the largest mean regret where "
        f"one expert of N names the better of {EXPERT_ARMS} arms\n{run.scale_words}: mean ± "
        f"95 % interval of {plan.repetitions} repetitions; 'tuned' is at the rate whose proved "
        "bound is least"
    )
    run.save_picture(draw_slopes(regrets, axes, title))
    slopes = [line for panel in axes for line in loss_families.describe_slopes(regrets, panel)]
    return run.text(
        statements=[*slopes, str(refusals)],
        recommendations=recommendations(regrets),
        mixing=2.0 * math.log(EXPERT_ARMS * T),
        delta=EXPERT_DELTA,
    )
