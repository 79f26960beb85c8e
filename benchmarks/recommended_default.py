"""Why dp-imed with its default settings is the recommended policy for rewards in [0, 1].

Two tables. The first: regret of every policy that protects a whole trajectory, on six sets of arms
and at epsilon 1 and 0.1, and of imed without privacy. Rare bad runs dominate the mean, so quantiles
are shown, too: median, 99 %, 99.9 %, the worst, and the share of runs above five medians. The
second: how often dp-imed locks onto a wrong arm, by the size of its batches.

    python benchmarks/recommended_default.py --repetitions 50
    python benchmarks/recommended_default.py --device cuda --repetitions 67584
    python benchmarks/recommended_default.py --table locks --repetitions 500
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from typing import Any

import numpy as np

import balaclava as bl
from balaclava.policies.bounded.dp_imed import DPIMED, Batching, Index

ARMS = {
    "9 arms .3 to .7": np.linspace(0.3, 0.7, 9),
    "101 arms .3 to .7": np.linspace(0.3, 0.7, 101),
    "one good": np.array([0.75, 0.7, 0.7, 0.7, 0.7]),
    "linear": np.array([0.75, 0.625, 0.5, 0.375, 0.25]),
    "convex": np.array([0.75, 0.53125, 0.375, 0.28125, 0.25]),
    "concave": np.array([0.75, 0.71875, 0.625, 0.46875, 0.25]),
}
EPSILONS = (1.0, 0.1)
SEED = 1


class AnyBatches(DPIMED):
    """dp-imed without its checks of batch sizes."""

    name = "dp-imed, any batches"
    most_draws = 10**9
    index: Index = "paper"
    batches: Batching = "ratio"


def trajectory_policies(arms: int, epsilon: float, horizon: int) -> dict[str, bl.Policy]:
    """Every policy with rewards in [0, 1] that protects a whole trajectory, and imed."""
    usual = {"arms": arms, "epsilon": epsilon, "horizon": horizon, "delta": 0.01}
    policies = {"imed": bl.policy("imed", arms=arms)}
    for entry in bl.list_policies():
        if (
            entry.guarantee == "central, trajectory"
            and entry.rewards == "bounded"
            and "features" not in entry.policy.annotations
        ):
            fields = [field.name for field in dataclasses.fields(entry.policy)]  # type: ignore[arg-type]
            parameters: dict[str, Any] = {key: usual[key] for key in usual if key in fields}
            policies[entry.name] = bl.policy(entry.name, **parameters)
    return policies


def regrets(options: argparse.Namespace) -> None:
    """One line per set of arms, epsilon and policy."""
    for label in options.arms:
        means = ARMS[label]
        world = bl.environment("bernoulli", means=means)
        for epsilon in options.epsilons:
            print(f"{label}, epsilon {epsilon:g}")
            for name, policy in trajectory_policies(means.size, epsilon, options.horizon).items():
                if options.policies and name not in options.policies:
                    continue
                began = time.perf_counter()
                regret = simulate(policy, world, options).final_regret(policy.name)
                half = 1.96 * regret.std(ddof=1) / np.sqrt(regret.size)
                middle, high, higher = np.quantile(regret, (0.5, 0.99, 0.999))
                bad = (regret > 5 * middle).mean()
                spent = time.perf_counter() - began
                print(
                    f"  {name:16s} {regret.mean():10.1f} +- {half:7.1f} (95 %)  median "
                    f"{middle:9.1f}  99 % {high:9.1f}  99.9 % {higher:9.1f}  worst "
                    f"{regret.max():9.1f}  bad {bad:.1e}  {regret.size} runs  {spent:5.1f} s",
                    flush=True,
                )


def locks(options: argparse.Namespace) -> None:
    """The share of runs that play the best arm in less than a quarter of the rounds."""
    print("dp-imed      ratio  first batch   draws   mean regret          locked")
    for label in ("9 arms .3 to .7", "one good"):
        means = ARMS[label]
        world = bl.environment("bernoulli", means=means)
        for epsilon in EPSILONS:
            print(f"{label}, epsilon {epsilon:g}")
            for ratio, first in settings(epsilon):
                policy = AnyBatches(
                    arms=means.size, epsilon=epsilon, batch_ratio=ratio, first_batch=first
                )
                results = simulate(policy, world, options)
                regret = results.final_regret(policy.name)
                best = results.pulls(policy.name)[:, means.argmax()]
                locked = (best < options.horizon / 4).mean()
                error = regret.std(ddof=1) / np.sqrt(regret.size)
                refused = "refused" if policy.draws > DPIMED.most_draws else ""
                print(
                    f"{ratio:17.2f} {policy.constants().first_batch:12.1f} {policy.draws:7d} "
                    f"{regret.mean():10.0f} +- {error:5.0f} {locked:10.2%}  {refused}",
                    flush=True,
                )


def settings(epsilon: float) -> list[tuple[float, float]]:
    """Ratio and first batch: the paper's first = ratio, and longer ones."""
    published = [(ratio, ratio) for ratio in (1.1, 1.25, 1.5, 2.0, 3.0)]
    longer = [(ratio, 30.0 / epsilon) for ratio in (1.1, 1.25, 1.5, 2.0, 3.0)]
    return published + longer


def simulate(policy: bl.Policy, world: Any, options: argparse.Namespace) -> Any:
    """The runs of one line."""
    return bl.simulate(
        policy,
        world,
        horizon=options.horizon,
        repetitions=options.repetitions,
        seed=SEED,
        checkpoints=1,
        workers=options.workers,
        device=options.device,
    )


def main() -> None:
    """Print the requested tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", choices=("regrets", "locks", "both"), default="both")
    parser.add_argument("--horizon", type=int, default=10**6)
    parser.add_argument("--repetitions", type=int, default=50)
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--device", choices=("cpu", "cuda", "auto"), default="cpu")
    parser.add_argument("--epsilons", type=float, nargs="*", default=EPSILONS)
    parser.add_argument("--arms", nargs="*", default=list(ARMS), help="only these, by label")
    parser.add_argument("--policies", nargs="*", default=[], help="only these, by name")
    options = parser.parse_args()
    if options.table != "locks":
        regrets(options)
    if options.table != "regrets":
        locks(options)


if __name__ == "__main__":
    main()
