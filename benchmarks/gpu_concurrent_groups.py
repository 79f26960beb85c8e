"""The time to play groups of 90 games concurrently on a GPU: one of them, and all.

    CUDA_DEVICE_MAX_CONNECTIONS=32 python benchmarks/gpu_concurrent_groups.py
    ... --rounds 2     # games twice as long

One launch plays one group. The groups of a row differ only in their last round, so that they share
a compiled loop but no launch. Times exclude compilation. The columns show the cost of freeing
memory while others play, and of allocating states on the device. The engine does as in the last but
one.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import balaclava as bl
from balaclava.simulation.gpu import device_states
from balaclava.simulation.gpu.launches import DeviceMemory, GameBatch, play_batches

GAMES = 90
EVERYTHING, NOTHING = 1 << 40, 0  # bytes of an array up to which a host lays it out
WAYS = {
    "given back, by the host": (False, EVERYTHING),
    "given back, by the device": (False, NOTHING),
    "kept, by the host": (True, EVERYTHING),
    "kept, by the device": (True, NOTHING),
}
HEADS = ("", "one group", "groups", *(f"all, {way}" for way in WAYS))


def orders(name: str, arms: int, count: int, rounds: int, **parameters: Any) -> list[GameBatch]:
    """Groups of games of a policy."""
    world = bl.environment("bernoulli", means=np.linspace(0.3, 0.7, arms))
    policy = bl.policy(name, arms=arms, **parameters)
    return [GameBatch(name, policy, world, np.array([rounds + i]), GAMES, 1) for i in range(count)]


@contextmanager
def engine_that(keeps: bool, sends: int) -> Iterator[None]:
    """Set whether memory is kept until the end, and which arrays the host sends."""
    keep, sent = DeviceMemory.keep, device_states._MOST_SENT_BYTES
    if not keeps:
        DeviceMemory.keep = lambda memory, arrays: None  # type: ignore[method-assign]
    device_states._MOST_SENT_BYTES = sends
    try:
        yield
    finally:
        DeviceMemory.keep, device_states._MOST_SENT_BYTES = keep, sent  # type: ignore[method-assign]


def seconds(groups: list[GameBatch]) -> float:
    """Seconds until all groups are done."""
    began = time.perf_counter()
    for _ in play_batches(groups, lambda rounds: None):
        pass
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=float, default=1.0, help="times as many")
    times = parser.parse_args().rounds
    private = {"epsilon": 1.0, "delta": 0.01}
    rows = [
        orders("ucb1", 9, 32, int(500_000 * times)),
        orders("ucb1", 101, 32, int(25_000 * times)),
        orders("dp-ftpl-gauss", 9, 16, int(100_000 * times), **private),
        orders("kl-ucb", 101, 8, int(5_000 * times)),
    ]
    began = time.perf_counter()
    for sends in (EVERYTHING, NOTHING):
        with engine_that(True, sends):
            seconds([row[0]._replace(rounds=np.array([1])) for row in rows])
    print(f"compiled in {time.perf_counter() - began:.1f} s\n")
    print(f"| {' | '.join(HEADS)} |\n{'|---' * len(HEADS)}|")
    in_turn = 0.0
    for row in rows:
        first, alone = row[0], seconds(row[:1])
        in_turn += alone * len(row)
        label = f"{first.label}, {first.policy.arms} arms, {first.rounds[-1]:,} rounds"
        print(f"| {label} | {alone:.1f} | {len(row)}", end="", flush=True)
        for way in WAYS.values():
            with engine_that(*way):
                print(f" | {seconds(row):.1f}", end="", flush=True)
        print(" |", flush=True)
    groups = [order for row in rows for order in row]
    print(f"\nAll {len(groups)}: {seconds(groups):.1f} s; one after the other {in_turn:.0f} s")


if __name__ == "__main__":
    main()
