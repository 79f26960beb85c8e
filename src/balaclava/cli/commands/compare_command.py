"""`balaclava compare` and `balaclava explore`: which policies suit a log."""

from __future__ import annotations

import csv
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from balaclava.cli import terminal
from balaclava.cli.options import (
    combined,
    feedback_options,
    late_options,
    option,
    pop_delay,
    workers_option,
)

if TYPE_CHECKING:
    from balaclava.advice.log.log_summary import LogSummary
    from balaclava.advice.trial.compare import Comparison
    from balaclava.advice.trial.what_if import WhatIf
    from balaclava.logs.cells import ReadOptions
    from balaclava.policies.base import Policy
    from balaclava.reporting.assessment_input import PlanInput
    from balaclava.simulation.feedback import Feedback

_READING_OPTIONS = (
    *("reward_range", "outside", "clip", "clip_from", "clip_quantiles", "propensity", "time"),
    *("person", "features", "min_rows", "sep", "encoding", "decimal", "drop_missing", "missing"),
    *("outcomes", "by", "window", "until", "outcomes_as", "per", "time_format"),
)
_SLOW_IMPORTS = ("numba", "numba.np.arraymath", "scipy.special")  # loaded while reading the log


_log_options = combined(  # how a log is read; `explore` has the same
    option("--arm", "COLUMN", "The column that names the arm.", required=True),
    option("--reward", "COLUMN", "The column with the reward."),
    option(
        "--range reward_range",
        (float, float),
        "Smallest and largest possible reward, if you know them.",
    ),
    option(
        "--outside",
        ["refuse", "clip"],
        "What to do with rewards outside --range.",
        default="refuse",
    ),
    option(
        "--clip",
        (float, float),
        "Also try policies that clip to these limits; take them from public data.",
        metavar="LOW HIGH",
    ),
    option(
        "--clip-from",
        "PUBLIC.csv",
        "As --clip, with quantiles of the reward column of a public file as limits.",
    ),
    option(
        "--clip-quantiles",
        (float, float),
        "The quantiles for --clip-from.",
        default=(0.001, 0.999),
        metavar="LOW HIGH",
    ),
    option("--propensity", "COLUMN", "Probability with which the row's arm was played."),
    option("--time", "COLUMN", "Time of the decision; looks for drift."),
    option("--person", "COLUMN", "Participant; counts rewards per person."),
    option("--min-rows", click.IntRange(2), "Leave out arms with fewer rows."),
    option("--arms", click.IntRange(2), "Use this many arms only, those with the most rows."),
    option("--drop-missing", bool, "Leave out rows that lack a value."),
    option(
        "--missing",
        float,
        "Reward where none came: of rows whose reward is empty, and with --settle window of those "
        "that are late or lost. 0 for no purchase.",
    ),
    option("--outcomes", "FILE", "A file of outcomes, such as purchases; has the reward column."),
    option(
        "--by",
        "COLUMN",
        "With --outcomes: the id in both files; also the participant, without --person.",
    ),
    option(
        "--outcomes-as",
        ["sum", "any", "count"],
        "A row's reward: the sum of its outcomes, 1 if there are any, or how many. Only the sum "
        "needs --reward.",
        default="sum",
    ),
    option("--window", "7d", "With --outcomes: how long after a row its outcomes count."),
    option(
        "--until",
        "TIME",
        "With --outcomes: when both files end; by default at the last row of either.",
    ),
    option(
        "--per",
        ["row", "person"],
        "What counts: each row, or each participant once, with the arm of the first row.",
        default="row",
    ),
    option("--time-format", "FORMAT", "Of times, such as '%d/%m/%Y %H:%M'; by default detected."),
    option("--sep", "CHARACTER", "Separator of cells; by default detected."),
    option("--encoding", "NAME", "Encoding of the text; by default detected."),
    option("--decimal", [".", ","], "Decimal mark; by default detected."),
)


@click.command(short_help="Rank the policies that fit a log.")
@click.argument("log", metavar="LOG.csv")
@_log_options
@option("--epsilon", float, "Privacy loss.", default=1.0)
@option("--delta", float, "Probability outside epsilon, for policies with features.", default=0.0)
@option(
    "--features",
    "COLUMN,COLUMN",
    "Public columns known before each decision; estimates their value.",
)
@option(
    "--horizon",
    click.IntRange(2),
    "Rounds; by default the rows of the log, at least 1,000 and at most 50,000.",
)
@option("--repetitions", click.IntRange(2), "Worlds to draw from the log and play in.", default=30)
@option("--seed", click.IntRange(0), "Repeats the comparison exactly.", default=1)
@option("--out", Path, "HTML page; by default LOG-report.html, none with --json.")
@option(
    "--assessment",
    Path,
    "Start the input of a review board's page, with the policy that fits best; with --outcomes "
    "or --per person, write the rows that count beside it.",
    metavar="FILE.toml",
)
@option("--json as_json", bool, "Print everything as JSON.")
@workers_option
@feedback_options
def compare(
    log: str,
    arm: str,
    reward: str | None,
    out: Path | None,
    assessment: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Summarise LOG, play the policies that fit it, and write a page.

    LOG is a CSV or Parquet file with one row per decision: its arm and its reward. It may be
    compressed with gzip; `-` reads standard input.

    If rewards are in a second file, such as purchases, give it with --outcomes: a row's reward is
    the sum of the outcomes of its id (--by) within the window after it, 0 if there are none; with
    --outcomes-as any it is 1 if there are any, as for conversions. An id counts as a participant,
    unless --person names another column. Visitors return: an outcome counts for the last row before
    it, or with --per person for the visitor's first row, and later rows are left out.

    Looking at a log is not itself private. No single reward is displayed.

    \b
    Example: balaclava compare visits.csv --arm page --reward clicked --epsilon 1
    Example: zcat orders.csv.gz | balaclava compare - --arm price --reward paid --person customer
    Example: balaclava compare views.csv --arm price --outcomes purchases.csv --reward paid \\
             --by visitor --time at --window 7d
    Example: balaclava compare views.csv --arm price --outcomes purchases.csv --outcomes-as any \\
             --by visitor --time at --window 7d --per person
    """
    from balaclava._core.atomic_files import require_writable_file
    from balaclava.advice.trial.compare import LOG_NOT_PRIVATE
    from balaclava.advice.trial.compare import compare as compare_policies
    from balaclava.logs.cells import PIPE
    from balaclava.reporting.comparison_page import write_comparison

    if out is None and not as_json:
        out = Path("pipe-report.html" if log == PIPE else f"{Path(log).stem}-report.html")
    if assessment is not None and (options["min_rows"] or options["arms"]) is not None:
        raise click.UsageError(
            "--assessment plays on the whole log; remove arms from it instead of --min-rows, --arms"
        )
    joined = None
    derived = options["outcomes"] is not None or options["per"] == "person"
    if assessment is not None and derived:
        joined = assessment.with_name(f"{assessment.stem}-log.csv")
    for place in (out, assessment, joined):
        if place is not None:
            require_writable_file(place)
    late = _pop_feedback(options)
    summary, read_options = _read_summary(log, arm, reward, options)
    if not as_json:
        terminal.print_sentences([summary.best_arm_test.sentence, LOG_NOT_PRIVATE, ""])
    with terminal.progress_bar() as progress:
        comparison = compare_policies(summary, progress=progress, **options, **late)
    if as_json:
        terminal.print_json(comparison.to_dict())
    else:
        _print_comparison(comparison)
    if out is not None:
        page = write_comparison(comparison, out, command=f"balaclava {shlex.join(sys.argv[1:])}")
        click.echo(f"\nwrote {page}: open it in a browser", err=as_json)
    if assessment is not None:
        source = log
        if joined is not None:
            source, read_options = str(joined), type(read_options)()
        name = reward or "outcomes"
        _write_assessment(comparison, assessment, source, arm, name, read_options)
        if joined is not None:
            _write_joined_log(summary, joined, arm, name)
            words = f"wrote {joined}, the rows that count with their rewards: keep it confidential"
            click.echo(words, err=as_json)
        click.echo(
            f"wrote {assessment}: fill it in, then balaclava report --assessment {assessment}",
            err=as_json,
        )


def _pop_feedback(options: dict[str, Any]) -> dict[str, Any]:
    """Remove the options on delays, and return them; `missing` stays, to read the log by."""
    missing = options["missing"]
    late = pop_delay(options)
    options["missing"] = missing
    if late.get("settle") != "window":
        late.pop("missing", None)
    elif options["outcomes"] is not None:
        late.setdefault("missing", 0.0)  # as in the log: no outcome in the window is 0
    return late


def _read_summary(
    log: str, arm: str, reward: str | None, options: dict[str, Any]
) -> tuple[LogSummary, ReadOptions]:
    """Remove the options on reading from `options`, and read the log by them."""
    from balaclava._core.extras import loading
    from balaclava.advice.log.log_reading import summarise_log
    from balaclava.logs.cells import ReadOptions

    reading = {name: options.pop(name) for name in _READING_OPTIONS if name in options}
    arms = options.pop("arms")
    reading["features"] = _column_names(reading.get("features"))
    read_options = ReadOptions(*(reading.pop(name) for name in ReadOptions._fields))
    with loading(*_SLOW_IMPORTS):
        summary = summarise_log(log, arm=arm, reward=reward, read_options=read_options, **reading)
    return (summary if arms is None else summary.with_most_rows(arms)), read_options


def _write_joined_log(summary: LogSummary, place: Path, arm: str, reward: str) -> None:
    """Write arms and joined rewards in the order of the log, for the page that reads them again."""
    from balaclava._core.atomic_files import atomically

    with atomically(place) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow((arm, reward))
        rewards = (repr(reward) for reward in summary.logged.rewards.tolist())
        labels = (summary.labels[code] for code in summary.logged.arms.tolist())
        rows.writerows(zip(labels, rewards, strict=True))


def _write_assessment(
    comparison: Comparison,
    place: Path,
    path: str,
    arm: str,
    reward: str,
    read_options: ReadOptions,
) -> None:
    """Write the input of `balaclava report --assessment` with the figures of the comparison.

    Its page simulates from the log at `path`.
    """
    from balaclava.advice.choose.recommend import changed_parameters
    from balaclava.errors import ParameterError
    from balaclava.logs.cells import PIPE, ReadOptions
    from balaclava.reporting.assessment_input import assessment_template

    log = comparison.log
    if comparison.best is None:
        raise ParameterError(
            "--assessment: no policy fits, so there is none to assess; try a longer --horizon, or "
            "fill in a file of `balaclava assessment --init`"
        )
    if log.drifts:
        raise ParameterError("--assessment: averages drift, and the page would play without drift")
    if path == PIPE:
        raise ParameterError("--assessment: the page reads the log again; give a file, not a pipe")
    policy = comparison.named(comparison.best)
    source = {"name": "empirical", "path": path, "arm": arm, "reward": reward}
    default = ReadOptions()._asdict()
    settings = {n: value for n, value in read_options._asdict().items() if value != default[n]}
    participants = comparison.participants
    text = assessment_template(
        title=f"Policies for {Path(log.path).name}",
        policy={"name": policy.name, **changed_parameters(policy)},
        environment={**source, **settings},
        rewards_per_person=1 if participants is None else participants.most,
        horizon=comparison.results.horizon,
        feedback=_planned_feedback(comparison),
        planned=_planned(comparison, policy),
    )
    place.write_text(text, encoding="utf-8")


def _planned_feedback(comparison: Comparison) -> Feedback:
    """As it was played; of a log joined with a window, by default the wait for its end."""
    from balaclava.simulation.feedback import Feedback

    feedback, wait = comparison.results.feedback, comparison.log.window_rows
    if feedback.prompt and wait:
        return Feedback.create(None, wait, "window", 0.0)
    return feedback


def _planned(comparison: Comparison, policy: Policy) -> PlanInput | None:
    """The plan for the lead that the log shows, in shares of the range of rewards; or None."""
    from balaclava.reporting.assessment_input import PlanInput

    needed, (low, high) = comparison.rows_needed, policy.accepts
    if needed is None or needed.participants is None or not needed.lead.middle > 0:
        return None
    if policy.rewards != "bounded" or policy.estimation is None:
        return None
    best = max(row.mean for row in comparison.log.arms)
    lead = float(f"{needed.lead.middle / (high - low):.2g}")
    rate = float(f"{(best - low) / (high - low) - lead:.2g}")
    return PlanInput(rate, lead) if rate >= 0.0 and rate + lead <= 1.0 else None


def _print_comparison(comparison: Comparison) -> None:
    from balaclava.advice.trial.feature_trial import feature_advice
    from balaclava.reporting import comparison_page

    terminal.print_cells(comparison_page.arm_table(comparison))
    terminal.print_sentences([*comparison.log.findings(), ""])
    if comparison.participants is not None:
        terminal.print_sentences([*comparison.participants.findings(), ""])
        terminal.print_cells(comparison_page.cap_table(comparison))
    gain, trial = comparison.feature_gain, comparison.feature_trial
    if gain is not None:
        public, *others = gain.findings()
        terminal.print_sentences([public, ""])
        terminal.print_cells(comparison_page.value_table(gain))
        terminal.print_sentences([*others, ""])
    terminal.print_sentences([comparison_page.how_played(comparison), *comparison.findings(), ""])
    if comparison.fitting:
        unless = " if averages do not change" if comparison.log.drifts else ""
        click.echo(f"The policies that fit{unless}:")
        for label, why in comparison.fitting.items():
            line = f"- {label} ({comparison.results.guarantee(label)}): {why}"
            terminal.print_sentences([line], indent="  ")
    if comparison.others:
        names = ", ".join(comparison.others)
        terminal.print_sentences([f"Not clearly better than playing at random here: {names}."])
    click.echo()
    cells = comparison_page.standing_table(comparison)
    terminal.print_cells(cells, ("5 % to 95 %", "± (95 %)", "regret"), "the page has all columns")
    terminal.print_sentences([*comparison_page.price_sentences(comparison), ""])
    if gain is not None and trial is not None:
        terminal.print_sentences([*feature_advice(gain, trial), ""])
        terminal.print_cells(comparison_page.feature_table(trial))
    if comparison.drift_trial is not None:
        terminal.print_sentences([*comparison.drift_trial.findings(), ""])
        terminal.print_cells(comparison_page.drift_table(comparison.drift_trial))
    for label, text in comparison_page.next_steps(comparison):
        (terminal.print_code if label == "use" else terminal.print_labelled)(label, text)


def _column_names(text: str | None) -> list[str]:
    names = [] if text is None else [name.strip() for name in text.split(",")]
    if not all(names):
        raise click.BadParameter(
            "give names of columns with commas between them, such as age,visits",
            param_hint="--features",
        )
    return names


@click.command(short_help="Ask a log what if: a page with sliders.")
@click.argument("log", metavar="LOG.csv")
@_log_options
@option("--port", click.IntRange(0, 65535), "Of this machine; 0 for a free one.", default=0)
@workers_option
@late_options
def explore(
    log: str, arm: str, reward: str | None, port: int, workers: int | None, **options: Any
) -> None:
    """Serve a page with sliders for epsilon, participants, delay and arms.

    Each position is simulated when you choose it: the page has what `balaclava compare` displays at
    these settings. It is served to this machine only, at an address that is new each time, and is
    as confidential as the log. Ctrl-C stops it. How rewards are lost, and when they count, is the
    same at all positions.

    \b
    Example: balaclava explore visits.csv --arm page --reward clicked
    Example: balaclava explore visits.csv --arm page --reward clicked --lost 0.1 --settle window \\
                 --patience 500 --missing 0
    """
    from balaclava.advice.trial.compare import LOG_NOT_PRIVATE
    from balaclava.advice.trial.what_if import Explorer
    from balaclava.reporting.explore_server import ExploreServer

    reading = _given_options(click.get_current_context())
    late = {name: options.pop(name) for name in ("law", "lost")}
    settling = _pop_feedback(options)
    summary, _ = _read_summary(log, arm, reward, options)
    explorer = Explorer(summary, workers, **late, **settling)

    def command(settings: WhatIf) -> str:
        chosen = {f"--{name}": value for name, value in settings._asdict().items()}
        reader_options = dict(reading)
        if not settings.delay:
            del chosen["--delay"]
            reader_options.pop("--law", None)
        if settings.arms == len(summary.labels):
            del chosen["--arms"]
        words = [log, *_words(reader_options | chosen)]
        return f"balaclava compare {shlex.join(words)}"

    with ExploreServer(explorer, command, port) as server:
        terminal.print_sentences([LOG_NOT_PRIVATE])
        click.echo("Compiling; some seconds, the first time about twenty.", err=True)
        with terminal.progress_bar() as progress:
            explorer.warm_up(progress)
        click.echo(f"Open {server.url} in a browser; Ctrl-C stops it.")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            click.echo("stopped", err=True)


def _given_options(context: click.Context) -> dict[str, Any]:
    """What the user gave about the log, by option."""
    return {
        each.opts[0]: context.params[each.name]
        for each in context.command.params
        if isinstance(each, click.Option)
        and each.name is not None
        and each.name not in ("port", "workers")
        and context.get_parameter_source(each.name) == ParameterSource.COMMANDLINE
    }


def _words(options: dict[str, Any]) -> list[str]:
    """Options as words of a command line."""
    words: list[str] = []
    for name, value in options.items():
        words.append(name)
        if value is not True:
            values = value if isinstance(value, tuple) else (value,)
            words += [f"{each:g}" if isinstance(each, float) else str(each) for each in values]
    return words
