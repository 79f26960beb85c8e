"""`balaclava compare`: which policies would suit a log?"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from balaclava.cli.options import delay_options, lateness
from balaclava.cli.prompts import say
from balaclava.cli.terminal import print_table, progress_bar

if TYPE_CHECKING:
    from balaclava.advice.trial.compare import Comparison
    from balaclava.advice.trial.feature_trial import FeatureGain
    from balaclava.logs.cells import ReadOptions

_READ = (
    *("reward_range", "outside", "clip", "clip_from", "clip_quantiles", "propensity", "time"),
    *("person", "features", "min_rows", "sep", "encoding", "decimal", "drop_missing"),
)
_WHOLE_WORDS: Any = {"break_on_hyphens": False, "break_long_words": False}
_COMPILER = ("numba", "numba.np.arraymath", "scipy.special")


@click.command()
@click.argument("log", metavar="LOG.csv")
@click.option("--arm", required=True, metavar="COLUMN", help="The column that names the arm.")
@click.option("--reward", required=True, metavar="COLUMN", help="The column with the reward.")
@click.option("--epsilon", type=float, default=1.0, show_default=True, help="Privacy loss.")
@click.option(
    "--delta", type=float, default=0.0, show_default=True, help="Of policies with features."
)
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
@click.option(
    "--clip",
    type=(float, float),
    metavar="LOW HIGH",
    help="Try clipping to these limits too, beside truncation; take them from public data.",
)
@click.option(
    "--clip-from",
    metavar="PUBLIC.csv",
    help="The same, to quantiles of the reward column of a file that is public.",
)
@click.option(
    "--clip-quantiles",
    type=(float, float),
    default=(0.001, 0.999),
    show_default=True,
    metavar="LOW HIGH",
    help="Which quantiles.",
)
@click.option(
    "--propensity", metavar="COLUMN", help="The chance with which the row's arm was played."
)
@click.option("--time", metavar="COLUMN", help="When: looks for drift.")
@click.option("--person", metavar="COLUMN", help="Whose: counts rewards per person.")
@click.option(
    "--features",
    metavar="COLUMN,COLUMN",
    help="What was known before each decision, and is public: is it worth deciding by?",
)
@click.option("--min-rows", type=click.IntRange(min=2), help="Leave out arms with fewer rows.")
@click.option("--drop-missing", is_flag=True, help="Leave out rows that lack a value.")
@click.option("--sep", metavar="CHARACTER", help="Between cells; by default detected.")
@click.option("--encoding", metavar="NAME", help="Of the text; by default detected.")
@click.option("--decimal", type=click.Choice([".", ","]), help="Mark; by default detected.")
@click.option("--horizon", type=click.IntRange(min=2), help="Rounds; by default the rows.")
@click.option("--repetitions", type=click.IntRange(min=2), default=30, show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="The page; by default LOG-report.html, and none with --json.",
)
@click.option(
    "--assessment",
    type=click.Path(path_type=Path),
    metavar="FILE.toml",
    help="Begin the file for a review board's page, with the policy that fits best.",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--workers", type=click.IntRange(min=1), help="Threads; by default one a core.")
@delay_options
def compare(
    log: str,
    arm: str,
    reward: str,
    out: Path | None,
    assessment: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Look at a log, say which policies fit it, play them on it, and write a page.

    LOG is a CSV or Parquet file with one row for each decision: which arm, and what reward. It may
    be packed with gzip; `-` reads a pipe. Looking at a log is not itself private; no single reward
    is shown.

    \b
    Example: balaclava compare visits.csv --arm page --reward clicked --epsilon 1
    Example: zcat orders.csv.gz | balaclava compare - --arm price --reward paid --person customer
    """
    from balaclava._core.atomic_files import require_place
    from balaclava._core.extras import loading
    from balaclava.advice.log.log_reading import summarise_log
    from balaclava.advice.trial.compare import LOG_NOT_PRIVATE
    from balaclava.advice.trial.compare import compare as play
    from balaclava.logs.cells import PIPE, ReadOptions
    from balaclava.reporting.comparison_page import write_comparison

    if out is None and not as_json:
        out = Path("pipe-report.html" if log == PIPE else f"{Path(log).stem}-report.html")
    if assessment is not None and options["min_rows"] is not None:
        raise click.UsageError("--assessment plays on all of the log: remove rare arms from it")
    for place in (out, assessment):
        if place is not None:
            require_place(place)
    late = lateness(**{name: options.pop(name) for name in ("delay", "law", "lost", "patience")})
    reading = {name: options.pop(name) for name in _READ}
    reading["features"] = _names(reading["features"])
    how = ReadOptions(*(reading.pop(name) for name in ReadOptions._fields))
    with loading(*_COMPILER):  # which takes as long as a million rows
        rewards_log = summarise_log(log, arm=arm, reward=reward, how=how, **reading)
    if not as_json:
        _say([rewards_log.telling.sentence, LOG_NOT_PRIVATE])
    with progress_bar() as progress:
        comparison = play(rewards_log, progress=progress, **options, **late)
    if as_json:
        click.echo(json.dumps(_finite(comparison.to_dict()), indent=2, ensure_ascii=False))
    else:
        _show(comparison)
    if out is not None:
        command = f"balaclava {shlex.join(sys.argv[1:])}"
        page = write_comparison(comparison, out, command=command)
        click.echo(f"\nwrote {page}: open it in a browser", err=as_json)
    if assessment is not None:
        _begin_assessment(comparison, assessment, arm, reward, how)
        click.echo(
            f"wrote {assessment}: fill it in, then balaclava report --assessment {assessment}",
            err=as_json,
        )


def _begin_assessment(
    comparison: Comparison, place: Path, arm: str, reward: str, how: ReadOptions
) -> None:
    """The file of `balaclava assessment`, with what the log and the comparison say."""
    from balaclava.advice.choose.recommend import settings_of
    from balaclava.errors import ParameterError
    from balaclava.reporting.assessment_input import assessment_template

    log = comparison.log
    if comparison.best is None:
        raise ParameterError("--assessment: no policy fits, so that there is none to assess")
    if not Path(log.path).exists():
        raise ParameterError("--assessment: the page plays on the log again; give a file, no pipe")
    policy = comparison.named(comparison.best)
    source = {"name": "empirical", "path": log.path, "arm": arm, "reward": reward}
    settings = {name: value for name, value in how._asdict().items() if value}
    text = assessment_template(
        title=f"Policies for {Path(log.path).name}",
        policy={"name": policy.name, **settings_of(policy)},
        environment={**source, **settings},
        rewards_per_person=1 if comparison.people is None else comparison.people.most,
        horizon=comparison.results.horizon,
    )
    place.write_text(text, encoding="utf-8")


def _show(comparison: Comparison) -> None:
    from balaclava.reporting.comparison_page import (
        arm_table,
        cap_table,
        context_table,
        how_played,
        next_steps,
        price_sentences,
        standing_table,
    )

    header, *rows = arm_table(comparison)
    print_table(header, rows)
    click.echo()
    _say(comparison.log.findings())
    if comparison.people is not None:
        _say(comparison.people.findings())
        header, *rows = cap_table(comparison)
        print_table(header, rows)
        click.echo()
    if comparison.context is not None:
        _show_features(comparison.context)
    _say([how_played(comparison), *comparison.findings()])
    if comparison.fitting:
        click.echo("The policies that fit:")
        for label, why in comparison.fitting.items():
            line = f"- {label} ({comparison.results.guarantee(label)}): {why}"
            click.echo(textwrap.fill(line, _width(), subsequent_indent="  ", **_WHOLE_WORDS))
    if comparison.others:
        names = ", ".join(comparison.others)
        click.echo(f"Not clearly better than playing at random here: {names}.")
    click.echo()
    header, *rows = standing_table(comparison)
    print_table(header, rows)
    click.echo()
    _say(price_sentences(comparison))
    if comparison.context is not None and comparison.context.extra is not None:
        _say(comparison.context.advice())
        header, *rows = context_table(comparison.context)
        print_table(header, rows)
        click.echo()
    for word, text in next_steps(comparison):
        if word == "use":
            click.echo(f"{word + ':':<10}{text}")  # a line of code stays one
        else:
            say(word, text)


def _show_features(context: FeatureGain) -> None:
    """What features are worth, before any policy."""
    from balaclava.reporting.comparison_page import value_table

    first, *others = context.findings()
    _say([first])
    header, *rows = value_table(context)
    print_table(header, rows)
    click.echo()
    _say(others)


def _say(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        whole = sentence.replace(" %", "\u00a0%")  # a number stays with its sign
        lines = textwrap.fill(whole, _width(), **_WHOLE_WORDS)
        click.echo(lines.replace("\u00a0%", " %"))
    click.echo()


def _names(text: str | None) -> list[str]:
    """Columns that are parted by commas, as they were given."""
    names = [] if text is None else [name.strip() for name in text.split(",")]
    if not all(names):
        raise click.BadParameter(
            "give names of columns with commas between them, such as age,visits",
            param_hint="--features",
        )
    return names


def _width() -> int:
    """Of a line: 96 characters, or what the terminal has."""
    return min(96, shutil.get_terminal_size((96, 24)).columns)


def _finite(value: Any) -> Any:
    """The same, with null for what is not a number: JSON has no other word for it."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not abs(value) < float("inf") else value
