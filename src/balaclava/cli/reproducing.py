"""`balaclava reproduce`: run a published figure again."""

from __future__ import annotations

from pathlib import Path

import click

from balaclava.cli.catalogue import _print_table
from balaclava.cli.play import _progress


@click.command()
@click.argument("figures", nargs=-1, metavar="[FIGURE]...")
@click.option(
    "--scale",
    type=click.Choice(["quick", "paper"]),
    default="quick",
    show_default=True,
    help="A look in seconds, or the paper's own numbers of rounds and repetitions.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder for the files; by default one for each figure, with its name, in this folder.",
)
@click.option(
    "--workers", type=click.IntRange(min=1), help="Threads; by default one for each core."
)
@click.option("--list", "show", is_flag=True, help="List the figures, and do nothing else.")
def reproduce(
    figures: tuple[str, ...], scale: str, out: Path | None, workers: int | None, show: bool
) -> None:
    """Run published figures again: pictures, data, and a text that compares.

    Without a FIGURE, lists what there is. Each panel's data is on disk as soon as it is played,
    so that after Ctrl-C what was finished is kept.

    \b
    Example: balaclava reproduce --list
    Example: balaclava reproduce wang2024-fig5 --out pictures
    """
    from balaclava.errors import UnknownNameError, nearest
    from balaclava.papers.base import figures as known
    from balaclava.papers.base import reproduce as run

    entries = {entry.name: entry for entry in known()}
    if show or not figures:
        rows = [(entry.name, entry.title, entry.reference) for entry in entries.values()]
        _print_table(("figure", "what it shows", "reference"), rows)
        return
    for name in figures:  # all of them before the first is run
        if name not in entries:
            raise UnknownNameError(f"no figure is called {name!r}; {nearest(name, entries)}")
    for name in figures:
        with _progress() as progress:
            done = run(name, scale=scale, out=out, workers=workers, progress=progress)
        click.echo(f"{done}\n")
        click.echo(f"wrote {', '.join(path.name for path in done.files)} to {done.files[0].parent}")
