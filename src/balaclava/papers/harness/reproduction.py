"""A published figure, run again: what that leaves behind."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from balaclava._core.atomic_files import require_folder
from balaclava._core.declared import brief
from balaclava._core.extras import require_extra
from balaclava.errors import ParameterError, UnknownNameError, nearest
from balaclava.papers.harness.figure_registry import figures
from balaclava.papers.harness.figure_run import FigureRun
from balaclava.papers.harness.figure_text import FigureText
from balaclava.simulation.engine import Device, Progress

if TYPE_CHECKING:
    from balaclava.simulation.results import Results

FIGURE_SCALES = ("quick", "paper")
_TESTING = "tiny"  # for the package's own tests: says nothing about a figure


@dataclass(frozen=True)
class Reproduction:
    """A figure run again: where the files are, what they show, and the results behind them."""

    name: str
    scale: str
    findings: FigureText
    files: tuple[Path, ...]
    results: dict[str, Results]  # of each panel; none where nothing is played

    @property
    def text(self) -> str:
        """What was found, to be read."""
        return str(self.findings)

    def __str__(self) -> str:
        return self.text


def reproduce(
    figure: str,
    *,
    scale: str = "quick",
    out: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    device: Device = "cpu",
) -> Reproduction:
    """Run a published figure again: its picture, its data, and a text that compares.

    Args:
        figure: its name, such as "wang2024-fig4"; `balaclava reproduce --list` shows all.
        scale: "quick" for a look in seconds, "paper" for the paper's own numbers.
        out: the folder to write to; by default one with the figure's name, in the current folder.
        workers: threads; by default one for each core.
        progress: called with the rounds played and the rounds in all.
        device: "cpu", "cuda" or "auto", as for `bl.simulate`; what a GPU does not play is played
            on the CPU with "auto".

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
    if scale not in (*FIGURE_SCALES, _TESTING):
        raise ParameterError(
            f"scale = {brief(scale)} is not allowed; give one of {', '.join(FIGURE_SCALES)}"
        )
    require_extra("matplotlib", "a figure")
    folder = Path(figure if out is None else out)
    require_folder(folder)
    run = FigureRun(figure, scale, folder, workers, progress, device)
    findings = entries[figure].make(run)
    run.save_text(findings)
    return Reproduction(figure, scale, findings, tuple(run.files), run.results)
