"""Asi, Raman, Talwar, Faster rates for private adversarial bandits, 2025.

The paper has one figure, of how EXP3 leaks, and two kinds of theorems: upper bounds for bandits
and for bandits with experts (its Table 1), and a lower bound for policies that settle early
(Lemma 5.1). The theorems are measured here, on the losses that are hardest for each setting.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from balaclava._core.kernels import compiled
from balaclava.environments.base import Environment
from balaclava.environments.hard_losses import hidden_best
from balaclava.papers.harness.base import Desk, figure
from balaclava.papers.harness.curves import grid
from balaclava.papers.harness.scopes import make
from balaclava.papers.harness.slopes import (
    LEARNED,
    LEAST_POINTS,
    Axis,
    Measured,
    Setting,
    draw_slopes,
    measure,
)
from balaclava.papers.harness.text import compose
from balaclava.policies.classic.exp3 import Exp3
from balaclava.privacy.randomness import seeded

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from balaclava.policies.base import Policy

REFERENCE = "Asi, Raman, Talwar. Faster rates for private adversarial bandits. ICML 2025"
SEED = 2025

SHOWS, SEES, WHY = "What the paper shows", "What we see", "Where they differ, and why"
NO_NUMBERS = (
    "The paper proves this and measures nothing: horizons, numbers of arms and losses are our "
    "choice."
)
MIXING = (
    "At the tuned rate the local policies pay for their mixing, in proportion to log(K T) / ε, "
    "rather than for the variance of the noise, 2 / ε^2, as long as ε is above 1 / {:.0f}. There "
    "regret grows as the square root of 1/ε; the proved 1/ε is for smaller ε."
)


# Figure 1: what one loss does to EXP3.

FORCED_ROUNDS = {"quick": 1_000_000, "paper": 1_000_000, "tiny": 100_001}
RATE = 1e-4  # both eta and gamma


def make_forced(
    begin: Callable[..., Any], choose: Callable[..., Any], learn: Callable[..., Any]
) -> Callable[..., Any]:
    """A policy that notes the chance of what it drew, made to play arms 1, 0, 1, 0, ..."""

    def forced(params: Any, first_loss: float, rng: Any, chances: np.ndarray) -> None:
        state = begin(params)
        for t in range(chances.size):
            _, number = choose(params, state, t + 1, None, rng)
            arm = 1 - t % 2
            row = number % state.pending.numbers.size
            state.pending.notes[row, 0] = state.chances[arm]  # as if it had drawn this arm
            chances[t] = state.chances[1]
            learn(params, state, t + 1, arm, first_loss if t == 0 else 1.0, number, rng)

    return forced


def exp3_chances(first_loss: float, rounds: int, rate: float = RATE) -> np.ndarray:
    """The chance of the second arm in each round: all losses 1, but its first is `first_loss`."""
    policy = Exp3(arms=2, eta=rate, gamma=rate, outstanding=1)
    chances = np.zeros(rounds)
    play = compiled(make_forced, *policy.kernels[:3])
    play(policy.constants(), first_loss, seeded(SEED), chances)
    return chances


@figure("asi2025-fig1", "Why EXP3 is not private: one loss decides where it ends", REFERENCE)
def figure_1(desk: Desk) -> str:
    rounds = FORCED_ROUNDS[desk.scale]
    changed, plain = exp3_chances(0.0, rounds), exp3_chances(1.0, rounds)
    loss = np.log(changed / plain)
    shown = np.unique(np.geomspace(1, rounds, 2_000).astype(int)) - 1
    desk.table({"t": shown, "P": changed[shown], "P_prime": plain[shown], "log_ratio": loss[shown]})
    desk.picture(_draw_leak(changed, plain, loss))
    apart = int(np.argmax(np.abs(loss) > 1.0))
    forced = np.where(np.arange(rounds) % 2 == 0, loss, np.log1p(-changed) - np.log1p(-plain))
    at = [t for t in (2, 10_000, 100_000) if t < rounds]
    return compose(
        "asi2025-fig1: why EXP3 is not private",
        {
            SHOWS: [
                f"Two arms, η = γ = {RATE:g}, arms forced to alternate. One loss, the first, is 0 "
                "instead of 1. The chance of the second arm tends to 1 - γ/2 in one case and to "
                "γ/2 in the other: what a round gives away is not bounded by a multiple of η."
            ],
            SEES: [
                f"P ends at {changed[-1]:.5f} with the loss of 0 and at {plain[-1]:.3g} with the "
                f"loss of 1; 1 - γ/2 = {1 - RATE / 2:.5f}, γ/2 = {RATE / 2:.3g}.",
                "Log-ratio of the two chances, rounds counted from 0: "
                + "; ".join(f"{loss[t]:.3g} at t = {t:,}" for t in at)
                + f". It first exceeds 1 at t = {apart:,}.",
                f"The largest log-ratio is {loss.max() / RATE:,.0f} times η.",
            ],
            WHY: [
                "Nothing differs. The chances come from exp3's own kernels, which keep the "
                "logarithms of the weights; the paper's script keeps the weights, of which one "
                "falls to 0 in floating point, which does no harm here.",
                "The ratio is of one round, given the arms before it. Along the forced arms "
                "themselves gains and losses all but cancel: the log-ratio of all chances "
                f"together stays within {np.abs(np.cumsum(forced)).max():.3g}. The figure shows "
                "that a proof round by round fails, not that this run gives so much away.",
                "exp3 promises nothing here, and so it is never called private; dp-exp3 is the "
                "same rule on noisy means of batches.",
            ],
        },
    )


def _draw_leak(changed: np.ndarray, plain: np.ndarray, loss: np.ndarray) -> Figure:
    from matplotlib.figure import Figure

    from balaclava.simulation.plots import COLOURS

    t = np.arange(1, changed.size + 1)
    picture = Figure(figsize=(12, 4.6), layout="constrained", dpi=110)
    picture.suptitle(
        f"Asi, Raman, Talwar 2025, Figure 1: EXP3 with η = γ = {RATE:g}, arms forced to alternate",
        fontsize=12,
        x=0.01,
        ha="left",
    )
    left, right = picture.subplots(1, 2)
    left.plot(t, changed, color=COLOURS[0], lw=1.8, label="the arm's first loss is 0")
    left.plot(t, plain, color=COLOURS[1], lw=1.8, ls="--", label="all losses are 1")
    left.set_ylabel("chance of the second arm")
    left.set_title("(a) one loss decides", fontsize=10, loc="left")
    left.legend(frameon=False, loc="upper left")
    right.plot(t[1:], np.abs(loss[1:]), color=COLOURS[0], lw=1.8, label="log-ratio of the chances")
    right.axhline(RATE, color="0.5", lw=1, ls=":", label="η")
    right.set_yscale("log")
    right.set_ylabel("what one round gives away")
    right.set_title("(b) it is not of order η", fontsize=10, loc="left")
    right.legend(frameon=False, loc="upper left")
    for ax in (left, right):
        ax.set_xscale("log")
        ax.set_xlabel("round t, from 1")
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.25)
    return picture


# Table 1: regret without experts.


class Plan(NamedTuple):
    """How much of Table 1 is measured."""

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
        """T^(-1/2), below which no policy with local privacy learns."""
        return 1.0 / math.sqrt(self.horizon)


PLANS = {
    "quick": Plan(
        4,
        200_000,
        9,
        100_000,
        (4, 8, 16, 32, 64),
        (10_000, 30_000, 100_000, 300_000),
        (20_000, 80_000, 320_000, 1_280_000),
        6,
    ),
    "paper": Plan(
        10,
        1_000_000,
        10,
        1_000_000,
        (4, 8, 16, 32, 64),
        (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000),
        (20_000, 200_000, 2_000_000, 20_000_000),
        10,
    ),
    "tiny": Plan(2, 400, 3, 400, (2, 3, 4), (100, 200, 400), (100, 200, 400), 2),
}
SIDE_EPSILON = 0.25  # where not epsilon is varied
LARGEST_GAP = 0.5
_SCALES = tuple(2.0 ** (i / 2) for i in range(25))
TUNED = ", tuned"
SHORT_LIST = ("dp-htinf", "dp-tsallis-inf", f"dp-exp3{TUNED}", f"ldp-exp3{TUNED}")
FULL_LIST = (*SHORT_LIST, "dp-exp3", "dp-ftpl", "ldp-exp3")
YARDSTICKS = ("exp3", "htinf")
PROVED = {  # powers of epsilon, K and T
    "dp-htinf": (-0.5, 0.5, 0.5),
    "dp-exp3": (-0.5, 0.5, 0.5),
    "dp-ftpl": (-0.5, 0.5, 0.5),
    "ldp-exp3": (-1.0, 0.5, 0.5),
    "exp3": (0.0, 0.5, 0.5),
    "htinf": (0.0, 0.5, 0.5),
    "dp-htinf-experts": (-0.5, 0.5, 0.5),
    "ldp-exp4": (-1.0, 0.0, 0.5),
    "dp-exp4": (-1 / 3, 1 / 6, 2 / 3),
    "exp4": (0.0, 0.0, 0.5),
}


def gaps(start: float) -> list[float]:
    """Gaps a factor of three apart, and the largest there is."""
    found = []
    while start < 0.7 * LARGEST_GAP:
        found.append(start)
        start *= 3.0
    return [*found, LARGEST_GAP]


def hardest(arms: int, horizon: int, epsilon: float | None) -> float:
    """The gap, up to a constant, that is hardest at this epsilon."""
    return float(hidden_best(arms, horizon, epsilon=epsilon).gaps.max())


def family(arms: int, horizon: int, epsilon: float | None) -> tuple[Environment, ...]:
    """One arm is better than all others, by more and more."""
    start = hardest(arms, horizon, epsilon)
    return tuple(hidden_best(arms, horizon, gap=gap) for gap in gaps(start))


def private(label: str, **offered: Any) -> Policy:
    """A policy, or the same with the learning rate at which its proved bound is least."""
    name = label.removesuffix(TUNED)
    policy: Policy = make(name, **offered)
    if name == label:
        return policy
    world = hidden_best(2, 2)
    candidates = [make(name, **offered, learning_rate_scale=scale) for scale in _SCALES]
    bounds = [candidate.regret_bound(world, offered["horizon"]) for candidate in candidates]
    best: Policy = candidates[int(np.argmin([math.inf if b is None else b for b in bounds]))]
    return best


def setting(
    panel: str, x: float, labels: Sequence[str], arms: int, horizon: int, epsilon: float | None
) -> Setting:
    """The policies for this epsilon on the family that is hard at it."""
    offered = {"arms": arms, "horizon": horizon, "epsilon": epsilon}
    policies = {label: private(label, **offered) for label in labels}
    ceiling = LARGEST_GAP * horizon * (1.0 - 1.0 / arms)
    return Setting(panel, x, horizon, policies, family(arms, horizon, epsilon), ceiling)


def settings_of_table_1(plan: Plan) -> list[Setting]:
    """Regret against epsilon, K and T, and against T where epsilon is T^(-1/2)."""
    epsilons = grid(1.0, plan.threshold / 10.0, plan.epsilons)
    side = SIDE_EPSILON
    found = [setting("a", e, FULL_LIST, plan.arms, plan.horizon, e) for e in epsilons]
    found.append(setting("a", 1.0, YARDSTICKS, plan.arms, plan.horizon, None))
    for arms in plan.arm_counts:
        found.append(setting("b", arms, SHORT_LIST, arms, plan.side_horizon, side))
        found.append(setting("b", arms, YARDSTICKS, arms, plan.side_horizon, None))
    for horizon in plan.horizons:
        found.append(setting("c", horizon, SHORT_LIST, plan.arms, horizon, side))
        found.append(setting("c", horizon, YARDSTICKS, plan.arms, horizon, None))
    for horizon in plan.long_horizons:
        epsilon = 1.0 / math.sqrt(horizon)
        found.append(setting("d", horizon, SHORT_LIST, 2, horizon, epsilon))
    return found


def proved_power(label: str, panel: str) -> float | None:
    """The power in the theorem, without logarithms; None where nothing is proved."""
    powers = PROVED.get(label.removesuffix(TUNED))
    if powers is None:
        return None
    epsilon, width, horizon = powers
    return {"a": epsilon, "b": width, "c": horizon, "d": horizon - epsilon / 2.0}[panel]


def describe_slopes(measured: Measured, panel: str, order: str = "abcd") -> list[str]:
    """The fitted power of each policy beside the proved one, and who was not fitted."""
    said, rest = [], []
    for label in measured.labels(panel):
        points = measured.points(panel, label)
        if len(points) == 1:
            continue
        proved = proved_power(label, "abcd"[order.index(panel)])
        theory = "no proof" if proved is None else f"proved {proved:+.2f}"
        slope = measured.slope(panel, label)
        if slope is None:
            share = min(point.mean / point.ceiling for point in points)
            rest.append(f"{label} ({theory}), at least {share:.0%} of even play")
        else:
            said.append(f"{label} {slope}, {theory}")
    lines = [f"({panel}) fitted power: {'; '.join(said) or 'none'}."]
    if rest:
        lines.append(
            f"({panel}) not fitted, as fewer than {LEAST_POINTS} values are below {LEARNED:.0%} of "
            f"even play: {'; '.join(rest)}."
        )
    return lines


def separation(measured: Measured, plan: Plan) -> list[str]:
    """Central against local privacy, at each epsilon up to 0.1 and at the threshold."""
    ours, theirs = "dp-htinf", f"ldp-exp3{TUNED}"
    pairs = zip(measured.points("a", ours), measured.points("a", theirs), strict=True)
    small = [(a, b) for a, b in pairs if a.x <= 0.1]
    sure = [a.x for a, b in small if a.mean + 2 * math.hypot(a.error, b.error) < b.mean]
    listed = "; ".join(f"ε = {a.x:g}: {a.mean:,.0f} and {b.mean:,.0f}" for a, b in small)
    lines = [
        f"(a) {ours} and {theirs} at ε up to 0.1: {listed}. {ours} is below by two standard "
        f"errors or more at {len(sure)} of {len(small)}."
    ]
    for label in (ours, theirs):
        learned = [point.x for point in measured.points("a", label) if point.learned]
        least = f"down to ε = {min(learned):g}" if learned else "nowhere"
        lines.append(
            f"(a) {label} stays below {LEARNED:.0%} of even play {least}; "
            f"T^(-1/2) = {plan.threshold:.3g}."
        )
    for label in (ours, theirs):
        points = measured.points("d", label)
        shares = [point.mean / point.ceiling for point in points]
        falls = all(np.diff(shares) < 0) and shares[-1] < LEARNED
        lines.append(
            f"(d) {label} at ε = T^(-1/2), regret as a share of even play, T from "
            f"{points[0].x:,.0f} to {points[-1].x:,.0f}: "
            f"{', '.join(f'{share:.0%}' for share in shares)}: "
            f"{'sublinear' if falls else 'not seen to be sublinear'}."
        )
    return lines


def few_arms(plan: Plan) -> str:
    """Why the power of K is above 1/2 where there are few arms."""
    K = np.array(plan.arm_counts, float)
    exact = np.polyfit(np.log(K), np.log(np.sqrt(K - 1.0) * (1.0 - 1.0 / K)), 1)[0]
    return (
        "(b) is of few arms: with K - 1 wrong arms, and 1/K of all plays right by chance, what "
        f"grows as sqrt(K - 1) (1 - 1/K) has the power {exact:.2f} over these K, not 0.50."
    )


@figure("asi2025-table1", "Regret against ε, K and T: central against local privacy", REFERENCE)
def table_1(desk: Desk) -> str:
    plan = PLANS[desk.scale]
    measured = measure(desk, settings_of_table_1(plan), repetitions=plan.repetitions, seed=SEED)
    axes = {
        "a": Axis(
            f"{plan.arms} arms, T = {plan.horizon:,}",
            "ε (more private to the right)",
            falling=True,
            marks={plan.threshold: " T^(-1/2)"},
        ),
        "b": Axis(f"T = {plan.side_horizon:,}, ε = {SIDE_EPSILON:g}", "number of arms K"),
        "c": Axis(f"{plan.arms} arms, ε = {SIDE_EPSILON:g}", "rounds T"),
        "d": Axis("2 arms, ε = T^(-1/2)", "rounds T"),
    }
    title = (
        "Asi, Raman, Talwar 2025, Table 1, measured: the largest mean regret on losses of which "
        f"one arm is better by some gap\n{desk.scale} scale: mean ± standard error of "
        f"{plan.repetitions} repetitions; 'tuned' is at the rate whose proved bound is least"
    )
    desk.picture(draw_slopes(measured, axes, title))
    return compose(
        "asi2025-table1: regret against ε, K and T",
        {
            SHOWS: [
                "Regret of at most order sqrt(K T / ε) for dp-htinf, with more logarithms for "
                "dp-exp3 and dp-ftpl, where the local policies before it had sqrt(K T) log(K T) / "
                "ε. So regret is sublinear for ε below T^(-1/2), where with local privacy it "
                "cannot be: a separation of central from local privacy."
            ],
            SEES: [
                *(line for panel in axes for line in describe_slopes(measured, panel)),
                *separation(measured, plan),
            ],
            WHY: [
                NO_NUMBERS,
                "A policy is played on gaps from the one that is hardest in theory, "
                "sqrt(K / (ε T)), by factors of three to 1/2, and its largest mean regret counts. "
                f"Powers are fitted where that is below {LEARNED:.0%} of the regret of even play "
                "at the gap 1/2 (dotted), which no policy exceeds by much: at the dotted line a "
                "curve bends because losses end at 1. The largest of several means of few "
                "repetitions is a little too high, for wild policies more so.",
                "The learning rates printed for dp-exp3, dp-ftpl and ldp-exp3 guard against the "
                "largest noise in T rounds, and are far too low at these horizons. 'Tuned' takes "
                "for dp-exp3 and ldp-exp3 the rate at which the bound, proved all the same, is "
                "least. dp-ftpl has no such proof, is slow, and is in (a) only.",
                "What is promised differs: dp policies protect all decisions of a run from who "
                "sees them, ldp-exp3 each loss from the operator too, which is more.",
                few_arms(plan),
                MIXING.format(2.0 * math.log(plan.arms * plan.horizon)),
                "No regret is proved for dp-tsallis-inf; asi2025-learning-rate compares it.",
            ],
        },
    )
