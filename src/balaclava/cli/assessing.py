"""`balaclava assessment`: the file that a page for a review board is made from."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option(
    "--init",
    "target",
    type=click.Path(path_type=Path),
    help="Write it to this file.",
    is_flag=False,
    flag_value="assessment.toml",
)
def assessment(target: Path | str | None) -> None:
    """Show the file that a page for a review board is made from, or write it.

    Fill it in, then `balaclava report --assessment assessment.toml` writes the page: what is
    promised, how it was checked, regret and risk, and what only the owner can answer.

    \b
    Example: balaclava assessment --init
    Example: balaclava assessment > trial.toml
    """
    from balaclava.errors import ResultsFileError
    from balaclava.reporting.dossier import template

    if target is None:
        click.echo(template(), nl=False)
        return
    place = Path(target)
    try:
        with place.open("x", encoding="utf-8") as file:
            file.write(template())
    except FileExistsError:
        raise ResultsFileError(f"{place} is there already; give another name") from None
    except OSError as error:
        raise ResultsFileError(f"{place} cannot be written: {error.strerror}") from None
    click.echo(f"wrote {place}; fill it in, then: balaclava report --assessment {place}")
