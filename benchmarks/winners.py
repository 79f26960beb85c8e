"""How often the intervals of `agent.estimates` fail, and how much wider privacy makes them.

Each line is one problem and one epsilon. A run fails if any interval misses its arm's mean after
any release. The share of such runs must be at most 1 - confidence. The last line compares, at
epsilon 10, the width of each interval with that of as many rewards without noise. A second table
has other ways to release, and late or lost rewards; it checks runs at 200 checkpoints.

    python benchmarks/winners.py            # 10,000 runs a line
    python benchmarks/winners.py --quick    # 500 runs a line
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import balaclava as bl
from balaclava.authoring import compiled
from balaclava.policies.base import Policy
from balaclava.privacy.randomness import seeded
from balaclava.simulation.engine import available_cores
from balaclava.theory.confidence_sequences import (
    MIXTURE_RATES,
    laplace_scale,
    log_evidence,
    mean_interval,
)

CONFIDENCE = 0.95
HORIZON = 20_000
PARTS = 16  # of the runs of a line, each with its own stream
PROBLEMS: dict[str, Sequence[float]] = {
    "two, equal": [0.5, 0.5],
    "two, far apart": [0.2, 0.8],
    "two, rare": [0.01, 0.02],
    "two, nearly sure": [0.98, 0.99],
    "three, spread": [0.1, 0.5, 0.9],
    "the clinic's four": [0.55, 0.60, 0.65, 0.75],
    "four, equal": [0.3] * 4,
    "five, with 0 and 1": [0.0, 0.25, 0.5, 0.75, 1.0],
    "nine in a row": [0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7],
    "ten, one better": [0.5] * 9 + [0.6],
}


def make_count(
    begin: Callable[..., Any],
    choose: Callable[..., Any],
    learn: Callable[..., Any],
    shown: Callable[..., Any],
) -> Callable[..., Any]:
    """Close a loop that counts the runs in which any interval ever fails."""

    def count(
        params: Any, means: np.ndarray, horizon: int, runs: int, threshold: float, rng: Any
    ) -> int:
        scale = laplace_scale(params.epsilon)
        failed = 0
        for _ in range(runs):
            state = begin(params)
            fails = False
            for t in range(1, horizon + 1):
                arm, phase = choose(params, state, t, None, rng)
                before = shown(params, state, arm)[0]
                reward = 1.0 if rng.random() < means[arm] else 0.0
                learn(params, state, t, arm, reward, phase, rng)
                rewards, mean, draws = shown(params, state, arm)
                if rewards != before:
                    total, mu = mean * rewards, means[arm]
                    below = log_evidence(total, rewards, draws, scale, mu, MIXTURE_RATES)
                    above = log_evidence(
                        rewards - total, rewards, draws, scale, 1.0 - mu, MIXTURE_RATES
                    )
                    if max(below[0], above[0]) >= threshold:
                        fails = True
                        break
            failed += fails
        return failed

    return count


def failures(policy: Policy, means: Sequence[float], horizon: int, runs: int, seed: int) -> int:
    """The number of runs in which any interval ever fails."""
    kernels, estimation = policy.kernels, policy.require_estimates(0.01)
    count = compiled(make_count, kernels.begin, kernels.choose, kernels.learn, estimation.read)
    threshold = math.log(2.0 * policy.arms / (1.0 - CONFIDENCE))  # two sides, all arms
    params, truth = policy.constants(), np.array(means)
    count(params, truth, 0, 0, threshold, seeded(0))
    parts = [runs // PARTS + (i < runs % PARTS) for i in range(PARTS)]
    with ThreadPoolExecutor(available_cores()) as pool:
        jobs = [
            pool.submit(count, params, truth, horizon, part, threshold, seeded(seed, i))
            for i, part in enumerate(parts)
        ]
        return sum(int(job.result()) for job in jobs)


def make_misses(limits: Callable[..., Any]) -> Callable[..., Any]:
    """Close a loop that tests whether any interval of a run misses its arm's mean."""

    def misses(params: Any, released: np.ndarray, means: np.ndarray, failure: float) -> bool:
        for c in range(released.shape[0]):
            for arm in range(means.size):
                rewards, mean, noise = released[c, arm]
                low, high = limits(params, int(rewards), mean, noise, failure)
                if rewards > 0 and not low <= means[arm] <= high:
                    return True
        return False

    return misses


LATE = {"delay": bl.Delay(mean=300, lost=0.05)}
WINDOW = {"patience": 1_000, "settle": "window", "missing": 0.0}


def others() -> list[tuple[str, Policy, bl.Environment, dict[str, Any], np.ndarray]]:
    """The policy, the feedback, and the estimated means of each line."""
    clinic = np.array(PROBLEMS["the clinic's four"])
    world = bl.environment("bernoulli", means=clinic)
    private = bl.policy("dp-imed", arms=4, epsilon=1.0, explore=0.2)
    local = bl.policy("ldp-ucb-laplace", arms=4, epsilon=1.0)
    tails = bl.environment("pareto", means=[0.5, 0.9], shape=2.5)
    heavy = bl.policy(
        "dpr-batch-ucb",
        arms=2,
        epsilon=1.0,
        horizon=HORIZON,
        moment_order=2.0,
        moment_bound=float(max(tails.moments(2.0))),
        failure_probability=(1.0 - CONFIDENCE) / 4,  # two sides, two arms
    )
    return [
        ("dp-imed, late and lost", private, world, LATE, clinic),
        ("dp-imed, window", private, world, {**LATE, **WINDOW}, in_window(clinic)),
        ("ldp-ucb-laplace", local, world, {}, clinic),
        ("ldp-ucb-laplace, late and lost", local, world, LATE, clinic),
        ("dpr-batch-ucb, Pareto", heavy, tails, {}, tails.means),
        ("dpr-batch-ucb, Pareto, late and lost", heavy, tails, LATE, tails.means),
    ]


def in_window(means: np.ndarray) -> np.ndarray:
    """The means with 0 for rewards that are lost or later than the window of 1,000 rounds."""
    late = (300 / 301) ** 1_001
    return means * 0.95 * (1.0 - late)


def share_that_fails(
    policy: Policy, world: bl.Environment, lateness: dict[str, Any], means: np.ndarray, runs: int
) -> float:
    """The share of runs in which any interval fails at any checkpoint."""
    results = bl.simulate(
        policy, world, horizon=HORIZON, repetitions=runs, seed=1, winners=True, **lateness
    )
    failure = (1.0 - CONFIDENCE) / policy.arms
    misses = compiled(make_misses, policy.require_estimates(failure).limits)
    params = policy.constants()
    each = [
        misses(params, run.released, means, failure) for run in results._finished_runs(policy.name)
    ]
    return float(np.mean(each))


def width_ratios(means: Sequence[float], runs: int, seed: int) -> np.ndarray:
    """Widths of intervals at epsilon 10 over those without privacy."""
    policy = bl.policy("dp-imed", arms=len(means), epsilon=10.0)
    world = bl.environment("bernoulli", means=means)
    results = bl.simulate(
        policy, world, horizon=HORIZON, repetitions=runs, seed=seed, checkpoints=20, winners=True
    )
    failure, scale = (1.0 - CONFIDENCE) / policy.arms, laplace_scale(10.0)
    ratios = []
    for run in results.runs["dp-imed"].values():
        assert run.released is not None
        for rewards, mean, draws in np.unique(run.released.reshape(-1, 3), axis=0):
            low, high = mean_interval(mean, int(rewards), int(draws), scale, failure)
            least, most = mean_interval(mean, int(rewards), 0, 0.0, failure)
            ratios.append((high - low) / (most - least))
    return np.array(ratios)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="500 runs a line")
    runs = 500 if parser.parse_args().quick else 10_000
    print(f"dp-imed, {HORIZON:,} rounds, {runs:,} runs a line, confidence {CONFIDENCE}\n")
    print(f"{'problem':20} {'epsilon 0.1':>12} {'epsilon 1':>12}   runs with a failure, in percent")
    for number, (name, means) in enumerate(PROBLEMS.items()):
        shares = []
        for epsilon in (0.1, 1.0):
            policy = bl.policy("dp-imed", arms=len(means), epsilon=epsilon)
            shares.append(failures(policy, means, HORIZON, runs, number) / runs)
        print(f"{name:20} {100 * shares[0]:12.2f} {100 * shares[1]:12.2f}", flush=True)
    ratios = np.concatenate([width_ratios(means, 3, 1) for means in PROBLEMS.values()])
    print(f"\nwidth at epsilon 10 over that without privacy: mean {ratios.mean():.4f}, ", end="")
    print(f"largest {ratios.max():.4f}\n")
    for name, policy, world, lateness, truth in others():
        share = share_that_fails(policy, world, lateness, truth, runs // 10)
        print(f"{name:40} {100 * share:8.2f}   in percent of {runs // 10:,} runs", flush=True)


if __name__ == "__main__":
    main()
