"""Published figures, run again: their registry, and what a reproduction leaves behind."""

from __future__ import annotations

import csv
import dataclasses
import importlib
import os
import pkgutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from balaclava._core.declared import brief
from balaclava._core.files import atomically
from balaclava.errors import ParameterError, ResultsFileError, UnknownNameError, nearest
from balaclava.simulation.engine import Progress, simulate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from balaclava.environments.base import Environment
    from balaclava.policies.base import Policy
    from balaclava.simulation.results import Results, Run

SCALES = ("quick", "paper")
_TESTING = "tiny"  # for the package's own tests: says nothing about a figure


@dataclass(frozen=True)
class Reproduction:
    """A figure run again: where the files are, what they show, and the results behind them."""

    name: str
    scale: str
    text: str
    files: tuple[Path, ...]
    results: dict[str, Results]  # of each panel; none where nothing is played

    def __str__(self) -> str:
        return self.text


class Panel(NamedTuple):
    """Policies that are played on one environment."""

    policies: Mapping[str, Policy]
    environment: Environment


class Size(NamedTuple):
    """How much is played."""

    horizon: int
    repetitions: int

    def __str__(self) -> str:
        many = "s" if self.repetitions > 1 else ""
        return f"{self.repetitions} repetition{many} of {self.horizon:,} rounds"


@dataclass
class Desk:
    """Where a figure is made: it plays, and takes in what is to be kept."""

    name: str
    scale: str
    folder: Path
    workers: int | None = None
    progress: Progress | None = None
    files: list[Path] = field(default_factory=list)
    results: dict[str, Results] = field(default_factory=dict)

    def play(
        self, panels: Mapping[str, Panel], size: Size, *, seed: int, checkpoints: int = 200
    ) -> dict[str, Results]:
        """Play every panel; each is on disk as soon as it is played.

        A policy that an earlier panel played on the same environment is not played again: with
        the same seed it would do the same.
        """
        fresh = _first_met(panels)
        runs: dict[Any, dict[int, Run]] = {}
        each = size.repetitions * size.horizon
        total = each * sum(map(len, fresh.values()))
        before = 0
        for letter, (policies, world) in panels.items():
            played = simulate(
                fresh[letter],
                world,
                horizon=size.horizon,
                repetitions=size.repetitions,
                seed=seed,
                checkpoints=checkpoints,
                workers=self.workers,
                progress=self._progress(before, total),
            )
            before += each * len(fresh[letter])
            for label, policy in fresh[letter].items():
                runs[label, policy, world] = played.runs[label]
            all_runs = {label: runs[label, policy, world] for label, policy in policies.items()}
            results = dataclasses.replace(played, policies=dict(policies), runs=all_runs)
            results.save(self._path(f"{letter}.parquet"))
            self.results[letter] = results
        return self.results

    def _progress(self, before: int, total: int) -> Progress | None:
        tell = self.progress
        return None if tell is None else lambda played, _: tell(before + played, total)

    def picture(self, figure: Figure, ending: str = "") -> None:
        """Keep a picture, under the figure's name."""
        with atomically(self._path(f"{ending}.png")) as temporary:
            figure.savefig(temporary, format="png")

    def table(self, columns: Mapping[str, Any]) -> None:
        """Keep columns of equal length."""
        rows = zip(*(np.asarray(column).tolist() for column in columns.values()), strict=True)
        path = self._path(".csv")
        with atomically(path) as temporary, open(temporary, "w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(rows)

    def note(self, text: str) -> None:
        """Keep the text."""
        with atomically(self._path(".txt")) as temporary:
            temporary.write_text(text + "\n", encoding="utf-8")

    def _path(self, ending: str) -> Path:
        path = self.folder / f"{self.name}{ending}"
        self.files.append(path)
        return path


def _first_met(panels: Mapping[str, Panel]) -> dict[str, dict[str, Policy]]:
    """Of each panel, the policies that no earlier one plays on the same environment."""
    met: set[Any] = set()
    fresh = {}
    for letter, (policies, world) in panels.items():
        keys = {label: (label, policy, world) for label, policy in policies.items()}
        fresh[letter] = {label: policies[label] for label, key in keys.items() if key not in met}
        met.update(keys.values())
    return fresh


class FigureEntry(NamedTuple):
    """A figure that can be run again."""

    name: str
    title: str
    reference: str
    make: Callable[[Desk], str]  # draws, keeps, and returns the text


_FIGURES: dict[str, FigureEntry] = {}


def figure(name: str, title: str, reference: str) -> Callable[[Any], Any]:
    """Register a function that makes a figure."""

    def mark(make: Callable[[Desk], str]) -> Callable[[Desk], str]:
        _FIGURES[name] = FigureEntry(name, title, reference, make)
        return make

    return mark


def figures() -> list[FigureEntry]:
    """Every figure that can be run again."""
    package = importlib.import_module("balaclava.papers")
    for module in pkgutil.walk_packages(package.__path__, "balaclava.papers."):
        importlib.import_module(module.name)
    return list(_FIGURES.values())


def reproduce(
    figure: str,
    *,
    scale: str = "quick",
    out: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Reproduction:
    """Run a published figure again: its picture, its data, and a text that compares.

    Args:
        figure: its name, such as "wang2024-fig4"; `balaclava reproduce --list` shows all.
        scale: "quick" for a look in seconds, "paper" for the paper's own numbers.
        out: the folder to write to; by default one with the figure's name, in the current folder.
        workers: threads; by default one for each core.
        progress: called with the rounds played and the rounds in all.

    Example:
        >>> import balaclava as bl, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     done = bl.reproduce("wang2024-fig1", out=folder)
        >>> [path.name for path in done.files]
        ['wang2024-fig1.csv', 'wang2024-fig1.png', 'wang2024-fig1.txt']
    """
    entries = {entry.name: entry for entry in figures()}
    if figure not in entries:
        raise UnknownNameError(f"no figure is called {figure!r}; {nearest(str(figure), entries)}")
    if scale not in (*SCALES, _TESTING):
        raise ParameterError(
            f"scale = {brief(scale)} is not allowed; give one of {', '.join(SCALES)}"
        )
    folder = Path(figure if out is None else out)
    _open(folder)
    desk = Desk(figure, scale, folder, workers, progress)
    text = entries[figure].make(desk)
    desk.note(text)
    return Reproduction(figure, scale, text, tuple(desk.files), desk.results)


def _open(folder: Path) -> None:
    """Make the folder, and try it: better to fail now than after an hour."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ResultsFileError(
            f"out = {brief(os.fspath(folder))} cannot be written to: {error.strerror}; choose "
            "another folder"
        ) from error
