"""`bl.reproduce`: run a published figure again."""

import os
from dataclasses import dataclass
from pathlib import Path

from balaclava._core.atomic_files import require_writable_folder
from balaclava._core.declared import brief
from balaclava._core.extras import require_extra
from balaclava.errors import ParameterError, UnknownNameError, nearest
from balaclava.papers.harness.figure_registry import figures
from balaclava.papers.harness.figure_run import FigureRun, FigureText
from balaclava.simulation.engine import Device, Progress
from balaclava.simulation.results import Results

FIGURE_SCALES = ("quick", "paper")
_TEST_SCALE = "tiny"  # for this package's tests; too small to show anything


@dataclass(frozen=True)
class Reproduction:
    """A reproduced figure: its text, its files, and the results behind them.

    Attributes:
        name: the name of the figure, such as "wang2024-fig4".
        scale: "quick" or "paper".
        findings: the text, section by section.
        files: the pictures, data and text that were written.
        results: the results of each panel; empty if the figure needs no simulation.
    """

    name: str
    scale: str
    findings: FigureText
    files: tuple[Path, ...]
    results: dict[str, Results]

    @property
    def text(self) -> str:
        """What the paper shows, what we see, and why they differ."""
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
        figure: its name, such as "wang2024-fig4"; `balaclava reproduce --list` prints all names.
        scale: "quick" takes seconds to minutes; "paper" uses the paper's own sizes,
            or large ones of ours where it has no such experiment.
        out: the folder to write to; by default one with the figure's name, in the current folder.
        workers: threads; by default one for each core.
        progress: called with the rounds played so far and in total.
        device: "cpu", "cuda" or "auto", as for `bl.simulate`; with "auto" the CPU plays policies
            that a GPU cannot.

    Returns:
        The text, the files and the results.

    Raises:
        UnknownNameError: no figure has that name.
        ParameterError: the scale is neither "quick" nor "paper".
        MissingPartError: matplotlib is not installed.

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
    if scale not in (*FIGURE_SCALES, _TEST_SCALE):
        raise ParameterError(
            f"scale = {brief(scale)} is not allowed; give one of {', '.join(FIGURE_SCALES)}"
        )
    require_extra("pyarrow", "the data of a figure")
    folder = Path(figure if out is None else out)
    require_writable_folder(folder)
    entry = entries[figure]
    run = FigureRun(figure, scale, folder, workers, progress, device, entry.full_scale)
    findings = entry.make(run)
    run.save_text(findings)
    return Reproduction(figure, scale, findings, tuple(run.files), run.results)
