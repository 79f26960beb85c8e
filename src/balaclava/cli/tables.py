"""Tables that fit the terminal, and a line there while something takes long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns side by side; cells fold where the terminal is narrow."""
    from rich.table import Table

    console = _console()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for i, title in enumerate(header):
        table.add_column(title, no_wrap=i == 0, overflow="fold")
    for row in rows:
        table.add_row(*row)
    with console.capture() as capture:
        console.print(table)
    click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


def _console() -> Console:
    """As wide as the terminal; without bound, and without colour, on a pipe."""
    import sys

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
    import sys

    from rich.console import Console

    return Console(stderr=True, force_terminal=sys.stderr.isatty()).status(words)
