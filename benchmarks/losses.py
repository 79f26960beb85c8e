"""The gain of central over local privacy when an adversary chooses the losses.

    python benchmarks/losses.py    # 10^6 rounds, 10 arms, one of them better by 0.4: two minutes
    python benchmarks/losses.py --device cuda --runs 1000

Mean regret, with its 95 % interval, of dp-htinf and of ldp-exp3, whose losses each device reports
with noise. ldp-exp3 runs at the learning rate of its proof and at the best rate for this problem.
Random play has 360,000.
"""

from __future__ import annotations

import argparse

import numpy as np

import balaclava as bl
from balaclava.environments.hard_losses import hidden_best

ARMS, HORIZON, SEED = 10, 10**6, 20_262
SCALES = (1.0, 4.0, 16.0, 64.0, 256.0)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    arguments.add_argument("--runs", type=int, default=10)
    options = arguments.parse_args()
    world = hidden_best(arms=ARMS, horizon=HORIZON, gap=0.4)
    print("| epsilon | dp-htinf | ldp-exp3 | ldp-exp3, best rate |\n|---|---|---|---|")
    for epsilon in (1.0, 0.1, 0.03, 0.01, 0.001):
        shared = {"arms": ARMS, "horizon": HORIZON, "epsilon": epsilon}
        policies = {"dp-htinf": bl.policy("dp-htinf", **shared)}
        for scale in SCALES:
            policies[f"ldp {scale:g}"] = bl.policy("ldp-exp3", learning_rate_scale=scale, **shared)
        results = bl.simulate(
            policies,
            world,
            horizon=HORIZON,
            repetitions=options.runs,
            seed=SEED,
            checkpoints=1,
            device=options.device,
        )
        mean = {label: float(results.final_regret(label).mean()) for label in policies}
        half = 1.96 * results.final_regret("dp-htinf").std(ddof=1) / np.sqrt(options.runs)
        best = min(mean[f"ldp {scale:g}"] for scale in SCALES)
        cells = f"{mean['dp-htinf']:,.0f} ± {half:,.0f} | {mean['ldp 1']:,.0f} | {best:,.0f}"
        print(f"| {epsilon:g} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
