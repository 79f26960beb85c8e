"""`balaclava summary` and `balaclava example`: tables of results, and an experiment file."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from balaclava.cli.options import option, wide_option
from balaclava.cli.terminal import print_json, print_table

if TYPE_CHECKING:
    from balaclava.simulation.results import Results


@click.command(short_help="Print the tables of results.")
@click.argument("source", type=click.Path(path_type=Path))
@option("--json as_json", bool, "Print as JSON.")
@wide_option
def summary(source: Path, as_json: bool, wide: bool) -> None:
    """Print the tables of SOURCE: the folder of a sweep, or a results file.

    \b
    Example: balaclava summary quickstart-results
    Example: balaclava summary results.parquet --json
    """
    from balaclava.reporting.report_data import read_page_data

    results = {panel.heading: panel.results for panel in read_page_data(source).panels}
    if as_json:
        print_json(results_json(results.items()))
    else:
        print_summaries(list(results.items()), wide)


@click.command()
def example() -> None:
    """Print an experiment file to start from.

    \b
    Example: balaclava example > experiment.toml
    """
    from importlib import resources

    file = resources.files("balaclava.experiments") / "example.toml"
    text = file.read_text(encoding="utf-8").replace("quickstart.toml", "experiment.toml")
    click.echo(text, nl=False)


def print_summaries(results: list[tuple[str, Results]], wide: bool = False) -> None:
    """Print the tables of several settings, with their headings if there are several."""
    for i, (heading, each) in enumerate(results):
        click.echo("\n" * (i > 0) + (f"{heading}: " if len(results) > 1 else ""), nl=False)
        print_summary(each, wide)


def print_summary(
    results: Results, wide: bool = False, advice: str = "--wide shows all columns"
) -> None:
    """Print the tables, on a terminal in its width; unless `wide`, some columns are left out."""
    from balaclava.simulation.analysis.regret_tails import TAIL_HEADER
    from balaclava.simulation.analysis.summary import OPTIONAL_COLUMNS

    table = results.summary()
    if wide or not sys.stdout.isatty():
        click.echo(str(table))
        return
    click.echo(f"{table.title}\n")
    header, *rows = table.cells
    print_table(header, rows, OPTIONAL_COLUMNS, advice)
    if table.tails:
        click.echo()
        print_table(TAIL_HEADER, table.tails)
    if table.winners is not None:
        click.echo(f"\n{table.winners}")


def results_json(results: Iterable[tuple[str, Results]]) -> list[dict[str, Any]]:
    """The rows of each table with the settings behind them, for JSON."""
    return [
        {
            "setting": heading,
            "environment": each.environment.name,
            "arms": each.environment.arms,
            "horizon": each.horizon,
            "seed": each.seed,
            "device": each.device,
            "policies": [
                row._asdict() | {"tails": [tail._asdict() for tail in each.tails(row.label)]}
                for row in each.summary()
            ],
        }
        for heading, each in results
    ]
