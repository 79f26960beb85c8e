"""`balaclava plan`: how many participants a trial takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from balaclava.cli.options import option
from balaclava.cli.terminal import print_json


@click.command(short_help="Plan the size of a trial.")
@option("--arms", int, "Number of arms.", required=True)
@option(
    "--epsilon",
    "E,E,...",
    "Privacy loss; several for a table of what privacy costs.",
    default="0.1,0.3,1,3",
)
@option("--rate", float, "Usual share of successes, such as 0.05.", required=True)
@option("--difference", float, "Smallest lead of the best arm that matters.", required=True)
@option("--confidence", float, "Chance that the named arm is the best.", default=0.95)
@option("--policy", "NAME", "Policy to plan; by default dp-top-two.")
@option("--delay", float, "Delay of a reward, in rounds.")
@option("--lost", float, "Share of rewards that never arrive.")
@option("--participants", int, "How many there are: do they suffice?")
@option("--plot", Path, "Draw the table into this file.")
@option("--seed", int, "Seed of the simulation.", default=1)
@option("--json as_json", bool, "Print the plan as JSON.")
def plan(
    epsilon: str, rate: float, difference: float, plot: Path | None, as_json: bool, **options: Any
) -> None:
    """Say how many participants it takes to name the best arm, and what privacy adds.

    Simulates trials in which one arm leads the others by the smallest difference that matters. The
    table has the participants until the best arm is named (in half and in 90 % of the trials), the
    share of wrong answers, and the participants who get a worse arm until then; beside dp-imed and
    a classic test of fixed size without privacy.

    \b
    Example: balaclava plan --arms 3 --rate 0.05 --difference 0.02
    Example: balaclava plan --arms 4 --rate 0.6 --difference 0.1 --epsilon 1 --delay 300 --lost 0.05
    """
    from balaclava.advice.choose.trial_plan import plan as make_plan

    levels = [_number(part) for part in epsilon.split(",")]
    table = make_plan(epsilon=levels, base_rate=rate, smallest_difference=difference, **options)
    if plot is not None:
        table.plot(plot)
    if as_json:
        print_json({"rows": [row._asdict() for row in table], "sentence": table.sentence})
    else:
        click.echo(str(table))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not a number; give numbers separated by commas, such as 0.1,1",
            param_hint="--epsilon",
        ) from None
