"""`balaclava reproduce`: run a published figure again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from balaclava.cli.options import device_option
from balaclava.cli.terminal import print_table, progress_bar

if TYPE_CHECKING:
    from balaclava.papers.harness.gallery import GalleryStep
    from balaclava.simulation.engine import Device


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
@click.option("--all", "everything", is_flag=True, help="Run all of them, and write one page.")
@click.option(
    "--markdown",
    type=click.Path(path_type=Path),
    metavar="FILE.md",
    help="With --all: also this page, with pictures of under 100 kB in a folder beside it.",
)
@device_option
def reproduce(
    figures: tuple[str, ...],
    scale: str,
    out: Path | None,
    workers: int | None,
    show: bool,
    everything: bool,
    markdown: Path | None,
    device: Device | None,
) -> None:
    """Run published figures again: pictures, data, and a text that compares.

    Without a FIGURE, lists what there is. Each panel's data is on disk as soon as it is played,
    so that after Ctrl-C what was finished is kept. With --all, figures that the folder holds
    already, made by the same sources, are not made again.

    \b
    Example: balaclava reproduce --list
    Example: balaclava reproduce wang2024-fig5 --out pictures
    Example: balaclava reproduce --all --out gallery
    """
    if markdown is not None and not everything:
        raise click.UsageError("--markdown goes with --all")
    if everything and not show:
        if figures:
            raise click.UsageError("give figures or --all, not both")
        _gallery(Path("gallery") if out is None else out, scale, workers, markdown, device or "cpu")
        return
    from balaclava.errors import UnknownNameError, nearest
    from balaclava.papers.harness.figure_registry import figures as known
    from balaclava.papers.harness.reproduction import reproduce as run

    entries = {entry.name: entry for entry in known()}
    if show or not figures:
        rows = [(entry.name, entry.title, entry.reference) for entry in entries.values()]
        print_table(("figure", "what it shows", "reference"), rows)
        return
    for name in figures:  # all of them before the first is run
        if name not in entries:
            raise UnknownNameError(f"no figure is called {name!r}; {nearest(name, entries)}")
    for name in figures:
        with progress_bar() as progress:
            reproduction = run(
                name,
                scale=scale,
                out=out,
                workers=workers,
                progress=progress,
                device=device or "cpu",
            )
        click.echo(f"{reproduction}\n")
        files = reproduction.files
        click.echo(f"wrote {', '.join(path.name for path in files)} to {files[0].parent}")


def _gallery(
    out: Path, scale: str, workers: int | None, markdown: Path | None, device: Device
) -> None:
    from balaclava.papers.harness.gallery import make_gallery
    from balaclava.papers.harness.gallery_pages import write_markdown

    def tell(step: GalleryStep) -> None:
        click.echo(f"{step.outcome:6}  {step.name:16}  {step.seconds:6.1f} s")
        if step.problem:
            click.echo(f"balaclava: {step.name}: {' '.join(step.problem.split())}", err=True)

    gallery = make_gallery(
        out,
        scale=scale,
        workers=workers,
        progress=lambda _: progress_bar(),
        tell=tell,
        device=device,
    )
    if markdown is not None:
        write_markdown(gallery.exhibits, out, markdown)
    click.echo(f"wrote {gallery.page}, {len(gallery.exhibits)} figures: open it in a browser")
    if gallery.failed:
        names = ", ".join(step.name for step in gallery.failed)
        click.echo(f"balaclava: not made: {names}; the same command tries again", err=True)
        raise SystemExit(1)
