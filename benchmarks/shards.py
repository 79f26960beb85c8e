"""The regret of spreading one experiment over shards: `python benchmarks/shards.py`.

Each cell: median regret, mean, and the 99 % quantile over the runs. `merge` is the number of
decisions, of all shards together, between two merges.
"""

from __future__ import annotations

import argparse

import numpy as np

import balaclava as bl

PROBLEMS = {
    "4 arms .55 .60 .65 .75": [0.55, 0.60, 0.65, 0.75],
    "9 arms .30 to .70": [0.30 + 0.05 * arm for arm in range(9)],
}


def main() -> None:
    """Print one table per problem."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--horizon", type=int, default=10**6)
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--merge", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--shards", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 0.1])
    asked = parser.parse_args()
    for name, means in PROBLEMS.items():
        world = bl.environment("bernoulli", means=means)
        for epsilon in asked.epsilon:
            policy = bl.policy("dp-imed", arms=len(means), epsilon=epsilon)
            for merge in asked.merge:
                results = bl.simulate_shards(
                    policy,
                    world,
                    shards=asked.shards,
                    merge_every=merge,
                    horizon=asked.horizon,
                    repetitions=asked.repetitions,
                    seed=1,
                    checkpoints=1,
                )
                cells = []
                for label in results.labels:
                    regret = results.final_regret(label)
                    worst = np.quantile(regret, 0.99)
                    cells.append(f"{np.median(regret):,.0f} / {regret.mean():,.0f} / {worst:,.0f}")
                heading = f"{name}, epsilon {epsilon:g}, merge {merge:,}"
                print(f"{heading:<50}", *(f"{cell:>24}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
