"""What there is: policies, environments, and what each takes."""

from __future__ import annotations

import typing
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
    import dataclasses
    import inspect

    from balaclava._core.declared import brief, describe, is_required

    click.echo(f"{cls.name}\n\n{inspect.getdoc(cls)}\n")
    rows = []
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        annotation = cls.annotations[field.name]
        default = "required" if is_required(field) else brief(field.default)
        rows.append((field.name, default, describe(annotation), _meaning(annotation)))
    _print_table(("parameter", "default", "allowed", "meaning"), rows)


def _meaning(annotation: Any) -> str:
    """What a declared parameter stands for; the declaration may be inside an `| None`."""
    from balaclava._core.declared import split

    base, limits = split(annotation)
    if limits is not None and limits.meaning:
        return limits.meaning
    return next(filter(None, (_meaning(option) for option in typing.get_args(base))), "")


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
