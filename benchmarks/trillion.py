"""A sweep of 10^12 rounds on one GPU, with its time.

    python benchmarks/trillion.py              # about a minute and a half on an H200

Private policies on nine Bernoulli arms, at four values of epsilon, a million rounds a run, as many
runs as make 10^12 rounds in all. Finished cells are written to trillion.md in the folder $OUT (or
out): mean, tails and bad runs (above five medians), rounds, seconds.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np

import balaclava as bl

WORLD = bl.environment("bernoulli", means=np.linspace(0.3, 0.7, 9))
HORIZON = 10**6
ROUNDS = 10**12
EPSILONS = (3.0, 1.0, 0.3, 0.1)
SHARES = {"dp-se": 4, "dp-imed": 4, "dp-klucb": 2}  # of the rounds
OUT = Path(os.environ.get("OUT", "out"))


def write(line: str) -> None:
    print(line, flush=True)
    OUT.mkdir(parents=True, exist_ok=True)
    with open(OUT / "trillion.md", "a", encoding="utf-8") as file:
        file.write(line + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=float, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=150.0, help="after which it stops")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    options = parser.parse_args()
    began, total = time.perf_counter(), 0
    heads = ("policy", "epsilon", "runs", "mean", "median", "99.9 %", "99.99 %", "worst", "bad")
    write(f"| {' | '.join((*heads, 'rounds', 'seconds'))} |\n" + "|---" * (len(heads) + 2) + "|")
    for name, share in SHARES.items():
        for epsilon in EPSILONS:
            runs = int(
                -(-options.rounds * share // (sum(SHARES.values()) * len(EPSILONS) * HORIZON))
            )
            if time.perf_counter() - began > options.seconds:
                break
            extra = {"horizon": HORIZON} if name == "dp-se" else {}
            policy = bl.policy(name, arms=9, epsilon=epsilon, **extra)
            start = time.perf_counter()
            results = bl.simulate(
                policy,
                WORLD,
                horizon=HORIZON,
                repetitions=runs,
                seed=1,
                checkpoints=1,
                device=options.device,
            )
            spent = time.perf_counter() - start
            regret = results.final_regret(name)
            total += runs * HORIZON
            middle, *high = np.quantile(regret, (0.5, 0.999, 0.9999))
            numbers = (regret.mean(), middle, *high, regret.max())
            cells = [name, f"{epsilon:g}", f"{runs:,}", *(f"{number:,.0f}" for number in numbers)]
            cells += [f"{(regret > 5 * middle).mean():.1e}", f"{runs * HORIZON:.2e}"]
            write(f"| {' | '.join([*cells, f'{spent:.1f}'])} |")
    spent = time.perf_counter() - began
    write(
        f"\n{total:.3e} rounds in {spent:.0f} s: {total / spent:.2e} a second, compiling included."
    )


if __name__ == "__main__":
    main()
