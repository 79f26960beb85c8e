"""The price of late and lost rewards: regret, time per step, and losses not learned from.

    python benchmarks/delays.py                      # 200 runs a line; about ten minutes
    python benchmarks/delays.py --quick              # 20 runs a line
    python benchmarks/delays.py --table targets      # one table only
    python benchmarks/delays.py --table shape --policy prae-raw --runs 2000 --delay 200 --seed 2

Four tables. "shape": every policy that releases batches, on two problems, at fixed delays of 200,
1,000 and 2,000 rounds. The limit is the regret without delay plus 1.5 d mean gaps, the cost of
1.5 d random rounds. The value is the extra regret in units of d mean gaps, at the worst delay, with
its 95 % interval.
"targets": dp-imed on the first problem, with delays and losses of several kinds. "steps": the cost
of a step with delays over that without. "losses": the share of losses that a conversion at
epsilon 1 learns from when all are late by 1,000 rounds.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

import balaclava as bl
from balaclava.policies.adversarial.conversion import ConvertedPolicy
from balaclava.policies.base import POLICIES, Policy
from balaclava.policies.experts.experts_as_arms import ExpertsAsArms
from balaclava.policies.pooled_policies import PooledPolicy
from balaclava.privacy.randomness import seeded
from balaclava.simulation.engine import repetition_player
from balaclava.simulation.feedback import Feedback
from balaclava.testing.examples import USUAL_PARAMETERS, completed
from hand_loops import late_ucb1
from measuring import Line, in_turns, table

HORIZON, EPSILON, SEED = 20_000, 1.0, 1
DELAYS = (200, 1_000, 2_000)
PROBLEMS = {"four arms": np.array([0.55, 0.60, 0.65, 0.75]), "two arms": np.array([0.3, 0.7])}
ALLOWANCE = 1.5  # times the delay and the mean gap
# The constants of proofs cover the worst case. With them most policies are still exploring at the
# horizon, and a delay has no effect.
BOLD: dict[str, Any] = {
    "radius_scale": 0.1,
    "threshold": 0.0,
    "moment_order": 2.0,
    "moment_bound": 1.0,
    "mean_range": 7.0,
    "contamination": 0.0,
}
UNSCALED = ("dpr-adaptive-ucb",)  # its constants were found by experiment
WINDOW: dict[str, Any] = {"settle": "window", "missing": 0.0}
# dp-imed on the first problem: how rewards arrive, and the largest regret allowed.
TARGETS: dict[str, tuple[dict[str, Any], float]] = {
    "no delay": ({}, 65),
    "fixed delay of 200": ({"delay": bl.Delay(mean=200, law="fixed")}, 80),
    "fixed delay of 1,000": ({"delay": bl.Delay(mean=1_000, law="fixed")}, 155),
    "fixed delay of 2,000": ({"delay": bl.Delay(mean=2_000, law="fixed")}, 275),
    "window of 1,000, 2 % lost": (
        {"delay": bl.Delay(mean=0, lost=0.02), "patience": 1_000, **WINDOW},
        160,
    ),
    "no delay, 2 % lost": ({"delay": bl.Delay(mean=0, lost=0.02)}, 70),
    "no delay, 30 % lost": ({"delay": bl.Delay(mean=0, lost=0.3)}, 100),
    "geometric delay of 1,000": ({"delay": bl.Delay(mean=1_000)}, 450),
    "geometric delay of 300, 5 % lost": ({"delay": bl.Delay(mean=300, lost=0.05)}, math.inf),
    "the same, window of 1,000": (
        {"delay": bl.Delay(mean=300, lost=0.05), "patience": 1_000, **WINDOW},
        math.inf,
    ),
}


class Cost(Line):
    """A line whose spread is a 95 % interval; it fails only if all of the interval does."""

    @property
    def verdict(self) -> str:
        return "unclear" if self.lowest <= self.target < self.value else super().verdict


def batch_policies() -> list[str]:
    """The names of all policies that release batches."""
    kinds = (PooledPolicy, ConvertedPolicy, ExpertsAsArms)
    return [entry.name for entry in bl.list_policies() if issubclass(entry.policy, kinds)]


def policy_for(name: str, means: np.ndarray) -> Policy:
    """The policy of a name, with parameters that suit the horizon."""
    cls, arms = POLICIES.classes()[name], means.size
    usual = {**USUAL_PARAMETERS, "horizon": HORIZON, "epsilon": EPSILON, "experts": arms}
    usual.update({} if name in UNSCALED else BOLD)
    parameters: dict[str, Any] = {key: usual[key] for key in usual if key in cls.annotations}
    if "base" in cls.annotations:
        base = bl.policy("exp3", arms=arms, horizon=HORIZON, loss_noise=1.0)
        parameters["base"] = base
    return cls.create(completed(cls, {**parameters, "arms": arms}))


def world_for(policy: Policy, means: np.ndarray) -> bl.Environment:
    """Arms with these means; a loss is 1 minus the reward, and each expert advises one arm."""
    if policy.rewards != "loss":
        return bl.environment("bernoulli", means=means)
    losses = bl.environment("stochastic-losses", means=1.0 - means)
    if not isinstance(policy, ExpertsAsArms):
        return losses
    return bl.environment("advice", losses=losses, advice=np.eye(means.size))


def regrets(
    policy: Policy, world: bl.Environment, runs: int, seed: int = SEED, **lateness: Any
) -> np.ndarray:
    """The regret of each run."""
    results = bl.simulate(
        policy, world, horizon=HORIZON, repetitions=runs, seed=seed, checkpoints=1, **lateness
    )
    return results.final_regret(policy.name)


def line(what: str, regret: np.ndarray, reference: str, most: float) -> Line:
    """A mean with its 95 % interval beside its limit."""
    mean, reach = regret.mean(), 1.96 * regret.std(ddof=1) / math.sqrt(regret.size)
    sign = "<=" if math.isfinite(most) else ""
    shown = f"{mean:,.0f} ± {reach:,.0f}"
    return Line(what, shown, reference, mean, mean - reach, mean + reach, sign, most)


def shape_line(name: str, label: str, runs: int, delays: Sequence[int], seed: int) -> Line:
    """One policy on one problem: the worst delay, in units of d mean gaps.

    Runs with and without a delay are paired by seed.
    """
    means = PROBLEMS[label]
    policy = policy_for(name, means)
    world = world_for(policy, means)
    late = {
        delay: regrets(policy, world, runs, seed, delay=bl.Delay(mean=delay, law="fixed"))
        for delay in (0, *delays)
    }
    mean_gap = means.max() - means.mean()
    costs = {delay: (late[delay] - late[0]) / (delay * mean_gap) for delay in delays}
    worst = max(costs.values(), key=lambda cost: float(cost.mean()))
    reach = 1.96 * worst.std(ddof=1) / math.sqrt(runs)
    return Cost(
        f"{name}, {label}",
        " / ".join(f"{late[delay].mean():,.0f}" for delay in delays),
        f"{late[0].mean():,.0f} at once",
        float(worst.mean()),
        float(worst.mean() - reach),
        float(worst.mean() + reach),
        "<=",
        ALLOWANCE,
    )


def shape(
    quick: bool,
    names: list[str] | None = None,
    runs: int | None = None,
    delays: Sequence[int] = DELAYS,
    seed: int = SEED,
) -> list[Line]:
    """Policies on both problems, by default all; lines are printed as they are measured."""
    lines = []
    for name in names or batch_policies():
        for label in PROBLEMS:
            lines.append(shape_line(name, label, runs or (20 if quick else 200), delays, seed))
            print("  ".join(lines[-1].cells()), file=sys.stderr, flush=True)
    return lines


def targets(quick: bool, runs: int | None = None) -> list[Line]:
    """dp-imed with several kinds of delays and losses."""
    means = PROBLEMS["four arms"]
    policy = bl.policy("dp-imed", arms=means.size, epsilon=EPSILON)
    world = bl.environment("bernoulli", means=means)
    return [
        line(what, regrets(policy, world, runs or (20 if quick else 200), **lateness), "", most)
        for what, (lateness, most) in TARGETS.items()
    ]


def steps(quick: bool) -> list[Line]:
    """The shortest time with delays, over that without, and over a hand-written loop."""
    means, rounds = np.linspace(0.3, 0.7, 9), 100_000
    world = bl.environment("bernoulli", means=means)
    geometric = bl.Delay(mean=1_000)
    late = {
        "fixed delay of 1,000": bl.Delay(mean=1_000, law="fixed"),
        "geometric delay of 1,000": geometric,
        "the same, 2 % lost": bl.Delay(mean=1_000, lost=0.02),
    }
    lines = []
    for name in ("ucb1", "dp-imed", "dp-se", "lazy-dp-ts"):
        private = {"epsilon": EPSILON} if name != "ucb1" else {}
        bold = {"horizon": rounds, "radius_scale": 0.1} if name == "dp-se" else {}
        policy = bl.policy(name, arms=means.size, **private, **bold)
        contenders: dict[str, Callable[[], object]] = {
            label: game(policy, world, rounds, delay) for label, delay in late.items()
        }
        contenders["at once"] = game(policy, world, rounds, None)
        if name == "ucb1":
            contenders["by hand"] = partial(by_hand, means, rounds, geometric)
        seconds = in_turns(contenders, 10 if quick else 100)
        for label in late:
            what = f"a step of {name}, {label}"
            lines.append(_ratio(what, seconds[label], seconds["at once"], rounds, 1.5))
        if "by hand" in seconds:
            late_seconds = seconds["geometric delay of 1,000"]
            what = "the second of these against a loop by hand"
            lines.append(_ratio(what, late_seconds, seconds["by hand"], rounds, 1.3))
    return lines


def game(
    policy: Policy, world: bl.Environment, rounds: int, delay: bl.Delay | None
) -> Callable[[], object]:
    """One game of the compiled loop alone."""
    play = repetition_player(
        policy.name, policy, world, np.array([rounds]), SEED, Feedback.create(delay)
    )
    return lambda: play(0, np.zeros(2, np.int64))


def by_hand(means: np.ndarray, rounds: int, delay: bl.Delay) -> np.ndarray:
    """The pulls of a hand-written UCB1 on the streams of `simulate`."""
    law, streams = delay.constants(), (seeded(SEED, 0, 1), seeded(SEED, 0, 2))
    return late_ucb1(means, rounds, *streams, law.scale, law.longest)


def _ratio(
    what: str, seconds: list[float], reference: list[float], rounds: int, most: float
) -> Line:
    value = min(seconds) / min(reference)
    each = [a / b for a, b in zip(seconds, reference, strict=True)]
    texts = (f"{min(times) / rounds * 1e9:.1f} ns" for times in (seconds, reference))
    return Line(what, *texts, value, min(*each, value), max(*each, value), "<=", most)


def losses(quick: bool) -> list[Line]:
    """The share of arrived losses that the base policy learned from."""
    means, delay = 1.0 - PROBLEMS["four arms"], 1_000
    lines = []
    for name in ("dp-exp3", "dp-htinf", "dp-tsallis-inf", "dp-ftpl"):
        policy = policy_for(name, means)
        kernels, params = policy.kernels, policy.constants()
        state, rng, draw = kernels.begin(params), seeded(SEED, 0), seeded(SEED, 1)
        late: deque[tuple[int, int, int]] = deque()
        learned = arrived = 0
        for t in range(1, (3_000 if quick else HORIZON) + 1):
            late.append((t, *kernels.choose(params, state, t, None, rng)))
            if len(late) > delay:
                made, arm, phase = late.popleft()
                before = state.base.pending.numbers.copy()
                loss = float(draw.random() < means[arm])
                kernels.learn(params, state, made, arm, loss, phase, rng)
                arrived += 1
                learned += bool((state.base.pending.numbers != before).any())
        share = learned / arrived
        texts = (f"{learned:,}", f"{arrived:,} arrived")
        lines.append(Line(f"{name}: losses learned from", *texts, share, share, share, ">=", 1.0))
    return lines


TABLES = {"shape": shape, "targets": targets, "steps": steps, "losses": losses}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="20 runs a line: too few to quote")
    parser.add_argument("--table", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--policy", nargs="+", help="those in the shape table; all by default")
    parser.add_argument("--runs", type=int, help="runs a line of shape and targets")
    parser.add_argument("--delay", type=int, nargs="+", default=DELAYS, help="those of that table")
    parser.add_argument("--seed", type=int, default=SEED, help="of the shape table")
    options = parser.parse_args()
    chosen = (options.policy, options.runs, options.delay, options.seed)
    tables = {
        **TABLES,
        "shape": lambda quick: shape(quick, *chosen),
        "targets": lambda quick: targets(quick, options.runs),
    }
    for name in options.table:
        print(f"\n{table(tables[name](options.quick))}", flush=True)


if __name__ == "__main__":
    main()
