"""What there is: policies, environments, and what each takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from balaclava.cli.tables import print_table

if TYPE_CHECKING:
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
    print_table(("policy", "what it does", "rewards", "privacy", "reference"), rows)


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
    print_table(("environment", "what it is", "parameters"), rows)


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
    if cls.kind == "policy" and "horizon" not in cls.annotations:
        rows.append(("horizon", "-", "any", "needed by others: bl.policy takes and ignores it"))
    print_table(("parameter", "default", "allowed", "meaning"), rows)
