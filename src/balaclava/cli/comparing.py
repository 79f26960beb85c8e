"""`balaclava compare`: which policies would suit a log?"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from balaclava.cli.play import _progress


@click.command()
@click.argument("log", type=click.Path(path_type=Path), metavar="LOG.csv")
@click.option("--arm", required=True, metavar="COLUMN", help="The column that names the arm.")
@click.option("--reward", required=True, metavar="COLUMN", help="The column with the reward.")
@click.option("--epsilon", type=float, default=1.0, show_default=True, help="Privacy loss.")
@click.option(
    "--range",
    "reward_range",
    type=(float, float),
    help="Smallest and largest possible reward, if you know them.",
)
@click.option(
    "--outside",
    type=click.Choice(["refuse", "clip"]),
    default="refuse",
    show_default=True,
    help="What to do with rewards outside --range.",
)
@click.option("--horizon", type=click.IntRange(min=2), help="Rounds; by default the rows.")
@click.option("--repetitions", type=click.IntRange(min=1), default=30, show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True)
@click.option(
    "--out", type=click.Path(path_type=Path), help="The page; by default LOG-report.html."
)
@click.option("--workers", type=click.IntRange(min=1), help="Threads; by default one a core.")
def compare(
    log: Path,
    arm: str,
    reward: str,
    epsilon: float,
    reward_range: tuple[float, float] | None,
    outside: Literal["refuse", "clip"],
    horizon: int | None,
    repetitions: int,
    seed: int,
    out: Path | None,
    workers: int | None,
) -> None:
    """Look at a log, say which policies fit it, play them on it, and write a page.

    LOG is a CSV or Parquet file with one row for each decision: which arm, and what reward.
    Looking at a log is not itself private; no single reward is shown.

    \b
    Example: balaclava compare visits.csv --arm page --reward clicked --epsilon 1
    """
    from balaclava._core.files import require_place
    from balaclava.advice.compare import NOT_PRIVATE
    from balaclava.advice.compare import compare as play
    from balaclava.advice.findings import read
    from balaclava.reporting.comparison import write_comparison

    out = Path(f"{log.stem}-report.html") if out is None else out
    require_place(out)
    rewards_log = read(log, arm=arm, reward=reward, reward_range=reward_range, outside=outside)
    click.echo(f"{NOT_PRIVATE}\n")
    for sentence in rewards_log.findings():
        click.echo(sentence)
    with _progress() as progress:
        comparison = play(
            rewards_log,
            epsilon=epsilon,
            horizon=horizon,
            repetitions=repetitions,
            seed=seed,
            workers=workers,
            progress=progress,
        )
    click.echo("\nThe policies that fit:")
    for label, why in comparison.why().items():
        click.echo(f"- {label} ({comparison.results.guarantee(label)}): {why}")
    click.echo(f"\n{comparison.results.summary()}")
    click.echo(f"\nwrote {write_comparison(comparison, out)}: open it in a browser")
