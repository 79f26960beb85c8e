"""Participants with many rewards: regret with Laplace and with Gaussian noise.

    python benchmarks/many_rewards.py [--rounds 100000] [--runs 100]

Each row protects k rewards of a participant together, at epsilon 1 and delta 1e-6. Laplace noise is
that of epsilon/k. Gaussian noise assumes that no two rewards of a participant are in one batch; the
last column does without the assumption.
"""

from __future__ import annotations

import argparse
import math

import balaclava as bl
from balaclava.privacy.accounting import gaussian_epsilon
from balaclava.privacy.mechanisms.analytic_gaussian import gaussian_shift

MEANS = [0.75, 0.65, 0.6, 0.55, 0.5, 0.45, 0.4, 0.35, 0.3]
EPSILON, DELTA = 1.0, 1e-6


def cell(rounds: int, runs: int, **noise: object) -> str:
    policy = bl.policy("dp-imed", arms=len(MEANS), horizon=rounds, **noise)
    world = bl.environment("bernoulli", means=MEANS)
    regret = bl.simulate(policy, world, horizon=rounds, repetitions=runs, seed=1)
    final = regret.final_regret("dp-imed")
    return f"{final.mean():,.0f} ± {1.96 * final.std(ddof=1) / math.sqrt(runs):,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=100)
    options = parser.parse_args()
    print("| rewards | Laplace | Gaussian, apart | Gaussian, in any batches |\n|---|---|---|---|")
    for k in (1, 5, 25, 100):
        cells = [cell(options.rounds, options.runs, epsilon=EPSILON / k)]
        for factor in (math.sqrt(k), k):
            epsilon = gaussian_epsilon(gaussian_shift(EPSILON, DELTA) / factor, DELTA)
            noise = {"epsilon": epsilon, "delta": DELTA, "noise": "gaussian"}
            cells.append(cell(options.rounds, options.runs, **noise))
        print(f"| {k} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
