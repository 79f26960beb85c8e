"""Run a sweep: play the missing repetitions, here or on a cluster, and keep them."""

import os
import re
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from balaclava._core.declared import Range, check
from balaclava.errors import DamageWarning, ResultsFileError
from balaclava.experiments.experiment_file import ExperimentPlan
from balaclava.experiments.sweep import (
    SUMMARY_FILE,
    Cell,
    CellRepetitions,
    Sweep,
    differences,
    plan_sweep,
    read_cell,
    read_manifest,
    write_manifest,
    write_runs,
)
from balaclava.simulation import engine
from balaclava.simulation.gpu.device import device_error, gpu_fault
from balaclava.simulation.moment_warnings import warn_of_moments
from balaclava.simulation.results import Run

KEEP_EVERY = 10.0  # seconds between two writes: the most work that a power cut loses
_GAMES_AT_ONCE = 1 << 16  # games of a GPU batch: they fill it, and an interrupt loses one batch
_TEMPORARY = re.compile(r"\..+\.\d+\.tmp\.\w+")

# Rounds played, total rounds, finished cells, total cells.
SweepProgress = Callable[[int, int, int, int], None]


def run_sweep(
    plan: ExperimentPlan,
    folder: str | os.PathLike[str],
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    timeout: float = 30.0,
    extend: bool = False,
    progress: SweepProgress | None = None,
    keep_every: float = KEEP_EVERY,
) -> Sweep:
    """Play the cells of a plan that a folder lacks.

    The final files are the same, byte for byte, however often the run was interrupted.

    Args:
        plan: what to play, from `read_plan(path)`.
        folder: where cells are kept; it is created if necessary.
        workers: threads; by default one per available core.
        scheduler: address of a dask scheduler whose workers play instead of this process.
        timeout: seconds to wait for the scheduler, and for its first worker.
        extend: add to the folder of another plan; cells that both have are not played again.
        progress: called with rounds played, total rounds, finished cells and total cells.
        keep_every: seconds between two writes of unfinished cells.

    Returns:
        The finished sweep.

    Raises:
        ResultsFileError: if the folder holds another sweep, is locked or cannot be written.
        ClusterError: if the scheduler or its workers cannot be used.
        KeyboardInterrupt: on Ctrl-C; every finished repetition is kept.
    """
    sweep = plan_sweep(plan, folder)
    threads = workers or plan.workers or engine.available_cores()
    check("workers", threads, Annotated[int, Range(1, 1024)])
    if scheduler is None:
        _require_gpu(sweep)
    with _claimed(sweep, extend):
        _discard_damaged(sweep)
        keeper = _Keeper(sweep, keep_every)
        work = keeper.missing()
        if work or extend:
            (sweep.folder / SUMMARY_FILE).unlink(missing_ok=True)
        for cell, _ in work:
            warn_of_moments(cell.policy_label, cell.policy, cell.setting.environment)
        rounds = sum(cell.setting.horizon * len(repetitions) for cell, repetitions in work)

        def report(rounds_so_far: int, rounds: int) -> None:
            if progress is not None:
                progress(rounds_so_far, rounds, keeper.finished, keeper.cells)

        if scheduler is None:
            source = _play_here(work, threads, rounds, report)
        else:
            from balaclava.experiments.cluster import play_on_cluster

            source = play_on_cluster(work, scheduler, timeout, rounds, report)
        try:
            with closing(source):
                for cell, runs in source:
                    keeper.add(cell, runs)
        except ResultsFileError as error:
            raise ResultsFileError(
                f"{error}; finished repetitions are kept: make room or fix the folder, then run "
                "the same command again"
            ) from error
        except BaseException:  # Ctrl-C above all
            keeper.keep()
            raise
        keeper.tidy()
    return sweep


def _require_gpu(sweep: Sweep) -> None:
    """Refuse unfinished GPU cells before anything is written, if there is no GPU."""
    if all(setting.get("device") != "cuda" for setting in sweep.manifest["settings"]):
        return
    fault = gpu_fault()
    if fault and any(c.setting.device == "cuda" and cell_state(c) != "done" for c in sweep.cells):
        raise device_error(fault)


def _discard_damaged(sweep: Sweep) -> None:
    """Delete finished cells that cannot be read, so that they are played again."""
    for cell in sweep.cells:
        if cell_state(cell) == "damaged":
            cell.path.unlink(missing_ok=True)
            warnings.warn(
                f"{cell.path} was damaged; {cell} is played again", DamageWarning, stacklevel=4
            )


def cell_state(cell: Cell) -> Literal["done", "damaged", "-"]:
    """Whether a cell is finished and its file intact."""
    if not cell.done:
        return "-"
    try:
        read_cell(cell)
    except ResultsFileError:
        return "damaged"
    return "done"


def _play_here(
    work: list[CellRepetitions], workers: int, rounds: int, progress: engine.Progress
) -> Generator[tuple[Cell, list[Run]]]:
    """Play GPU cells first, then the others on threads, without a pause between cells."""
    rounds_so_far = 0

    def report(further: int) -> None:
        nonlocal rounds_so_far
        rounds_so_far += further
        progress(rounds_so_far, rounds)

    for batch in _batches([part for part in work if part[0].setting.device == "cuda"]):
        yield from _play_on_gpu(batch, report)

    def jobs() -> Iterator[_CellJob]:
        for cell, repetitions in work:
            setting, policy = cell.setting, cell.policy
            if setting.device == "cuda":
                continue
            pair = policy.name, policy, setting.environment
            play = engine.repetition_player(
                *pair, setting.rounds, setting.seed, setting.feedback, winners=setting.winners
            )
            for repetition in repetitions:
                yield _CellJob(play, repetition, setting.horizon, cell=cell)

    with engine.Pool(workers) as pool:
        before = rounds_so_far
        for job, run in pool.finished(
            jobs(), rounds, lambda further, whole: progress(before + further, whole)
        ):
            yield job.cell, [run]


def _batches(work: list[CellRepetitions]) -> Iterator[list[CellRepetitions]]:
    """Group cells into batches that fill a GPU."""
    batch: list[CellRepetitions] = []
    games = 0
    for cell, repetitions in work:
        batch.append((cell, repetitions))
        games += len(repetitions)
        if games >= _GAMES_AT_ONCE:
            yield batch
            batch, games = [], 0
    if batch:
        yield batch


def _play_on_gpu(
    work: list[CellRepetitions], report: Callable[[int], None]
) -> Generator[tuple[Cell, list[Run]]]:
    """Play these repetitions concurrently; `report` gets the number of further rounds."""
    from balaclava.simulation.gpu.launches import game_batches, play_batches

    cells, batches = [], []
    for cell, repetitions in work:
        pair = cell.policy.name, cell.policy, cell.setting.environment
        for batch in game_batches(*pair, cell.setting.rounds, cell.setting.seed, repetitions):
            cells.append(cell)
            batches.append(batch)
    for number, run in play_batches(batches, report):
        yield cells[number], [run]


@dataclass(eq=False)
class _CellJob(engine.RepetitionJob):
    cell: Cell = field(kw_only=True)


@dataclass
class _Open:
    """An unfinished cell."""

    cell: Cell
    runs: dict[int, Run] = field(default_factory=dict)
    unsaved: list[Run] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)


class _Keeper:
    """Writes repetitions: parts of unfinished cells, and whole finished cells."""

    def __init__(self, sweep: Sweep, every: float) -> None:
        self._sweep = sweep
        self._every = every
        self._last = time.monotonic()
        self._parts = sweep.folder / "parts"
        parts = sweep.parts()
        self._open: dict[str, _Open] = {}  # by key: equal cells with two labels are played once
        keys = set()
        for cell in sweep.cells:
            keys.add(cell.key)
            if not cell.done and cell.key not in self._open:
                runs = {run.repetition: run for run in _intact_parts(sweep, cell, parts)}
                self._open[cell.key] = _Open(cell, runs, files=parts.get(cell.key, []))
        self.cells = len(keys)
        for state in list(self._open.values()):
            self._close_if_complete(state)

    @property
    def finished(self) -> int:
        return self.cells - len(self._open)

    def missing(self) -> list[CellRepetitions]:
        return [
            (state.cell, [i for i in range(state.cell.setting.repetitions) if i not in state.runs])
            for state in self._open.values()
        ]

    def add(self, cell: Cell, runs: Iterable[Run]) -> None:
        state = self._open[cell.key]
        for run in runs:
            state.runs[run.repetition] = run
            state.unsaved.append(run)
        self._close_if_complete(state)
        if time.monotonic() - self._last > self._every:
            self.keep()

    def keep(self) -> None:
        """Write the repetitions that are in no file yet."""
        for state in self._open.values():
            if state.unsaved:
                first = min(run.repetition for run in state.unsaved)
                self._parts.mkdir(exist_ok=True)
                path = self._parts / f"{state.cell.key}-{first}.parquet"
                write_runs(state.cell, state.unsaved, path)
                state.files.append(path)
                state.unsaved.clear()
        self._last = time.monotonic()

    def tidy(self) -> None:
        """Remove the parts of interrupted runs."""
        for path in (path for paths in self._sweep.parts().values() for path in paths):
            path.unlink()
        if self._parts.exists():
            self._parts.rmdir()

    def _close_if_complete(self, state: _Open) -> None:
        if len(state.runs) == state.cell.setting.repetitions:
            write_runs(state.cell, state.runs.values(), state.cell.path)
            for path in state.files:
                path.unlink(missing_ok=True)
            del self._open[state.cell.key]


def _intact_parts(sweep: Sweep, cell: Cell, parts: dict[str, list[Path]]) -> list[Run]:
    """The repetitions in a cell's parts; damaged parts are deleted."""
    try:
        return sweep.kept(cell, parts)
    except ResultsFileError:
        for path in parts.pop(cell.key):
            path.unlink()
        return []


@contextmanager
def _claimed(sweep: Sweep, extend: bool) -> Iterator[None]:
    """Lock the folder for this process, and write the sweep's manifest."""
    folder = sweep.folder
    try:
        (folder / "cells").mkdir(parents=True, exist_ok=True)
        lock = _locked(folder)
    except OSError as error:
        raise ResultsFileError(
            f"{folder} cannot be created or written: {error.strerror}; choose another folder"
        ) from error
    try:
        old = read_manifest(folder)
        if old is not None and not extend and (why := differences(old, sweep.manifest)):
            raise ResultsFileError(
                f"{folder} holds another sweep, {old['name']!r}: {why}; choose another folder, or "
                "add to this one with --extend, which plays only the missing cells"
            )
        for place in (folder, folder / "cells", folder / "parts"):
            for path in place.glob(".*.tmp.*"):
                if _TEMPORARY.fullmatch(path.name):
                    path.unlink()
        if old is not None:
            took_part = [*old["machines"], *sweep.manifest["machines"]]
            sweep.manifest["machines"] = [
                one for i, one in enumerate(took_part) if one not in took_part[:i]
            ]
        if old != sweep.manifest:
            write_manifest(sweep)
        yield
    finally:
        if lock is not None:
            os.close(lock)


def _locked(folder: Path) -> int | None:
    """Lock the folder and return the handle to close; None on Windows, which lacks this lock."""
    try:
        import fcntl
    except ImportError:
        return None
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise ResultsFileError(
            f"{folder} is in use by another run; wait for it, or choose another folder"
        ) from None
    except OSError:
        pass  # a file system without locks
    return handle
