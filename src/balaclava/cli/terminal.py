"""Tables that fit the terminal, and a line there while something takes long."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status


_BETWEEN = 2  # spaces between columns


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns side by side, folded between words; a row a paragraph where that does not fit."""
    from rich.table import Table

    console = _console()
    widths = [
        max(_word(cell) if i else len(cell) for cell in column)
        for i, column in enumerate(zip(header, *rows, strict=True))
    ]
    if sum(widths) + _BETWEEN * len(widths) > console.width:
        _print_paragraphs(header, rows, console.width)
        return
    table = Table(box=None, pad_edge=False, padding=(0, _BETWEEN, 0, 0), header_style="bold")
    for i, (title, width) in enumerate(zip(header, widths, strict=True)):
        table.add_column(title, no_wrap=i == 0, overflow="fold", min_width=width)
    for row in rows:
        table.add_row(*row)
    with console.capture() as capture:
        console.print(table)
    click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


def _word(cell: str) -> int:
    """The length of the longest word."""
    return max(map(len, cell.split()), default=0)


def _print_paragraphs(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> None:
    """Each row as its first cell, and below it the others under their names."""
    indent = {"initial_indent": "  ", "subsequent_indent": "  "}
    for first, *others in rows:
        click.echo(first)
        parts = [f"{title}: {cell}" for title, cell in zip(header[1:], others, strict=True)]
        text = "; ".join(part.replace(" ", "\u00a0") for part in parts)
        click.echo(textwrap.fill(text, width, **indent).replace("\u00a0", " "))  # type: ignore[arg-type]


def _console() -> Console:
    """As wide as the terminal; without bound, and without colour, on a pipe."""
    from rich.console import Console

    # Brackets in a docstring are intervals, not markup.
    plain: dict[str, Any] = {"markup": False, "emoji": False, "highlight": False}
    if sys.stdout.isatty():
        return Console(**plain)
    return Console(width=100_000, color_system=None, force_terminal=False, **plain)


def waiting(words: str) -> Status:
    """A line that moves while something takes long, on a terminal only.

    rich takes a notebook's cells for terminals, which keep every frame of it.
    """
    from rich.console import Console

    return Console(stderr=True, force_terminal=sys.stderr.isatty()).status(words)


@contextmanager
def progress_bar() -> Iterator[Callable[..., None] | None]:
    """A line with the pace and the time left, where somebody can see it."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

    class Pace(ProgressColumn):
        def render(self, task: Any) -> Any:
            from rich.text import Text

            return Text(f"{(task.finished_speed or task.speed or 0) / 1e6:.1f} M rounds/s")

    columns = (TextColumn("{task.description}"), BarColumn(), Pace(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("compiling", total=None)

        def show(played: int, total: int, done: int = 0, cells: int = 1) -> None:
            what = f"playing, {done} of {cells} cells done" if cells > 1 else "playing"
            bar.update(task, description=what, completed=played, total=total)

        yield show
