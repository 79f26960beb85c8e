"""Rounds until dp-top-two names the best arm, and how often it names a wrong one.

Runs draw whole batches of rewards at once from the policy's own kernels: the same law as round by
round, with rewards that arrive at once. "bound" is `bl.bounds.identification`.

    python benchmarks/best_arm.py             # medians of 10,000 runs a line
    python benchmarks/best_arm.py --others    # beside dp-se and dp-imed with explore, 200 runs
    python benchmarks/best_arm.py --wrong     # wrong answers on hard problems, 10^6 runs a line
    python benchmarks/best_arm.py --scan      # other first batches and ratios
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import balaclava as bl
from balaclava.authoring import compiled
from balaclava.frames.pools import find_row
from balaclava.policies.base import Policy
from balaclava.privacy.randomness import seeded

LINEAR, ONE_GOOD = [0.75, 0.625, 0.5, 0.375, 0.25], [0.75, 0.7, 0.7, 0.7, 0.7]
CLINIC, LETTERS = [0.55, 0.60, 0.65, 0.75], [0.30, 0.45, 0.60]
ROWS = [(means, epsilon) for means in (LINEAR, ONE_GOOD, CLINIC, LETTERS) for epsilon in (1.0, 0.1)]
# Means, epsilon, and the share of rewards of 1/2; near 0 and 1, near ties, few and many arms.
HARD: list[tuple[Sequence[float], float, float]] = [
    ([0.5, 0.51], 1.0, 0.0),
    ([0.02, 0.04], 1.0, 0.0),
    ([0.97, 0.99], 0.3, 0.0),
    ([0.001, 0.002], 10.0, 0.0),
    ([0.5, 0.55], 0.05, 0.0),
    ([0.45, 0.5, 0.5], 1.0, 0.0),
    ([0.3, 0.4, 0.45], 0.1, 0.0),
    ([0.5, 0.53], 2.0, 0.4),
    ([0.25, 0.3, 0.28], 0.5, 0.3),
    ([0.5] * 49 + [0.6], 1.0, 0.0),
    ([0.9] * 9 + [0.95], 3.0, 0.0),
    ([0.0, 0.02], 5.0, 0.0),
]
MOST_ROUNDS = 10**8  # a run without an answer ends here
PARTS = 64  # of the runs of a line, each with its own stream


def make_runs(
    begin: Callable[..., Any], choose: Callable[..., Any], learn: Callable[..., Any], row_of: Any
) -> Callable[..., Any]:
    """Close a loop that plays runs until the best arm is named."""

    def runs(params: Any, means: np.ndarray, half: float, most: int, out: np.ndarray, rng: Any):  # type: ignore[no-untyped-def]
        best = means.max()
        for i in range(out.shape[0]):
            state = begin(params)
            pools = state.pools
            t, regret, worse = 1, 0.0, 0
            while state.named[0] < 0 and t < most:
                arm, phase = choose(params, state, t, None, rng)
                k = 1 + pools.rest_of_batch[0]
                pools.rest_of_batch[0] = 0
                row = row_of(pools, arm, phase)
                halves = rng.binomial(k, half) if half > 0.0 else 0
                ones = rng.binomial(k - halves, (means[arm] - 0.5 * half) / (1.0 - half))
                total = ones + 0.5 * halves
                last = 1.0 if ones > 0 else (0.5 if halves > 0 else 0.0)
                pools.left[arm, row] -= k - 1
                pools.sums[arm, row] += total - last
                learn(params, state, t, arm, last, phase, rng)
                t += k
                regret += k * (best - means[arm])
                worse += k if means[arm] < best else 0
            out[i, 0], out[i, 1], out[i, 2], out[i, 3] = t - 1, state.named[0], regret, worse

    return runs


def play(
    policy: Policy, means: Sequence[float], runs: int, seed: int, half: float = 0.0,
    most: int = MOST_ROUNDS,
) -> np.ndarray:  # fmt: skip
    """Rounds, the named arm (-1: none), regret and rounds with a worse arm, of each run."""
    kernels = policy.kernels
    loop = compiled(make_runs, kernels.begin, kernels.choose, kernels.learn, find_row)
    params, truth = policy.constants(), np.array(means, float)
    out = np.zeros((runs, 4))
    parts = np.array_split(out, min(PARTS, runs))
    loop(params, truth, half, most, out[:0], seeded(0))
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        jobs = [
            pool.submit(loop, params, truth, half, most, part, seeded(seed, i))
            for i, part in enumerate(parts)
        ]
        for job in jobs:
            job.result()
    return out


def top_two(means: Sequence[float], epsilon: float, confidence: float, **more: Any) -> Policy:
    return bl.policy("dp-top-two", arms=len(means), epsilon=epsilon, confidence=confidence, **more)


def show_rounds(runs: int) -> None:
    print("means                          epsilon  delta   bound  median    90 %  /bound"
          "  wrong  regret  worse")  # fmt: skip
    for means, epsilon in ROWS:
        for delta in (0.01, 0.05):
            out = play(top_two(means, epsilon, 1.0 - delta), means, runs, seed=1)
            bound = bl.bounds.identification(means, epsilon=epsilon, delta=delta)
            median, high = np.quantile(out[:, 0], [0.5, 0.9])
            wrong = np.mean(np.array(means)[out[:, 1].astype(int)] < max(means))
            label = " ".join(f"{mean:g}".lstrip("0") for mean in means)
            print(
                f"{label:30} {epsilon:7g} {delta:6g} {bound:7,.0f} {median:7,.0f} {high:7,.0f} "
                f"{median / bound:7.2f} {wrong:6.2%} {out[:, 2].mean():7,.0f} "
                f"{out[:, 3].mean():6,.0f}",
                flush=True,
            )


def show_others(runs: int) -> None:
    for means, epsilon in ROWS:
        horizon = 40_000 if means is not ONE_GOOD else 200_000
        world = bl.environment("bernoulli", means=means)
        rivals = {
            "dp-top-two": top_two(means, epsilon, 0.99),
            "dp-se": bl.policy("dp-se", arms=len(means), epsilon=epsilon, horizon=200_000),
            "explore .5": bl.policy("dp-imed", arms=len(means), epsilon=epsilon, explore=0.5),
            "explore .2": bl.policy("dp-imed", arms=len(means), epsilon=epsilon, explore=0.2),
        }
        results = bl.simulate(
            rivals, world, horizon=horizon, repetitions=runs, seed=1, winners=True,
            checkpoints=400,
        )  # fmt: skip
        print(means, "epsilon", epsilon)
        print(results.winners(0.99), flush=True)


def show_wrong(runs: int) -> None:
    print("means                epsilon  halves   delta     runs    wrong   none  median rounds")
    for means, epsilon, half in HARD:
        for delta in (0.01, 0.05):
            out = play(top_two(means, epsilon, 1.0 - delta), means, runs, 2, half, 10**7)
            named = out[:, 1].astype(int)
            wrong = np.mean((named >= 0) & (np.array(means)[named] < max(means)))
            label = " ".join(f"{mean:g}".lstrip("0") or "0" for mean in means[:3])
            label += f" ({len(means)})"
            print(
                f"{label:20} {epsilon:7g} {half:7g} {delta:7g} {runs:8,} {wrong:8.4%} "
                f"{np.mean(named < 0):6.2%} {np.median(out[:, 0]):14,.0f}",
                flush=True,
            )


def show_scan(runs: int) -> None:
    print("first_batch * epsilon, batch_ratio: medians of", [f"{m[0]:g} {e:g}" for m, e in ROWS])
    for first in (20.0, 30.0, 40.0, 60.0):
        for ratio in (1.1, 1.25, 1.5):
            medians = [
                np.median(
                    play(top_two(m, e, 0.99, first_batch=first / e, batch_ratio=ratio), m, runs, 1)[
                        :, 0
                    ]
                )
                for m, e in ROWS
            ]
            print(f"{first:g} {ratio:g}", [f"{value:,.0f}" for value in medians], flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, help="runs a line")
    for name in ("others", "wrong", "scan"):
        parser.add_argument(f"--{name}", action="store_true")
    options = parser.parse_args()
    if options.others:
        show_others(options.runs or 200)
    elif options.wrong:
        show_wrong(options.runs or 10**6)
    elif options.scan:
        show_scan(options.runs or 1_000)
    else:
        show_rounds(options.runs or 10_000)
