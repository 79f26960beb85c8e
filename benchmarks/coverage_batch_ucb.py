"""How often the estimates of dpr-batch-ucb and ldpr-batch-ucb miss their radius.

Each line is one law and one setting, with many runs of one arm by the policy's own kernels. It
shows the largest share, over batches and both sides, of estimates beyond the radius, beside the
allowed one, and the quantile of the error at that share, in radii, for the worst batch.

    python benchmarks/coverage_batch_ucb.py          # 100,000 runs a line: a few minutes
    python benchmarks/coverage_batch_ucb.py --quick
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import balaclava as bl
from balaclava.authoring import compiled
from balaclava.policies.heavy_tailed.dpr_batch_ucb import BatchUCBPolicy
from balaclava.privacy.randomness import seeded

CHANCE = 0.05  # of each side of each estimate
BATCHES, FIRST = 4, 64


class Coverage(NamedTuple):
    """The measured coverage of one setting."""

    missed: float  # the largest share of estimates beyond the radius, on one side
    error: float  # the largest 1 - CHANCE quantile of the error on one side, in radii


def make_estimates(
    begin: Callable[..., Any],
    choose: Callable[..., Any],
    learn: Callable[..., Any],
    draw: Callable[..., Any],
) -> Callable[..., Any]:
    """Close a loop that fills `means` with an arm's estimates after each batch."""

    def estimates(params: Any, world: Any, means: np.ndarray, policy_rng: Any, rng: Any) -> None:
        for run in range(means.shape[0]):
            state, t = begin(params), 0
            for m in range(means.shape[1]):
                while state.pools.settled[0] == m:
                    t += 1
                    arm, phase = choose(params, state, t, None, policy_rng)
                    learn(params, state, t, arm, draw(world, t, arm, rng), phase, policy_rng)
                means[run, m] = state.pools.means[0]

    return estimates


def setting(name: str, **parameters: Any) -> BatchUCBPolicy:
    """A policy of one arm whose radii fail with CHANCE on each side."""
    sides = 2 if parameters.get("mean_range") else 1
    policy = bl.policy(
        name,
        arms=1,
        horizon=FIRST * 2 ** (BATCHES - 1),
        first_batch=FIRST,
        failure_probability=sides * BATCHES * CHANCE,
        **parameters,
    )
    assert isinstance(policy, BatchUCBPolicy)
    return policy


def coverage(policy: BatchUCBPolicy, world: bl.Environment, runs: int, seed: int) -> Coverage:
    """Play one arm many times."""
    loop = compiled(make_estimates, *policy.kernels[:3], world.draw)
    means = np.zeros((runs, policy.schedule.radii.size))
    loop(policy.constants(), world.constants(), means, seeded(seed, 0), seeded(seed, 1))
    errors = (means - world.means[0]) / policy.schedule.radii
    sides = np.stack([errors, -errors])
    return Coverage(
        float((sides > 1).mean(axis=1).max()),
        float(np.quantile(sides, 1 - CHANCE, axis=1).max()),
    )


def cases() -> list[tuple[str, BatchUCBPolicy, bl.Environment]]:
    """Laws at their moment bound, with the policies' parameters."""
    pareto = bl.environment("pareto", means=[0.9], shape=1.95)
    student = bl.environment("student-t", means=[3.0], degrees=2.2)
    trials = []
    for name in ("dpr-batch-ucb", "ldpr-batch-ucb"):
        for order, epsilon in ((1.5, 1.0), (1.9, 0.2), (1.9, 1.0), (1.9, 5.0)):
            terms = {"moment_order": order, "epsilon": epsilon}
            policy = setting(name, **terms, moment_bound=pareto.moment(order))
            trials.append(("pareto", policy, pareto))
            trials.append(("all cut off", policy, cut_off(policy)))
        terms = {"moment_order": 1.9, "epsilon": 1.0}
        policy = setting(name, **terms, moment_bound=pareto.moment(1.9), contamination=0.05)
        trials.append(
            ("outliers", policy, with_outliers(pareto, float(policy.schedule.levels[-1])))
        )
        policy = setting(name, **terms, moment_bound=student.moment(1.9))
        trials.append(("student-t", policy, student))
    for share in (0.0, 0.1):
        policy = setting(
            "dpr-batch-ucb",
            **terms,
            moment_bound=student.moment(1.9, central=True),
            mean_range=4.0,
            contamination=share,
        )
        law = with_outliers(student, 3.0 + float(policy.schedule.levels[-1]), share)
        trials.append(("student-t, central", policy, law))
    return trials


def cut_off(policy: BatchUCBPolicy) -> bl.Environment:
    """The law with the largest bias: a reward just above the last level, at the moment bound."""
    value = -1.0001 * float(policy.schedule.levels[-1])
    chance = policy.moment_bound / abs(value) ** policy.moment_order
    return bl.environment("two-point", values=[value], probabilities=[min(chance, 1.0)])


def with_outliers(clean: bl.Environment, value: float, share: float = 0.05) -> bl.Environment:
    """The law with the most harmful outliers."""
    return bl.environment(
        "contaminated", inner=clean, fraction=share, outliers={"kind": "point", "value": value}
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--quick", action="store_true", help="2,000 runs a line")
    options = parser.parse_args()
    runs = 2_000 if options.quick else options.runs
    print("| policy | law | p | epsilon | alpha | made for | missed | error / radius |")
    print("|---|---|---|---|---|---|---|---|")
    most = 0.0
    for number, (law, policy, world) in enumerate(cases()):
        shares = coverage(policy, world, runs, seed=number)
        most = max(most, shares.missed)
        print(
            f"| {policy.name} | {law} | {policy.moment_order} | {policy.epsilon} | "
            f"{policy.contamination} | {CHANCE} | {shares.missed:.5f} | {shares.error:.2f} |",
            flush=True,
        )
    return int(most > CHANCE)


if __name__ == "__main__":
    raise SystemExit(main())
