"""Asi, Raman, Talwar 2025, Lemma 5.1: regret on losses that turn after a policy has settled.

Losses are (1/2, 1); in the second sequence, the second loss turns to 0 after tau rounds. The lemma
has two conditions on the sequence that does not turn, each with probability 1/2. The policy plays
the second arm a share gamma of all rounds, and at most p times in the p / gamma rounds after tau.
Here 2 gamma tau <= p and p <= gamma (T - tau). Then p changed losses have little effect, so the
policy hardly sees the turn. `bl.bounds.early_commitment` has the bound and its proof.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.kernels import kernel
from balaclava.environments.hard_losses import fast_commit
from balaclava.environments.switching import Switching
from balaclava.papers.asi2025.loss_families import ASI_2025, BASELINES, TUNED, private
from balaclava.papers.harness.figure_plots import Figure, frame_axes, line_look, new_picture
from balaclava.papers.harness.figure_registry import figure
from balaclava.papers.harness.figure_run import FigureRun, FigureText
from balaclava.papers.harness.final_regret_curves import log_grid
from balaclava.papers.harness.worst_case_slopes import (
    LossSetting,
    WorstRegrets,
    guarantee_kind,
    measure_settings,
)
from balaclava.simulation.results import Results
from balaclava.theory.bounds import early_commitment


class TurnPlan(NamedTuple):
    horizon: int
    epsilons: int  # how many
    turns: int  # how many rounds of the turn are tried
    repetitions: int


TURN_PLANS = {
    "quick": TurnPlan(100_000, 6, 6, 8),
    "paper": TurnPlan(1_000_000, 7, 8, 50),
    "tiny": TurnPlan(400, 3, 3, 4),
}
TURN_LIST = ("dp-htinf", "dp-tsallis-inf", "dp-exp3", f"dp-exp3{TUNED}", "dp-ftpl", "ldp-exp3")
SETTLING_LIST = ("dp-imed", "dp-klucb")  # learn from rewards, and settle early
TURN_EPSILON = 0.1  # while the round of the turn varies; our choice
# Candidates for p times epsilon, around the 1/2 of `lemma_line`.
_CHANGED_LOSSES = (0.25, 0.5, 1.0, 2.0)
# Candidates for gamma, as parts of the median share of the second arm.
_GAMMA_PARTS = (1.0, 0.5, 0.25)


@kernel(borrows=True)
def draw_gain(world: Any, t: int, arm: int, rng: Any) -> float:
    return 1.0 - float(world.before[arm] if t <= world.switch else world.after[arm])


class TurningRewards(Switching):
    """The same losses for policies that learn from rewards: 1 minus the loss."""

    feedback = "reward"
    draw = staticmethod(draw_gain)

    def own_losses(self, pulls: np.ndarray, totals: np.ndarray) -> np.ndarray:
        losses: np.ndarray = pulls.sum(axis=-1) - totals
        return losses


def turning(horizon: int, switch: int) -> Switching:
    """Losses (1/2, 1); the second turns to 0 after `switch` rounds."""
    return dataclasses.replace(fast_commit(horizon, 1.0), switch=switch)


def turn_setting(panel: str, x: float, epsilon: float, world: Switching) -> LossSetting:
    parameters = {"arms": 2, "horizon": world.horizon, "epsilon": epsilon}
    labels = SETTLING_LIST if isinstance(world, TurningRewards) else (*TURN_LIST, *BASELINES)
    policies = {label: private(label, **parameters) for label in labels}
    even = world.horizon * float(world.means.mean() - world.means.min())
    return LossSetting(panel, x, world.horizon, policies, (world,), even)


def turn_settings(panel: str, x: float, epsilon: float, world: Switching) -> list[LossSetting]:
    """Both kinds of policies on the same losses."""
    gains = TurningRewards(**world.parameters)
    return [turn_setting(panel, x, epsilon, each) for each in (world, gains)]


def lemma_line(horizon: int, epsilon: float) -> float:
    """The least regret that the lemma allows a policy under its conditions, p = 1/(2 epsilon).

    The turn is that of `fast_commit`.

    >>> round(lemma_line(100_000, 0.1))
    118
    """
    changed, switch = 0.5 / epsilon, fast_commit(horizon, epsilon).switch
    high = min(0.5, changed / (2.0 * max(switch, 1)))
    low = min(changed / (horizon - switch), high)
    shares = np.geomspace(low, high, 400).tolist()
    return min(
        early_commitment(
            horizon=horizon, epsilon=epsilon, share=share, changed=changed, switch=switch
        )
        for share in shares
    )


class Condition(NamedTuple):
    """A turn at which the lemma's conditions hold, and the regret it then requires."""

    switch: int
    share: float
    changed: float
    bound: float


def strongest_condition(
    results: Results, label: str, epsilon: float, switches: list[int]
) -> Condition | None:
    """The turn at which the lemma requires most; None if its conditions never hold.

    `results` are on the losses that do not turn. There regret is half the pulls of the second arm,
    at every checkpoint.
    """
    T = results.horizon
    pulls = 2.0 * results.regret(label)
    usual = float(np.median(pulls[:, -1])) / T
    rounds = np.concatenate([[0], results.checkpoints])
    paths = np.hstack([np.zeros((len(pulls), 1)), pulls])
    conditions = []
    for switch in switches:
        for part in _GAMMA_PARTS:
            for times in _CHANGED_LOSSES:
                share, changed = part * usual, times / epsilon
                end = switch + changed / share if share else math.inf
                if not (share <= 0.5 and 2.0 * share * switch <= changed and end <= T):
                    continue
                window = [np.interp(end, rounds, p) - np.interp(switch, rounds, p) for p in paths]
                if np.mean(np.array(window) <= changed) >= 0.5:
                    bound = early_commitment(
                        horizon=T, epsilon=epsilon, share=share, changed=changed, switch=switch
                    )
                    conditions.append(Condition(switch, share, changed, bound))
    return max(conditions, key=lambda one: one.bound, default=None)


@figure("asi2025-lemma51", "Losses that turn when a private policy has settled", ASI_2025)
def lemma_51(run: FigureRun) -> FigureText:
    plan = TURN_PLANS[run.scale]
    T = plan.horizon
    epsilons = log_grid(1.0, 1.0 / math.sqrt(T), plan.epsilons)
    turns = [round(x) for x in np.geomspace(T / 1000, T / 3, plan.turns)]
    panels = [
        *(turn_settings("a", e, e, turning(T, T)) for e in epsilons),
        *(turn_settings("b", e, e, fast_commit(T, e)) for e in epsilons),
        *(turn_settings("d", x, TURN_EPSILON, turning(T, x)) for x in (*turns, T)),
    ]
    settings = [setting for panel in panels for setting in panel]
    checkpoints = np.unique(np.geomspace(1, T, 300).round().astype(np.int64))
    regrets = measure_settings(
        run, settings, repetitions=plan.repetitions, seed=ASI_2025.seed, checkpoints=checkpoints
    )
    line = [lemma_line(T, epsilon) for epsilon in epsilons]
    run.save_picture(_draw_turn(regrets, epsilons, line, run.scale_words, plan))
    return run.text(
        line=list(zip(epsilons, line, strict=True)),
        statements=_turn_lines(regrets, turns, line),
        turn_epsilon=TURN_EPSILON,
    )


def _turn_lines(regrets: WorstRegrets, turns: list[int], line: Sequence[float]) -> list[str]:
    lines, above, conditions = [], [], []
    for label in regrets.labels("a"):
        never = next(r[0] for r in reversed(regrets.results) if label in r[0].policies)
        pairs = list(zip(regrets.points("a", label), regrets.points("b", label), strict=True))
        figures = "; ".join(f"ε = {a.x:g}: {a.mean:,.0f} and {b.mean:,.0f}" for a, b in pairs)
        lines.append(f"{label}, regret without the turn and with it: {figures}.")
        if not regrets.policy(label).guarantee.private:
            continue
        if all(max(a.mean, b.mean) > v for (a, b), v in zip(pairs, line, strict=True)):
            above.append(label)
        case = strongest_condition(never, label, TURN_EPSILON, turns)
        if case is not None:
            means = {point.x: point.mean for point in regrets.points("d", label)}
            worst = max(means[case.switch], means[never.horizon])
            conditions.append(
                f"{label} for a turn after {case.switch:,} rounds, γ = {case.share:.2g} and p = "
                f"{case.changed:g}: at least {case.bound:,.0f} is required, {worst:,.0f} lost"
            )
    lines.append(f"At every ε the larger of the two is above the line for {', '.join(above)}.")
    lines.append(f"The lemma's conditions hold for: {'; '.join(conditions) or 'none of them'}.")
    return lines


def _draw_turn(
    regrets: WorstRegrets, epsilons: list[float], line: list[float], scale: str, plan: TurnPlan
) -> Figure:
    T = plan.horizon
    title = (
        f"Asi, Raman, Talwar 2025, Lemma 5.1, measured: losses (1/2, 1) for T = {T:,} rounds; the "
        f"second may turn to 0\n{scale}: mean of {plan.repetitions} repetitions"
    )
    picture = new_picture(title, 13, 10)
    axes = picture.subplots(2, 2).ravel()
    labels = regrets.labels("a")
    for i, label in enumerate(labels):
        a, b, d = ([p.mean for p in regrets.points(panel, label)] for panel in "abd")
        turns = [point.x for point in regrets.points("d", label)]
        name = f"{label} [{guarantee_kind(regrets.policy(label))}]"
        curves = (
            (axes[0], epsilons, a),
            (axes[1], epsilons, b),
            (axes[2], epsilons, np.maximum(a, b)),
            (axes[3], turns[:-1], d[:-1]),
            (axes[3], turns[-1:], d[-1:]),
        )
        for ax, x, y in curves:
            ax.plot(x, y, lw=1.4, markersize=5, label=name, **line_look(i))
    axes[2].plot(epsilons, line, color="0.4", lw=4, alpha=0.5, label="the lemma's line")
    titles = (
        "(a) the losses do not turn",
        "(b) they turn after sqrt(T / (2 ε)) / 8 rounds (regret below 10 is cut off)",
        "(c) the larger of (a) and (b)",
        f"(d) ε = {TURN_EPSILON:g}: they turn early, late, or not at all (rightmost)",
    )
    for ax, title in zip(axes, titles, strict=True):
        ax.set_title(title, fontsize=10, loc="left")
        frame_axes(ax)
        ax.set_ylim(10.0, 0.5 * T)
        ax.set(xlabel="ε (more private to the right)", ylabel="regret")
    for ax in axes[:3]:
        ax.invert_xaxis()
    axes[3].set_xlabel("rounds before the turn")
    axes[3].set_yscale("symlog", linthresh=100.0)
    axes[3].set_ylim(-0.5 * T, 0.5 * T)
    handles, names = axes[2].get_legend_handles_labels()
    picture.legend(
        handles, names, loc="outside lower center", ncols=3, frameon=False, handlelength=3.2
    )
    return picture
