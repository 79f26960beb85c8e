"""Threads, memory, compilation and start-up, measured in separate processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import steps
from measuring import Line, in_turns

_GAMES = 8
COMPILED = ("ucb1", "dp-se", "dp-ftpl-new")

# Each child prints one JSON object. The peak is read from /proc if there is one: getrusage reports
# a peak inherited from the parent.
PLAY = """
import json, resource, sys, time
given = json.loads(sys.argv[1])
start = time.process_time()
import numba
loaded = time.process_time()
import balaclava as bl
world = bl.environment("bernoulli", means=given["means"])
policy = bl.policy(given["name"], **given["parameters"])
bl.simulate(policy, world, horizon=given["rounds"], repetitions=1, seed=1, workers=1)
done = time.process_time()
try:
    status = open("/proc/self/status").read()
    peak = int(status.split("VmHWM:")[1].split()[0])
except OSError:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"numba": loaded - start, "simulate": done - loaded, "peak": peak / 1024}))
"""


def child(*arguments: str, **environment: str) -> str:
    """The output of a new interpreter."""
    finished = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return finished.stdout


def play(name: str, rounds: int, **environment: str) -> dict[str, Any]:
    """Simulate a policy with 9 arms in a new process."""
    options = {
        "name": name,
        "parameters": steps.usual(name, max(rounds, 2)).parameters,
        "means": steps.PROBLEMS[9].tolist(),
        "rounds": rounds,
    }
    printed: dict[str, Any] = json.loads(child("-c", PLAY, json.dumps(options), **environment))
    return printed


def threads(quick: bool) -> list[Line]:
    """Two threads against one, in wall-clock time.

    The best of several, since other processes use the cores. The speed-up of a hand-written loop
    shows what the machine can give at the time.
    """
    rounds, repeats = (200_000, 3) if quick else (1_000_000, 9)
    rival = steps.RIVALS[0]
    contenders: dict[tuple[str, int], Callable[[], object]] = {}
    for workers in (1, 2):
        contenders["ours", workers] = partial(
            steps.simulate, rival.policy(9), rounds, repetitions=_GAMES, workers=workers
        )
        contenders["by hand", workers] = partial(_by_hand, rival, rounds, workers)
    wall = in_turns(contenders, repeats, time.perf_counter)
    best = {key: min(times) for key, times in wall.items()}
    gain = {who: best[who, 1] / best[who, 2] for who in ("ours", "by hand")}
    return [
        Line(
            "ucb1, 9 arms, two threads, times faster than one",
            f"{best['ours', 2]:.2f} s, {best['ours', 1]:.2f} s on one",
            f"{gain['by hand']:.2f} times by hand",
            gain["ours"],
            best["ours", 1] / max(wall["ours", 2]),
            max(wall["ours", 1]) / best["ours", 2],
            ">=",
            1.7,
        ),
    ]


def _by_hand(rival: steps.Rival, rounds: int, workers: int) -> None:
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(lambda _: rival.play(9, rounds), range(_GAMES)))


def memory(quick: bool) -> list[Line]:
    """The peak memory of a long run over that of a short run."""
    short, long = (100_000, 10_000_000) if quick else (1_000_000, 100_000_000)
    play("ucb1", 1)  # compiles it, so that neither of the two has to
    peaks = {
        horizon: [play("ucb1", horizon)["peak"] for _ in range(1 if horizon == long else 3)]
        for horizon in (short, long)
    }
    (peak,), others = peaks[long], sorted(peaks[short])
    return [
        Line(
            f"peak memory, {long:.0e} rounds over {short:.0e}",
            f"{peak:.0f} MiB",
            f"{others[1]:.0f} MiB",
            peak / others[1],
            peak / others[-1],
            peak / others[0],
            "<=",
            1.05,
        )
    ]


def compilation(quick: bool) -> list[Line]:
    """The first `simulate` of a new process, without and with machine code on disk."""
    rows = []
    for name in COMPILED[:1] if quick else COMPILED:
        with tempfile.TemporaryDirectory() as cache:
            first = play(name, 1, BALACLAVA_CACHE_DIR=cache)
            again = [play(name, 1, BALACLAVA_CACHE_DIR=cache) for _ in range(1 if quick else 3)]
        for what, runs, limit in (("compiling", [first], 5.0), ("cached", again, 1.0)):
            each = sorted(run["simulate"] for run in runs)
            imported = min(run["numba"] for run in runs)
            rows.append(
                Line(
                    f"{what} {name}, s",
                    f"{each[0]:.2f} s",
                    f"{each[0] + imported:.2f} s with import numba",
                    each[0],
                    each[0],
                    each[-1],
                    "<=",
                    limit,
                )
            )
    return rows


def start_up(quick: bool) -> list[Line]:
    """Import and help, in wall-clock time, best of several."""
    repeats = 3 if quick else 15
    timed = "import time; s = time.perf_counter(); import {}; print(time.perf_counter() - s)"
    imports = {
        module: sorted(float(child("-c", timed.format(module))) for _ in range(repeats))
        for module in ("numpy", "balaclava")
    }
    helps = []
    for _ in range(repeats):
        start = time.perf_counter()
        child("-m", "balaclava", "--help")
        helps.append(time.perf_counter() - start)
    ours, numpy = imports["balaclava"], imports["numpy"]
    return [
        Line(
            "import balaclava, s",
            f"{ours[0]:.3f} s",
            f"{numpy[0]:.3f} s import numpy",
            ours[0],
            ours[0],
            ours[-1],
            "<=",
            0.2,
        ),
        Line(
            "balaclava --help, s",
            f"{min(helps):.3f} s",
            "-",
            min(helps),
            min(helps),
            max(helps),
            "<=",
            0.4,
        ),
    ]
