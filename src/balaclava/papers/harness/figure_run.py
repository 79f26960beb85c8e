"""One run of a figure: it simulates panels, and saves data, pictures and text."""

import csv
import dataclasses
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from balaclava._core.atomic_files import atomically
from balaclava._core.html_templates import render_text
from balaclava._core.number_format import counted
from balaclava.environments.base import Environment
from balaclava.papers.harness.figure_plots import Figure
from balaclava.policies.base import Policy
from balaclava.simulation.engine import Device, Progress
from balaclava.simulation.results import Results, Run
from balaclava.simulation.simulation_batches import Simulation, simulate_all

_TEXT_WIDTH = 100  # columns of the text file
# What the larger scale of a figure is, by what its paper has.
PAPERS_SCALE = "the paper's scale"
OUR_SCALE = "our own scale (the paper has no such experiment)"
COMPUTED = "computed, not simulated"


class FigureText(NamedTuple):
    """The text of a figure: a heading, and points under the title of each section.

    >>> text = "# fig1: a line\\n## What the paper shows\\n- It rises.\\n- Slowly."
    >>> print(FigureText.from_markdown(text))
    fig1: a line
    <BLANKLINE>
    What the paper shows
    - It rises.
    - Slowly.
    """

    heading: str
    sections: Mapping[str, Sequence[str]]

    @classmethod
    def from_markdown(cls, text: str) -> Self:
        heading, *parts = re.split(r"^#+ ", text, flags=re.MULTILINE)[1:]
        sections = {}
        for part in parts:
            title, *points = re.split(r"^- ", part, flags=re.MULTILINE)
            sections[title.strip()] = [" ".join(point.split()) for point in points]
        return cls(heading.strip(), sections)

    def __str__(self) -> str:
        lines = [self.heading]
        for title, points in self.sections.items():
            lines += ["", title, *map(_bullet, points)]
        return "\n".join(lines)


def _bullet(point: str) -> str:
    return textwrap.fill(
        point, _TEXT_WIDTH, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False
    )


class FigurePanel(NamedTuple):
    policies: Mapping[str, Policy]
    environment: Environment


class RunSize(NamedTuple):
    horizon: int
    repetitions: int

    def __str__(self) -> str:
        return f"{counted(self.repetitions, 'repetition')} of {self.horizon:,} rounds"


@dataclass
class FigureRun:
    """One run of a figure at one scale, and the files it has saved."""

    name: str
    scale: str
    folder: Path
    workers: int | None = None
    progress: Progress | None = None
    device: Device = "cpu"
    full_scale: str = PAPERS_SCALE
    files: list[Path] = field(default_factory=list)
    results: dict[str, Results] = field(default_factory=dict)

    @property
    def scale_words(self) -> str:
        return self.full_scale if self.scale == "paper" else f"{self.scale} scale"

    def play(
        self,
        panels: Mapping[str, FigurePanel],
        sizes: RunSize | Mapping[str, RunSize],
        *,
        seed: int,
        checkpoints: int = 200,
    ) -> dict[str, Results]:
        """Simulate every panel, and save each as soon as it is finished.

        A policy that an earlier panel already played on the same environment and size is not
        played again: the same seed would give the same runs.
        """
        if isinstance(sizes, RunSize):
            sizes = dict.fromkeys(panels, sizes)
        new = _new_policies(panels, sizes)
        runs: dict[Any, dict[int, Run]] = {}
        simulations = [
            (FigurePanel(new[letter], panels[letter].environment), sizes[letter])
            for letter in panels
        ]
        played = self.simulate(simulations, seed=seed, checkpoints=checkpoints)
        for (letter, (policies, world)), panel_results in zip(panels.items(), played, strict=True):
            size = sizes[letter]
            for label, policy in new[letter].items():
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
        """Yield the results of each panel; a GPU plays all panels at once."""
        return simulate_all(
            [Simulation(*panel, *size) for panel, size in panels],
            seed=seed,
            checkpoints=checkpoints,
            workers=self.workers,
            device=self.device,
            progress=self.progress,
        )

    def save_picture(self, figure: Figure, ending: str = "") -> None:
        with atomically(self._path(f"{ending}.png")) as temporary:
            figure.savefig(temporary, format="png")

    def save_table(self, columns: Mapping[str, Any]) -> None:
        """Save columns of equal length as CSV."""
        rows = zip(*(np.asarray(column).tolist() for column in columns.values()), strict=True)
        path = self._path(".csv")
        with atomically(path) as temporary, open(temporary, "w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(rows)

    def save_text(self, text: FigureText) -> None:
        with atomically(self._path(".txt")) as temporary:
            temporary.write_text(f"{text}\n", encoding="utf-8")

    def text(self, template: str = "", **values: Any) -> FigureText:
        """The text of the figure, from the Markdown template of its name or another one.

        Its sections are "What the paper shows", "What we see" and "Where they differ, and why".
        """
        text = render_text("balaclava.papers", f"{template or self.name}.md", run=self, **values)
        return FigureText.from_markdown(text)

    def _path(self, ending: str) -> Path:
        path = self.folder / f"{self.name}{ending}"
        self.files.append(path)
        return path


def _new_policies(
    panels: Mapping[str, FigurePanel], sizes: Mapping[str, RunSize]
) -> dict[str, dict[str, Policy]]:
    """The policies of each panel that no earlier panel plays on the same environment and size."""
    seen: set[Any] = set()
    new = {}
    for letter, (policies, world) in panels.items():
        keys = {label: (label, policy, world, sizes[letter]) for label, policy in policies.items()}
        new[letter] = {label: policies[label] for label, key in keys.items() if key not in seen}
        seen.update(keys.values())
    return new
