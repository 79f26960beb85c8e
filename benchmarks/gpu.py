"""Steps a second on a GPU, and agreement in distribution with the CPU, in one run.

    python benchmarks/gpu.py                 # every row: some minutes
    python benchmarks/gpu.py --quick         # fewer and shorter games
    python benchmarks/gpu.py dp-imed ucb1    # these policies only
    python benchmarks/gpu.py dp-se --registers 128 168 255  # of a thread, at most

The table is written to gpu.md in the folder $OUT (or out), row by row.

A step is one decision and its reward. Each row plays enough games to fill the device for up to half
a minute, after a launch that compiles. Its mean regret is compared with that of CPU threads, in
standard errors of the difference (z).

With more registers a thread, the GPU plays fewer games at once and spills fewer numbers to memory.
`--registers` compares such limits, with enough games to fill an H200 several times. Per
multiprocessor it plays 512, 384 or 256 at once with 128, 168 or 255 registers.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np

import balaclava as bl
from balaclava.simulation.engine import checkpoint_rounds
from balaclava.simulation.gpu import device_loop
from balaclava.simulation.gpu.launches import GameBatch, LaunchGroup

NINE = bl.environment("bernoulli", means=np.linspace(0.3, 0.7, 9))
MANY = bl.environment("bernoulli", means=np.linspace(0.3, 0.7, 101))
TAILS = bl.environment("pareto", means=np.linspace(0.1, 0.9, 5), shape=2.5)
LOSSES = bl.environment("stochastic-losses", means=[0.3] + [0.7] * 9)
HORIZON = 1_000_000
OUT = Path(os.environ.get("OUT", "out"))
TARGETS = {
    ("dp-se", 9): 5e10,
    ("dp-imed", 9): 4e10,
    ("ucb1", 9): 1e10,
    ("imed", 9): 1e10,
    ("dp-ftpl-gauss", 9): 9e9,
    ("kl-ucb", 9): 3.5e9,
    ("dp-ftpl-new", 9): 3.5e9,
    ("dpr-batch-ucb", 5): 1e10,
    ("dp-htinf", 10): 1e9,
}
GAMES = {"dp-ftpl-gauss": 67_584, "imed": 67_584, "kl-ucb": 67_584, "dp-ftpl-new": 67_584}
GAMES |= {"dp-htinf": 16_896}  # the others: 135,168
HEADS = (
    *("policy", "arms", "games", "rounds", "steps/s", "target", "compiled in, s"),
    *("mean regret", "median", "99.9 %", "CPU's mean", "z"),
)


FILLING = 132 * 1_536  # games: a multiple of what an H200 plays at once, with all these limits
LIMIT_HEADS = (
    *("policy", "arms", "registers, at most", "used", "bytes in local memory", "games at once"),
    *("games", "rounds", "steps/s", "mean regret"),
)


def rows(horizon: int) -> list[tuple[bl.Policy, bl.Environment]]:
    nine = {"arms": 9}
    return [
        (bl.policy("dp-se", epsilon=1.0, horizon=horizon, **nine), NINE),
        (bl.policy("dp-imed", epsilon=1.0, **nine), NINE),
        (bl.policy("dp-imed", epsilon=1.0, index="paper", batches="ratio", **nine), NINE),
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


def compiled(policy: bl.Policy, world: bl.Environment, games: int, horizon: int) -> LaunchGroup:
    """Games of a pair, compiled and ready to play."""
    return LaunchGroup(
        [GameBatch(policy.name, policy, world, checkpoint_rounds(1, horizon), games, 1)]
    )


def timed(group: LaunchGroup) -> tuple[float, np.ndarray]:
    """Steps per second without the first launch, and the final regrets."""
    spent: list[tuple[float, int]] = []
    (runs,) = group.play(lambda n: spent.append((time.perf_counter(), n)))
    regret = np.array([run.regret[-1] for run in runs])
    (start, _), *rest = spent
    return sum(n for _, n in rest) / (rest[-1][0] - start) if rest else math.nan, regret


def measure(
    policy: bl.Policy, world: bl.Environment, games: int, horizon: int, few: int
) -> tuple[str, ...]:
    """The cells of a row."""
    began = time.perf_counter()
    group = compiled(policy, world, games, horizon)
    ready = time.perf_counter()
    rate, regret = timed(group)
    cpu = bl.simulate(policy, world, horizon=horizon, repetitions=few, seed=2, checkpoints=1)
    there = cpu.final_regret(policy.name)
    error = math.sqrt(regret.var() / regret.size + there.var() / there.size)
    target = TARGETS.get((policy.name, policy.arms))
    numbers = regret.mean(), np.median(regret), np.quantile(regret, 0.999), there.mean()
    options = [str(policy.parameters[o]) for o in ("index", "batches") if o in policy.parameters]
    label = policy.name + (f" ({', '.join(options)})" if options else "")
    size = label, str(policy.arms), f"{games:,}", f"{horizon:,}"
    return (
        *(*size, f"{rate:.2e}", f"{target:.1e}" if target else "-", f"{ready - began:.1f}"),
        *(f"{number:,.1f}" for number in numbers),
        f"{(regret.mean() - there.mean()) / error:.2f}",
    )


def write(name: str, line: str) -> None:
    print(line, flush=True)
    OUT.mkdir(parents=True, exist_ok=True)
    with open(OUT / name, "a", encoding="utf-8") as file:
        file.write(line + "\n")


def measure_limit(
    policy: bl.Policy, world: bl.Environment, games: int, horizon: int, limit: int
) -> tuple[str, ...]:
    """The cells of a row, with a limit of registers per thread."""
    device_loop._loops.clear()
    usual, device_loop.MOST_REGISTERS = device_loop.MOST_REGISTERS, limit
    try:
        group = compiled(policy, world, games, horizon)
    finally:
        device_loop.MOST_REGISTERS = usual
    (kernel,) = group._loop.overloads.values()
    rate, regret = timed(group)
    threads = device_loop.BLOCK_THREADS
    return (
        *(policy.name, str(policy.arms), str(limit), str(kernel.regs_per_thread)),
        str(kernel.local_mem_per_thread),
        f"{kernel.max_cooperative_grid_blocks(threads) * threads:,}",
        *(f"{games:,}", f"{horizon:,}", f"{rate:.2e}", f"{regret.mean():,.1f}"),
    )


def row_of(
    policy: bl.Policy, world: bl.Environment, quick: bool, limit: int | None
) -> tuple[str, ...]:
    """The cells of a row; a row that fails does not stop the others."""
    games, horizon = GAMES.get(policy.name, 135_168), HORIZON
    if quick or policy.arms > 50:
        games, horizon = games // 8 if quick else games, 10_000 if quick else 100_000
    try:
        if limit is None:
            return measure(policy, world, games, horizon, 32)
        return measure_limit(policy, world, FILLING, horizon * games // 135_168, limit)
    except Exception as error:
        return policy.name, str(policy.arms), repr(error)[:200]


def main() -> None:
    from numba import cuda

    parser = argparse.ArgumentParser(description="Steps a second on a GPU.")
    parser.add_argument("policies", nargs="*")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--registers", type=int, nargs="+", default=[None])
    options = parser.parse_args()
    device = cuda.get_current_device()
    brand = device.name.decode() if isinstance(device.name, bytes) else device.name
    software = ", ".join(f"{part} {version(part)}" for part in ("numpy", "numba", "numba-cuda"))
    heads = HEADS if options.registers == [None] else LIMIT_HEADS
    write("gpu.md", "# Steps a second on a GPU\n")
    write("gpu.md", f"{brand}; Python {platform.python_version()}, {software}; {os.cpu_count()}")
    write("gpu.md", f"cores. Made by `python benchmarks/gpu.py`.\n\n| {' | '.join(heads)} |")
    write("gpu.md", "|---" * len(heads) + "|")
    for policy, world in rows(HORIZON):
        if not options.policies or policy.name in options.policies:
            for limit in options.registers:
                cells = row_of(policy, world, options.quick, limit)
                write("gpu.md", f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
