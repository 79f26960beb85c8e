"""`balaclava report`: results as a page for the browser."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="The file to write; by default report.html in the folder, or the file's name and .html.",
)
@click.option("--audit", "audited", is_flag=True, help="Audit the policies, quickly; kept on disk.")
@click.option(
    "--trials",
    type=click.IntRange(min=100),
    default=20_000,
    show_default=True,
    help="Games of each audit.",
)
def report(source: Path, out: Path | None, audited: bool, trials: int) -> None:
    """Write one HTML page about SOURCE: curves, intervals, tables, guarantees.

    SOURCE is the folder of a sweep, the folder that `balaclava simulate` wrote, or a results
    file. The page is complete in itself: send it to anyone, open it without a network.

    \b
    Example: balaclava report quickstart-results
    Example: balaclava report results.parquet --audit --out page.html
    """
    from rich.console import Console

    from balaclava._core.files import require_place
    from balaclava.reporting.audits import run_audits
    from balaclava.reporting.page import write_page
    from balaclava.reporting.panels import read_story

    story = read_story(source)
    if out is None:
        out = source / "report.html" if source.is_dir() else source.with_suffix(".html")
    require_place(out)
    audits = None
    if audited:
        with Console(stderr=True).status("auditing ...") as status:  # on a terminal only
            audits = run_audits(
                story.policies,
                trials=trials,
                progress=lambda label: status.update(f"trying to refute {label} ..."),
            )
    page = write_page(story, out, audits=audits)
    click.echo(f"wrote {page} ({page.stat().st_size / 1e6:.1f} MB): open it in a browser")
    if audits and any(verdict.verdict in ("violated", "unproved") for verdict in audits.values()):
        click.echo("balaclava: an audit refuted a promise; see the page", err=True)
        raise SystemExit(1)
