"""What there is: policies, environments, and what each takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

    from balaclava._core.declared import Declared


@click.command()
@click.argument("name", required=False)
@click.option("--private/--not-private", default=None, help="Only those that are, or are not.")
def policies(name: str | None, private: bool | None) -> None:
    """List the policies, or show one and its parameters.

    \b
    Example: balaclava policies --private
    Example: balaclava policies ucb1
    """
    from balaclava.policies.base import REGISTRY, list_policies

    if name is not None:
        _show(REGISTRY.get(name))
        return
    rows = [
        (entry.name, entry.title, entry.rewards, entry.guarantee, entry.reference)
        for entry in list_policies()
        if private is None or private == (entry.guarantee != "none")
    ]
    _print_table(("policy", "what it does", "rewards", "privacy", "reference"), rows)


@click.command()
@click.argument("name", required=False)
def environments(name: str | None) -> None:
    """List the environments, or show one and its parameters.

    \b
    Example: balaclava environments
    Example: balaclava environments bernoulli
    """
    from balaclava.environments.base import REGISTRY, list_environments

    if name is not None:
        _show(REGISTRY.get(name))
        return
    rows = [(entry.name, entry.title, entry.parameters) for entry in list_environments()]
    _print_table(("environment", "what it is", "parameters"), rows)


def _show(cls: type[Declared]) -> None:
    """The docstring, and every parameter with its range."""
    import inspect

    from balaclava._core.declared import brief

    click.echo(f"{cls.name}\n\n{inspect.getdoc(cls)}\n")
    rows = [
        (
            each.name,
            "required" if each.required else brief(each.default),
            each.allowed,
            each.meaning,
        )
        for each in cls.parameter_list()
    ]
    _print_table(("parameter", "default", "allowed", "meaning"), rows)


def _print_table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
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
