"""Play a sweep on the workers of a dask cluster.

A task is some repetitions of a cell. Workers return them and the client writes them, so that no
file system is shared. The scheduler gives the tasks of a worker that dies to another one.
"""

import importlib
import importlib.metadata
import itertools
import logging
import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from balaclava._core.extras import require_extra
from balaclava.environments.base import Environment
from balaclava.errors import BalaclavaError, ClusterError
from balaclava.experiments.sweep import Cell, CellRepetitions, gpu_software, sources
from balaclava.policies.base import Policy
from balaclava.simulation.engine import Device, Progress, chosen_device, repetition_player
from balaclava.simulation.feedback import Feedback
from balaclava.simulation.gpu.device import device_error, gpu_fault
from balaclava.simulation.results import Run
from balaclava.simulation.results_file import versions

TASK_ROUNDS = 100_000_000  # rounds of a task: seconds, so that messages cost little
GPU_TASK_ROUNDS = 50_000_000_000  # the same on a GPU
_MOST_SCHEDULED_TASKS = 1000  # tasks that the scheduler holds at once: bounds its memory
_DASK_LOGGERS = ("distributed", "distributed.client", "distributed.core", "distributed.utils")
_RESUME = "finished repetitions are kept: run the same command again to resume"


def software(gpu: bool = True) -> dict[str, str]:
    """Versions and sources that must agree on all machines."""
    return {**versions(), "sources": sources(), **(gpu_software() if gpu else {})}


def play_part(
    policy: Policy,
    environment: Environment,
    checkpoints: np.ndarray,
    seed: int,
    feedback: Feedback,
    winners: bool,
    device: Device,
    repetitions: list[int],
    expected: dict[str, str],
) -> list[Run]:
    """Play repetitions of a cell; runs on a worker."""
    _require_same(expected, software())
    if chosen_device(device, feedback, winners, environment) == "cuda":
        from balaclava.simulation.gpu.launches import game_batches, play_in_turn

        pair = policy.name, policy, environment
        return list(play_in_turn(game_batches(*pair, checkpoints, seed, repetitions)))
    play = repetition_player(
        policy.name, policy, environment, checkpoints, seed, feedback, winners=winners
    )
    return [play(repetition, np.zeros(2, np.int64)) for repetition in repetitions]


def play_on_cluster(
    work: list[CellRepetitions], address: str, timeout: float, rounds: int, progress: Progress
) -> Generator[tuple[Cell, list[Run]]]:
    """Play the repetitions on the workers of the scheduler at `address`."""
    if not work:
        return
    with _connected(address, timeout) as client:
        gpu = any(cell.setting.device == "cuda" for cell, _ in work)
        expected = software(gpu)
        _require_workers(client, address, timeout, expected)
        if gpu:
            _require_gpus(client)
        for file in own_files(cell for cell, _ in work):
            client.upload_file(file)  # to the scheduler and to all workers, later ones too
        worlds: dict[int, Any] = {}

        def submit(cell: Cell, repetitions: list[int]) -> Any:
            setting, world = cell.setting, cell.setting.environment
            if id(world) not in worlds:
                # A separate task: sent once, and sent again if its worker dies.
                worlds[id(world)] = client.submit(_same, world, pure=False)
            return client.submit(
                play_part,
                cell.policy,
                worlds[id(world)],
                setting.rounds,
                setting.seed,
                setting.feedback,
                setting.winners,
                setting.device,
                repetitions,
                expected,
                key=f"balaclava-{cell.key}-{repetitions[0]}-{len(repetitions)}",
            )

        tasks = iter(_tasks(work))
        known = {submit(*task): task for task in itertools.islice(tasks, _MOST_SCHEDULED_TASKS)}
        rounds_so_far = 0
        progress(rounds_so_far, rounds)
        completed = _distributed().as_completed(known, loop=client.loop)
        for future in completed:
            cell, repetitions = known.pop(future)
            yield cell, _result(future, cell)
            rounds_so_far += cell.setting.horizon * len(repetitions)
            progress(rounds_so_far, rounds)
            for task in itertools.islice(tasks, 1):
                following = submit(*task)
                known[following] = task
                completed.add(following)


def own_files(cells: Iterable[Cell]) -> list[str]:
    """The modules that define policies and environments and belong to no installed package.

    Classes of a script travel with the tasks; an installed package must be on the workers.
    """
    installed, files = importlib.metadata.packages_distributions(), set()
    for cell in cells:
        for part in (cell.policy, cell.setting.environment):
            for each in (part, *vars(part).values()):  # a conversion has its base as a parameter
                name, _, rest = type(each).__module__.partition(".")
                file = getattr(sys.modules.get(name), "__file__", None)
                if file and not rest and name not in (*installed, *sys.stdlib_module_names):
                    files.add(file)
    return sorted(file for file in files if not file.endswith("__main__.py"))


def _tasks(work: list[CellRepetitions]) -> Iterator[CellRepetitions]:
    """Split the work into tasks of a few seconds."""
    for cell, repetitions in work:
        most = GPU_TASK_ROUNDS if cell.setting.device == "cuda" else TASK_ROUNDS
        size = max(1, most // cell.setting.horizon)
        for start in range(0, len(repetitions), size):
            yield cell, repetitions[start : start + size]


def _same(world: Environment) -> Environment:
    return world


def _result(future: Any, cell: Cell) -> list[Run]:
    distributed = _distributed()
    try:
        runs: list[Run] = future.result()
        return runs
    except BalaclavaError as error:
        raise type(error)(f"{cell}: {error}") from error
    except ModuleNotFoundError as error:
        raise ClusterError(
            f"{cell}: a worker lacks the module {error.name}; install the package that has it on "
            "every worker, or define the class in one module and give that by --import"
        ) from error
    except distributed.KilledWorker as error:
        raise ClusterError(
            f"{cell}: every worker that played it died, perhaps for lack of memory; {_RESUME}"
        ) from error
    except (distributed.CancelledError, OSError) as error:
        raise ClusterError(f"lost the connection to the scheduler; {_RESUME}") from error


def _distributed() -> Any:
    require_extra("distributed", "a cluster")
    return importlib.import_module("distributed")


@contextmanager
def _connected(address: str, timeout: float) -> Iterator[Any]:
    distributed = _distributed()
    try:  # a client with an invalid address could not be closed
        importlib.import_module("distributed.comm").resolve_address(address)
    except (OSError, ValueError) as error:
        raise ClusterError(
            f"{address!r} is not the address of a scheduler ({error}); give the one that `dask "
            "scheduler` prints, such as tcp://host:8786"
        ) from error
    with _silenced():
        try:
            client = distributed.Client(address, timeout=timeout, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            raise ClusterError(
                f"no scheduler answers at {address!r} within {timeout:g} s; start one with "
                "`dask scheduler`, and give the address that it prints"
            ) from error
        try:
            yield client
        finally:
            client.close(timeout=5)


@contextmanager
def _silenced() -> Iterator[None]:
    """Silence dask's logs of a lost connection; `ClusterError` says what to do."""
    loggers = [logging.getLogger(name) for name in _DASK_LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _require_workers(client: Any, address: str, timeout: float, expected: dict[str, str]) -> None:
    """Require a worker, and the same software on all of them."""
    try:
        client.wait_for_workers(1, timeout=timeout)
    except TimeoutError as error:
        raise ClusterError(
            f"no worker has joined the scheduler at {address!r} within {timeout:g} s; start some "
            f"with `dask worker {address}`"
        ) from error
    for worker, answer in client.run(software, on_error="return").items():
        if not isinstance(answer, dict):
            raise ClusterError(
                f"the worker at {worker} cannot run balaclava ({type(answer).__name__}: {answer}); "
                "install the same version there"
            )
        _require_same(expected, answer, f"at {worker}")


def _require_gpus(client: Any) -> None:
    for worker, fault in client.run(gpu_fault).items():
        if fault:
            raise device_error(f"the worker at {worker}: {fault}")


def _require_same(
    expected: dict[str, str], worker_versions: dict[str, str], which_worker: str = "of this task"
) -> None:
    differing = [name for name in expected if expected[name] != worker_versions.get(name)]
    if differing:
        here, there = (
            ", ".join(f"{name} {each.get(name)}" for name in differing)
            for each in (expected, worker_versions)
        )
        raise ClusterError(
            f"the worker {which_worker} has {there}, but this machine has {here}; install the same "
            "versions everywhere, since numbers could differ"
        )
