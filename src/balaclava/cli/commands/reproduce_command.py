"""`balaclava reproduce`: run a published figure again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from balaclava.cli.options import device_option, option, workers_option
from balaclava.cli.terminal import print_table, progress_bar

if TYPE_CHECKING:
    from balaclava.papers.harness.gallery import GalleryStep
    from balaclava.simulation.engine import Device


@click.command(short_help="Run published figures again.")
@click.argument("figures", nargs=-1, metavar="[FIGURE]...")
@option(
    "--scale",
    ["quick", "paper"],
    "quick: seconds to minutes. paper: full scale, the paper's own where it has the experiment.",
    default="quick",
)
@option(
    "--out",
    Path,
    "Folder for the files; by default one per figure, named after it, in this folder.",
)
@workers_option
@option("--list show", bool, "List the figures without running them.")
@option("--all everything", bool, "Run all figures, and write one page.")
@option(
    "--markdown",
    Path,
    "Also put the figures onto this page, with small pictures in a folder beside it.",
    metavar="FILE.md",
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
    """Run published figures again: pictures, data, and a comparison with the paper.

    Without a FIGURE, lists the figures. Each panel's data is written as soon as it is played, so
    Ctrl-C keeps finished panels. With --all, figures whose policies still decide as they did are
    skipped.

    \b
    Example: balaclava reproduce --list
    Example: balaclava reproduce wang2024-fig5 --out pictures
    Example: balaclava reproduce --all --out gallery
    """
    if markdown is not None and not everything and not figures:
        raise click.UsageError("--markdown needs figures or --all")
    if everything and figures and not show:
        raise click.UsageError("give figures or --all, not both")
    from balaclava.errors import UnknownNameError, nearest
    from balaclava.papers.harness.figure_registry import figures as known
    from balaclava.papers.harness.reproduction import reproduce as run

    entries = {entry.name: entry for entry in known()}
    if show or not (figures or everything):
        rows = [(entry.name, entry.title, entry.reference) for entry in entries.values()]
        print_table(("figure", "what it shows", "reference"), rows)
        return
    for name in figures:  # check all names before the first run
        if name not in entries:
            raise UnknownNameError(f"no figure is called {name!r}; {nearest(name, entries)}")
    how: dict[str, Any] = {"scale": scale, "workers": workers, "device": device or "cpu"}
    if everything or markdown is not None:
        folder = Path("gallery") if out is None else out
        names = figures or tuple(entries)
        _gallery(folder, markdown, names=names, again=not everything, **how)
        return
    for name in figures:
        with progress_bar() as progress:
            reproduction = run(name, out=out, progress=progress, **how)
        click.echo(f"{reproduction}\n")
        files = reproduction.files
        click.echo(f"wrote {', '.join(path.name for path in files)} to {files[0].parent}")


def _gallery(out: Path, markdown: Path | None, **options: Any) -> None:
    from balaclava.papers.harness.figure_registry import figures
    from balaclava.papers.harness.gallery import make_gallery
    from balaclava.papers.harness.gallery_pages import write_markdown

    def tell(step: GalleryStep) -> None:
        click.echo(f"{step.outcome:6}  {step.name:16}  {step.seconds:6.1f} s")
        if step.problem:
            click.echo(f"balaclava: {step.name}: {' '.join(step.problem.split())}", err=True)

    gallery = make_gallery(
        out, page=markdown, progress=lambda _: progress_bar(), on_step=tell, **options
    )
    if markdown is not None:
        write_markdown(gallery.news(markdown), out, markdown, figures())
    click.echo(f"wrote {gallery.page}, {len(gallery.figures)} figures: open it in a browser")
    if gallery.failed:
        failed = ", ".join(step.name for step in gallery.failed)
        click.echo(f"balaclava: not made: {failed}; the same command tries again", err=True)
        raise SystemExit(1)
