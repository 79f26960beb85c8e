"""The regret of one experiment with many deciders, by leases: `python benchmarks/deciders.py`.

Each cell: median regret, mean, and the 99 % quantile over the runs. `--term` is the number of
rounds after which unused slots expire, `--window` the number of decisions after which a reward
counts, and `--lost` the share of rewards that never come.
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
    """Print a line per problem and epsilon."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--horizon", type=int, default=10**6)
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--deciders", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 0.1])
    parser.add_argument("--term", type=int)
    parser.add_argument("--window", type=int)
    parser.add_argument("--lost", type=float, default=0.0)
    options = parser.parse_args()
    feedback = {}
    if options.window:
        delay = bl.Delay(mean=0, law="fixed", lost=options.lost)
        feedback = {
            "delay": delay,
            "settle": "window",
            "patience": options.window,
            "missing": 0.0,
        }
    elif options.lost:
        feedback = {"delay": bl.Delay(mean=0, law="fixed", lost=options.lost)}
    for name, means in PROBLEMS.items():
        for epsilon in options.epsilon:
            results = bl.simulate_deciders(
                bl.policy("dp-imed", arms=len(means), epsilon=epsilon),
                bl.environment("bernoulli", means=means),
                deciders=options.deciders,
                lease_rounds=options.term,
                horizon=options.horizon,
                repetitions=options.repetitions,
                seed=1,
                checkpoints=1,
                **feedback,
            )
            cells = []
            for label in results.labels:
                regret = results.final_regret(label)
                worst = np.quantile(regret, 0.99)
                cells.append(f"{np.median(regret):,.0f} / {regret.mean():,.0f} / {worst:,.0f}")
            print(
                f"{name}, epsilon {epsilon:g}".ljust(36), *(f"{c:>24}" for c in cells), flush=True
            )


if __name__ == "__main__":
    main()
