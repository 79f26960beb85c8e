"""Where a figure is made: it plays panels, and keeps data, pictures and findings."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from balaclava._core.atomic_files import atomically
from balaclava.papers.harness.figure_text import FigureText
from balaclava.simulation.engine import Device, Progress
from balaclava.simulation.simulation_batches import Simulation, simulate_all

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from balaclava.environments.base import Environment
    from balaclava.policies.base import Policy
    from balaclava.simulation.results import Results, Run


class FigurePanel(NamedTuple):
    """Policies that are played on one environment."""

    policies: Mapping[str, Policy]
    environment: Environment


class RunSize(NamedTuple):
    """How much is played."""

    horizon: int
    repetitions: int

    def __str__(self) -> str:
        many = "s" if self.repetitions > 1 else ""
        return f"{self.repetitions} repetition{many} of {self.horizon:,} rounds"


@dataclass
class FigureRun:
    """Where a figure is made: it plays, and takes in what is to be kept."""

    name: str
    scale: str
    folder: Path
    workers: int | None = None
    progress: Progress | None = None
    device: Device = "cpu"
    files: list[Path] = field(default_factory=list)
    results: dict[str, Results] = field(default_factory=dict)

    def play(
        self,
        panels: Mapping[str, FigurePanel],
        sizes: RunSize | Mapping[str, RunSize],
        *,
        seed: int,
        checkpoints: int = 200,
    ) -> dict[str, Results]:
        """Play every panel, all as much or each by its letter; on disk as soon as it is played.

        A policy that an earlier panel played as long on the same environment is not played again:
        with the same seed it would do the same.
        """
        if isinstance(sizes, RunSize):
            sizes = dict.fromkeys(panels, sizes)
        fresh = _first_met(panels, sizes)
        runs: dict[Any, dict[int, Run]] = {}
        new = [(FigurePanel(fresh[each], panels[each].environment), sizes[each]) for each in panels]
        played = self.simulate(new, seed=seed, checkpoints=checkpoints)
        for (letter, (policies, world)), panel_results in zip(panels.items(), played, strict=True):
            size = sizes[letter]
            for label, policy in fresh[letter].items():
                runs[label, policy, world, size] = panel_results.runs[label]
            all_runs = {
                label: runs[label, policy, world, size] for label, policy in policies.items()
            }
            results = dataclasses.replace(panel_results, policies=dict(policies), runs=all_runs)
            results.save(self._path(f"{letter}.parquet"))
            self.results[letter] = results
        return self.results

    def simulate(
        self,
        panels: Sequence[tuple[FigurePanel, RunSize]],
        *,
        seed: int,
        checkpoints: int | np.ndarray,
    ) -> Iterator[Results]:
        """The results of each, as they are asked for; on a GPU all are played at once."""
        return simulate_all(
            [Simulation(*panel, *size) for panel, size in panels],
            seed=seed,
            checkpoints=checkpoints,
            workers=self.workers,
            device=self.device,
            progress=self.progress,
        )

    def save_picture(self, figure: Figure, ending: str = "") -> None:
        """Keep a picture, under the figure's name."""
        with atomically(self._path(f"{ending}.png")) as temporary:
            figure.savefig(temporary, format="png")

    def save_table(self, columns: Mapping[str, Any]) -> None:
        """Keep columns of equal length."""
        rows = zip(*(np.asarray(column).tolist() for column in columns.values()), strict=True)
        path = self._path(".csv")
        with atomically(path) as temporary, open(temporary, "w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(rows)

    def save_text(self, findings: FigureText) -> None:
        """Keep what was found, as a text."""
        with atomically(self._path(".txt")) as temporary:
            temporary.write_text(f"{findings}\n", encoding="utf-8")

    def _path(self, ending: str) -> Path:
        path = self.folder / f"{self.name}{ending}"
        self.files.append(path)
        return path


def _first_met(
    panels: Mapping[str, FigurePanel], sizes: Mapping[str, RunSize]
) -> dict[str, dict[str, Policy]]:
    """Of each panel, the policies that no earlier one plays as long on the same environment."""
    met: set[Any] = set()
    fresh = {}
    for letter, (policies, world) in panels.items():
        size = sizes[letter]
        keys = {label: (label, policy, world, size) for label, policy in policies.items()}
        fresh[letter] = {label: policies[label] for label, key in keys.items() if key not in met}
        met.update(keys.values())
    return fresh
