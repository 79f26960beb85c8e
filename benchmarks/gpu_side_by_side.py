"""What it takes to play groups of 90 games side by side on a GPU, one after the other and at once.

    CUDA_DEVICE_MAX_CONNECTIONS=32 python benchmarks/gpu_side_by_side.py

A group is what one launch plays. Groups of one row differ in their last round alone, so that they
share a compiled loop and no launch. Compilation is left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import balaclava as bl
from balaclava.simulation.gpu.engine import Group, Order
from balaclava.simulation.side_by_side import side_by_side

GAMES = 90


def groups(name: str, arms: int, count: int, rounds: int, **parameters: Any) -> list[Group]:
    """So many groups of a policy, compiled."""
    world = bl.environment("bernoulli", means=np.linspace(0.3, 0.7, arms))
    policy = bl.policy(name, arms=arms, **parameters)
    lengths = (np.array([rounds + i]) for i in range(count))
    return [Group([Order(name, policy, world, length, GAMES, 1)]) for length in lengths]


def seconds(played: Sequence[Group]) -> float:
    """Until all of them are done, side by side."""

    def task(group: Group) -> Callable[[Any], Any]:
        return lambda go_on: group.play()

    began = time.perf_counter()
    list(side_by_side([task(group) for group in played], len(played)))
    return time.perf_counter() - began


def main() -> None:
    kinds = {
        "ucb1, 9 arms, 10^6 rounds": groups("ucb1", 9, 32, 1_000_000),
        "ucb1, 101 arms, 50,000": groups("ucb1", 101, 32, 50_000),
        "dp-ftpl-gauss, 9 arms, 200,000": groups(
            "dp-ftpl-gauss", 9, 16, 200_000, epsilon=1.0, delta=0.01
        ),
        "kl-ucb, 101 arms, 10,000": groups("kl-ucb", 101, 8, 10_000),
    }
    in_turn = 0.0
    for kind, members in kinds.items():
        alone, together = seconds(members[:1]), seconds(members)
        in_turn += alone * len(members)
        print(f"| {kind} | {alone:.1f} | {len(members)} | {together:.1f} |", flush=True)
    everything = [group for members in kinds.values() for group in members]
    print(f"all: {seconds(everything):.1f} s, one after the other {in_turn:.0f}")


if __name__ == "__main__":
    main()
