"""`balaclava plan`: how many participants a trial takes."""

from pathlib import Path
from typing import Any

import click

from balaclava.cli.options import EPSILONS_TYPE, delay_options, option, pop_delay
from balaclava.cli.terminal import print_json, print_sentences, waiting


@click.command(short_help="Plan the size of a trial.")
@option("--arms", int, "Number of arms.", required=True)
@option(
    "--epsilon",
    EPSILONS_TYPE,
    "Privacy loss; several for a table of what privacy costs.",
    default="0.1,0.3,1,3",
)
@option("--rate", float, "Usual share of successes, such as 0.05.", required=True)
@option("--difference", float, "Smallest lead of the best arm that matters.", required=True)
@option(
    "--confidence",
    float,
    "Chance that no arm worse than the best is named (one-sided).",
    default=0.95,
)
@option("--policy", "NAME", "Policy to plan; by default dp-top-two.")
@option("--participants", int, "How many there are: how often do they suffice?")
@option("--power", float, "Share of trials that name the best arm.", default=0.9)
@option("--out", Path, "Draw participants over epsilon into this file, such as plan.png.")
@option("--seed", int, "Seed of the simulation.", default=1)
@delay_options
@option("--json as_json", bool, "Print the plan as JSON.")
def plan(rate: float, difference: float, out: Path | None, as_json: bool, **options: Any) -> None:
    """Say how many participants it takes to name the best arm, and what privacy adds.

    Simulates trials in which one arm leads the others by the smallest difference that matters. The
    table has the participants until the best arm is named, in half of the trials and in the share
    --power; the shares of trials that name it and that name a wrong one; the participants with a
    worse arm until then; and the width of the interval of the best arm's lead at the end, noise
    included. The test is one-sided; --confidence 0.975 is a two-sided 5 %, for more participants.
    Beside dp-top-two: dp-even, a private test of fixed size; dp-imed, which plays for
    low regret; and a classic test of fixed size without privacy.

    Rewards that do not arrive count for nothing, or with --settle window as --missing: 0 or 1.

    \b
    Example: balaclava plan --arms 3 --rate 0.05 --difference 0.02 --out plan.png
    Example: balaclava plan --arms 4 --rate 0.6 --difference 0.1 --epsilon 1 --delay 300 \\
                 --law fixed --lost 0.05
    """
    from balaclava._core.atomic_files import require_writable_file
    from balaclava.advice.plan.trial_plan import plan as make_plan

    if out is not None:
        require_writable_file(out)
    late = pop_delay(options)
    with waiting("simulating trials ..."):
        table = make_plan(base_rate=rate, smallest_difference=difference, **options, **late)
    if out is not None:
        table.plot(out)
    if as_json:
        print_json({"rows": [row._asdict() for row in table], "sentence": table.sentence})
    else:
        print_sentences([table.title, ""])
        click.echo("\n".join([*table.text_lines, ""]))
        print_sentences([table.sentence])
