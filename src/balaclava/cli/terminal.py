"""Output on the terminal: tables, sentences, JSON, and progress."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

INTERRUPTED_STATUS = 130  # exit status after Ctrl-C: 128 + SIGINT, as shells report it
_COLUMN_GAP = 2  # spaces between the columns of a table
_LINE_WIDTH = 96  # characters of a line of prose, if the terminal is wide enough
_LABEL_WIDTH = 10  # characters of "policy:" and other labels, with the space after them
_NO_BREAK_SPACE = "\u00a0"
_WHOLE_WORDS: Any = {"break_on_hyphens": False, "break_long_words": False}


def print_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    optional: Sequence[str] = (),
    advice: str = "",
) -> None:
    """Print columns, wrapped between words; on a narrow terminal a paragraph per row.

    Before that it leaves `optional` columns out, in this order; `advice` says how to see them.
    """
    from rich.table import Table

    console, left_out = _console(), list[str]()
    while optional and not _fits(_column_widths(header, rows, len), console.width):
        title, *optional = optional
        at = header.index(title)
        header, *rows = ([*row[:at], *row[at + 1 :]] for row in (header, *rows))
        left_out.append(title)
    widths = _column_widths(header, rows, _longest_word)
    if not _fits(widths, console.width):
        _print_paragraphs(header, rows, console.width)
        return
    table = Table(box=None, pad_edge=False, padding=(0, _COLUMN_GAP, 0, 0), header_style="bold")
    for i, (title, width) in enumerate(zip(header, widths, strict=True)):
        table.add_column(title, no_wrap=i == 0, overflow="fold", min_width=width)
    for row in rows:
        table.add_row(*row)
    with console.capture() as capture:
        console.print(table)
    click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))
    if left_out:
        print_sentences([f"Left out for the width: {', '.join(left_out)}; {advice}."])


def _column_widths(
    header: Sequence[str], rows: Sequence[Sequence[str]], width_of: Callable[[str], int]
) -> list[int]:
    """The width of each column, by `width_of` a cell; that of the first by its whole cells."""
    columns = enumerate(zip(header, *rows, strict=True))
    return [max(map(width_of if i else len, column)) for i, column in columns]


def _fits(widths: Sequence[int], width: int) -> bool:
    return sum(widths) + _COLUMN_GAP * len(widths) <= width


def print_cells(
    cells: Sequence[Sequence[str]], optional: Sequence[str] = (), advice: str = ""
) -> None:
    """Print a table whose first row is the header, and an empty line; see `print_table`."""
    header, *rows = cells
    print_table(header, rows, optional, advice)
    click.echo()


def _longest_word(cell: str) -> int:
    return max(map(len, cell.split()), default=0)


def _print_paragraphs(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> None:
    """Print each row as its first cell, and the others below it with their titles."""
    for first, *others in rows:
        click.echo(first)
        parts = [f"{title}: {cell}" for title, cell in zip(header[1:], others, strict=True)]
        whole = [
            part.replace(" ", _NO_BREAK_SPACE) if len(part) < width - 2 else part for part in parts
        ]
        text = "; ".join(whole)
        lines = textwrap.fill(
            text, width, initial_indent="  ", subsequent_indent="  ", **_WHOLE_WORDS
        )
        click.echo(lines.replace(_NO_BREAK_SPACE, " "))


def _console() -> Console:
    """A console as wide as the terminal; on a pipe unlimited and without colour."""
    from rich.console import Console

    # Brackets in a docstring are intervals, not markup.
    plain: dict[str, Any] = {"markup": False, "emoji": False, "highlight": False}
    if sys.stdout.isatty():
        return Console(**plain)
    return Console(width=100_000, color_system=None, force_terminal=False, **plain)


def _line_width() -> int:
    return min(_LINE_WIDTH, shutil.get_terminal_size((_LINE_WIDTH, 24)).columns)


def print_labelled(label: str, text: str) -> None:
    """Print a wrapped paragraph after its label."""
    start, indent = f"{label + ':':<{_LABEL_WIDTH}}", " " * _LABEL_WIDTH
    click.echo(textwrap.fill(text, _line_width(), initial_indent=start, subsequent_indent=indent))


def print_code(label: str, code: str) -> None:
    """Print a line of code after its label, without wrapping it."""
    click.echo(f"{label + ':':<{_LABEL_WIDTH}}{code}")


def print_sentences(sentences: Iterable[str], indent: str = "") -> None:
    """Print each sentence on its own lines, and keep a number with its percent sign."""
    width = _line_width()
    for sentence in sentences:
        text = sentence.replace(" %", f"{_NO_BREAK_SPACE}%")
        lines = textwrap.fill(text, width, subsequent_indent=indent, **_WHOLE_WORDS)
        click.echo(lines.replace(_NO_BREAK_SPACE, " "))


def print_json(value: Any) -> None:
    """Print a value as JSON, with null for numbers that are not finite."""
    click.echo(json.dumps(finite_json(value), indent=2, ensure_ascii=False, default=str))


def finite_json(value: Any) -> Any:
    """The value with None for numbers that are not finite, which JSON cannot express."""
    if isinstance(value, dict):
        return {key: finite_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite_json(each) for each in value]
    return None if isinstance(value, float) and not abs(value) < float("inf") else value


def waiting(words: str) -> Status:
    """A spinner, on a terminal only."""
    from rich.console import Console

    # By itself rich also draws in notebooks, whose cells keep every frame.
    return Console(stderr=True, force_terminal=sys.stderr.isatty()).status(words)


@contextmanager
def progress_bar() -> Iterator[Callable[..., None] | None]:
    """A line with the pace and the time left; None if standard error is not a terminal."""
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
