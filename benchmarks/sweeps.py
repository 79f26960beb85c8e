"""The overhead of a sweep over plain simulation: `python benchmarks/sweeps.py`.

The overhead of cells on disk, the time until a large sweep resumes, and the speed of a local
cluster. Do not quote the numbers of `--quick`.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import balaclava as bl
import steps
from balaclava.experiments.experiment_file import ExperimentPlan, SimulationSetting
from balaclava.experiments.sweep import open_sweep, read_cell, write_runs
from balaclava.experiments.sweep_runner import run_sweep
from measuring import Line, in_turns, ratios, table
from processes import child

# Ten thousand cells: 5 environments, 2 horizons, 1000 policies.
MANY = """
horizon = [10, 20]
repetitions = 1
seed = 1
checkpoints = 2

[environments.pair]
name = "bernoulli"
means = {{ grid = [[0.5, 0.55], [0.5, 0.6], [0.5, 0.65], [0.5, 0.7], [0.5, 0.75]] }}

[policies.dp-se]
epsilon = {{ log = [0.01, 10, {epsilons}] }}
radius_scale = {{ linear = [0.1, 1, 10] }}
"""

# In a new process, imports included: everything until the one missing cell has been played.
RESUME = """
import json, sys, time
start, spent = time.perf_counter(), time.process_time()
from balaclava.experiments.experiment_file import read_plan
from balaclava.experiments.sweep_runner import run_sweep
from balaclava.experiments.sweep import plan_sweep
cells = plan_sweep(read_plan(sys.argv[1]), sys.argv[2]).cells
listed = time.perf_counter() - start, time.process_time() - spent
assert sum(not cell.done for cell in cells) == 1
start, spent = time.perf_counter(), time.process_time()
run_sweep(read_plan(sys.argv[1]), sys.argv[2])
print(json.dumps([listed, (time.perf_counter() - start, time.process_time() - spent)]))
"""


def plan(cells: int, horizon: int, repetitions: int) -> ExperimentPlan:
    """UCB1 at nine arms, with a different bonus in each cell."""
    world = bl.environment("bernoulli", means=steps.PROBLEMS[9])
    policies = {str(i): bl.policy("ucb1", arms=9, radius_scale=1 + i / 1000) for i in range(cells)}
    return ExperimentPlan(
        "bench", (SimulationSetting(policies, world, horizon, repetitions, seed=1),)
    )


def overhead(quick: bool) -> list[Line]:
    """A sweep against plain simulation of the same policies, and the disk alone.

    Processor time excludes the disk, so the best wall-clock time to write a cell is compared with
    the time to play it.
    """
    cells = plan(3, 100_000 if quick else 1_000_000, 20 if quick else 50)
    (one,) = cells.settings
    folders = map(str, itertools.count())
    with tempfile.TemporaryDirectory() as room:
        seconds = in_turns(
            {
                "plain": lambda: bl.simulate(
                    one.policies,
                    one.environment,
                    horizon=one.horizon,
                    repetitions=one.repetitions,
                    seed=one.seed,
                    workers=1,
                ),
                "sweep": lambda: run_sweep(cells, Path(room) / next(folders), workers=1),
            },
            3 if quick else 5,
        )
        cell = open_sweep(Path(room) / "0").cells[0]
        runs = read_cell(cell)
        writing = []
        for i in range(50):
            start = time.perf_counter()
            write_runs(cell, runs, Path(room) / f"{i}.parquet")
            writing.append(time.perf_counter() - start)
    plain, ours = (min(seconds[who]) / 3 for who in ("plain", "sweep"))
    return [
        Line(
            "a cell of a sweep, over plain simulation, processor time",
            f"{ours:.3f} s",
            f"{plain:.3f} s",
            ours / plain,
            *ratios(seconds["sweep"], seconds["plain"])[1:],
            "<=",
            1.05,
        ),
        Line(
            "writing a cell, over playing it for a second",
            f"{1e3 * min(writing):.1f} ms",
            "1 s",
            min(writing),
            min(writing),
            max(writing),
            "<=",
            0.05,
        ),
    ]


def many(quick: bool) -> list[Line]:
    """A sweep of ten thousand cells with one unfinished: listed, and resumed."""
    repeats, epsilons = (1, 2) if quick else (5, 100)
    seconds: dict[str, list[tuple[float, float]]] = {"listed": [], "resumed": []}
    with tempfile.TemporaryDirectory() as room:
        file, out = Path(room) / "many.toml", Path(room) / "out"
        file.write_text(MANY.format(epsilons=epsilons))
        print(child("-m", "balaclava", "simulate", str(file), "--out", str(out))[-80:].strip())
        cells = open_sweep(out).cells
        for repeat in range(repeats):
            cells[repeat].path.unlink()
            printed = json.loads(child("-c", RESUME, str(file), str(out)))
            for what, pair in zip(seconds, printed, strict=True):
                seconds[what].append(tuple(pair))
    lines = []
    for what, pairs in seconds.items():
        wall, spent = (sorted(column) for column in zip(*pairs, strict=True))
        lines.append(
            Line(
                f"{len(cells)} cells {what}, s of processor time",
                f"{spent[0]:.2f} s",
                f"{wall[0]:.2f} s on the wall, at best",
                spent[0],
                spent[0],
                spent[-1],
                "<=",
                2.0,
            )
        )
    return lines


def cluster(quick: bool) -> list[Line]:
    """Two local worker processes against two threads of one process."""
    distributed: Any = importlib.import_module("distributed")
    cells = plan(6, 100_000 if quick else 1_000_000, 10 if quick else 50)
    tasks = plan(100 if quick else 400, 10, 1)
    folders = map(str, itertools.count())
    workers = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0")
    with (
        tempfile.TemporaryDirectory() as room,
        workers as there,
    ):

        def play(what: ExperimentPlan, scheduler: str | None) -> None:
            run_sweep(what, Path(room) / next(folders), workers=2, scheduler=scheduler)

        seconds = in_turns(
            {
                "here": lambda: play(cells, None),
                "there": lambda: play(cells, there.scheduler_address),
            },
            1 if quick else 3,
            time.perf_counter,
        )
        small = in_turns(
            {
                "here": lambda: play(tasks, None),
                "there": lambda: play(tasks, there.scheduler_address),
            },
            1 if quick else 3,
            time.perf_counter,
        )
    here, beyond = (statistics.median(seconds[who]) for who in ("here", "there"))
    each = [1e3 * s / len(tasks.settings[0].policies) for s in small["there"]]
    at_home = [1e3 * s / len(tasks.settings[0].policies) for s in small["here"]]
    return [
        Line(
            "two worker processes, over two threads",
            f"{beyond:.2f} s",
            f"{here:.2f} s",
            *ratios(seconds["there"], seconds["here"]),
        ),
        Line(
            "a cell of no work on a cluster, ms",
            f"{min(each):.1f} ms",
            f"{min(at_home):.1f} ms here",
            min(each),
            min(each),
            max(each),
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what sweeps cost.")
    parser.add_argument("--quick", action="store_true", help="short runs, rough numbers")
    groups = {"overhead": overhead, "many": many, "cluster": cluster}
    parser.add_argument("--only", nargs="+", choices=groups, default=list(groups))
    options = parser.parse_args()
    for name in options.only:
        print(table(groups[name](options.quick)), flush=True)


if __name__ == "__main__":
    main()
