"""Steps a second on a GPU, and agreement in law with the CPU, in one run.

    python benchmarks/gpu.py                 # every row: some minutes
    python benchmarks/gpu.py --quick         # fewer and shorter games
    python benchmarks/gpu.py dp-imed ucb1    # these policies only

A step is one decision and its reward. Each row is timed with as many games as fill the device,
after a launch that compiles; the mean regret beside it is compared with that of CPU threads, in
standard errors of the difference (z).
"""

from __future__ import annotations

import math
import sys
import time

import numpy as np

import balaclava as bl
from balaclava.simulation.engine import checkpoint_rounds
from balaclava.simulation.gpu.engine import DevicePair

NINE = bl.environment("bernoulli", means=np.linspace(0.3, 0.7, 9))
MANY = bl.environment("bernoulli", means=np.linspace(0.3, 0.7, 101))
TAILS = bl.environment("pareto", means=np.linspace(0.1, 0.9, 5), shape=2.5)
LOSSES = bl.environment("stochastic-losses", means=[0.3] + [0.7] * 9)
HORIZON = 1_000_000


def rows(horizon: int) -> list[tuple[bl.Policy, bl.Environment]]:
    nine = {"arms": 9}
    return [
        (bl.policy("dp-se", epsilon=1.0, horizon=horizon, **nine), NINE),
        (bl.policy("dp-imed", epsilon=1.0, **nine), NINE),
        (bl.policy("ucb1", **nine), NINE),
        (bl.policy("imed", **nine), NINE),
        (bl.policy("dp-ftpl-gauss", epsilon=1.0, delta=0.01, **nine), NINE),
        (bl.policy("kl-ucb", **nine), NINE),
        (bl.policy("dp-ftpl-new", epsilon=1.0, delta=0.01, horizon=horizon, **nine), NINE),
        (
            bl.policy(
                "dpr-batch-ucb",
                arms=5,
                epsilon=1.0,
                moment_order=1.9,
                moment_bound=TAILS.moment(1.9),
                horizon=horizon,
            ),
            TAILS,
        ),
        (bl.policy("dp-htinf", arms=10, epsilon=1.0, horizon=horizon), LOSSES),
        (bl.policy("ucb1", arms=101), MANY),
        (bl.policy("dp-imed", arms=101, epsilon=1.0), MANY),
    ]


def measure(policy: bl.Policy, world: bl.Environment, games: int, horizon: int, few: int) -> str:
    rounds = checkpoint_rounds(1, horizon)
    began = time.perf_counter()
    pair = DevicePair(policy.name, policy, world)
    ready = time.perf_counter()
    spent: list[tuple[float, int]] = []
    regrets = []
    for run in pair.play(rounds, games, 1, lambda n: spent.append((time.perf_counter(), n))):
        regrets.append(run.regret[-1])
    (start, _), *rest = spent
    rate = sum(n for _, n in rest) / (rest[-1][0] - start) if rest else math.nan
    regret = np.array(regrets)
    cpu_began = time.perf_counter()
    cpu = bl.simulate(policy, world, horizon=horizon, repetitions=few, seed=2, checkpoints=1)
    cpu_rate = few * horizon / (time.perf_counter() - cpu_began)
    there = cpu.final_regret(policy.name)
    error = math.sqrt(regret.var() / regret.size + there.var() / there.size)
    z = (regret.mean() - there.mean()) / error
    return (
        f"{policy.name:14s} arms {policy.arms:3d}  {rate:8.2e} steps/s  "
        f"compile {ready - began:4.1f} s  "
        f"regret {regret.mean():9.1f} median {np.median(regret):9.1f} 99.9 % "
        f"{np.quantile(regret, 0.999):9.1f}  cpu {there.mean():9.1f} z {z:5.2f}  "
        f"cpu {cpu_rate:8.2e} steps/s"
    )


def main(arguments: list[str]) -> None:
    from numba import cuda

    quick = "--quick" in arguments
    names = {name for name in arguments if not name.startswith("-")}
    device = cuda.get_current_device()
    print(device.name, "compute capability", device.compute_capability, flush=True)
    games = 16_896 if quick else 270_336
    horizon = 10_000 if quick else 100_000
    for policy, world in rows(HORIZON):
        if not names or policy.name in names:
            count = games // 8 if policy.arms > 50 else games
            print(measure(policy, world, count, horizon, 64 if quick else 256), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
