"""How long the default audit of every private policy takes, in seconds of processor time.

python benchmarks/audit_speed.py [NAME ...] [--processes 2]

Each policy is audited twice, in new processes. The first run compiles. The second finds the machine
code on disk; the table reports it.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.full_audit import policy_of

import balaclava as bl


class Line(NamedTuple):
    """The time and the result of an audit."""

    name: str
    seconds: float
    wall: float
    verdict: str
    pairs: int
    games: int


def measure(name: str) -> Line:
    """Run the default audit of one policy."""
    policy, start, wall = policy_of(name), time.process_time(), time.perf_counter()
    report = bl.audit(policy, seed=1)
    seconds, wall = time.process_time() - start, time.perf_counter() - wall
    assert report.replay is not None
    games = getattr(report.statistical, "games", 0)
    return Line(name, seconds, wall, report.verdict, report.replay.pairs, games)


def main() -> None:
    """Print a line for each policy."""
    parser = argparse.ArgumentParser(description=__doc__)
    every = sorted(entry.name for entry in bl.list_policies() if entry.policy.model != "none")
    parser.add_argument("names", nargs="*", default=every)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    passes = []
    for _ in range(2):
        with ProcessPoolExecutor(
            options.processes, mp_context=get_context("spawn"), max_tasks_per_child=1
        ) as pool:
            passes.append(list(pool.map(measure, options.names)))
    print("| policy | compiling too, s | audit, s | elapsed, s | verdict | pairs | games |")
    print("|---|---|---|---|---|---|---|")
    for first, second in zip(*passes, strict=True):
        print(
            f"| {second.name} | {first.seconds:.1f} | {second.seconds:.1f} | {second.wall:.1f} | "
            f"{second.verdict} | {second.pairs:,} | {second.games:,} |"
        )


if __name__ == "__main__":
    main()
