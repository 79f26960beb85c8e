"""Reading a log for `balaclava compare`: rows to use, and columns that describe them."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from balaclava._core.declared import Outside, RewardRange, check
from balaclava._core.number_format import counted
from balaclava.advice.log.clipping import CLIP_QUANTILES, public_limits
from balaclava.advice.log.feature_columns import read_features
from balaclava.advice.log.log_summary import LogSummary
from balaclava.errors import ParameterError
from balaclava.logs.cells import PIPE, ReadOptions
from balaclava.logs.first_rows import Per
from balaclava.logs.numerals import read_numbers, refuse_rows
from balaclava.logs.outcomes import (
    JoinedLog,
    OutcomeFile,
    OutcomesAs,
    read_decisions,
    read_joined_log,
)
from balaclava.logs.reader import LoggedRewards, as_labels, kept_rows
from balaclava.logs.times import read_times

MAX_ABSOLUTE_REWARD = 1e100  # so that sums of squares do not overflow
MANY_ARMS = 20  # with more, and under two rows each, a column hardly names arms; a guess
MIN_ROWS_PER_ARM = 20  # a rule of thumb for a normal interval of a mean; see --min-rows
_FEATURE = "feature "  # prefix of the purpose of a feature column, followed by its number


def summarise_log(
    path: str | os.PathLike[str],
    *,
    arm: str,
    reward: str | None = None,
    reward_range: tuple[float, float] | None = None,
    outside: Outside = "refuse",
    clip: tuple[float, float] | None = None,
    clip_from: str | os.PathLike[str] | None = None,
    clip_quantiles: tuple[float, float] = CLIP_QUANTILES,
    propensity: str | None = None,
    time: str | None = None,
    person: str | None = None,
    features: Sequence[str] = (),
    min_rows: int | None = None,
    outcomes: str | os.PathLike[str] | None = None,
    by: str | None = None,
    window: str | None = None,
    until: str | None = None,
    outcomes_as: OutcomesAs = "sum",
    per: Per = "row",
    time_format: str | None = None,
    read_options: ReadOptions | None = None,
) -> LogSummary:
    """Read a log once, with the options of `balaclava compare`.

    `arm`, `reward`, `propensity`, `time`, `person` and `features` are names of columns. `clip` adds
    policies that clip rewards to these limits; `clip_from` takes the limits from quantiles of a
    public file. With `outcomes`, a file with one row per outcome, rewards are its outcomes of the
    same id (column `by`) within `window` after each row; ids are taken for participants if there is
    no `person`; `outcomes_as` says whether they are summed, counted, or 1 for any, and only a sum
    needs `reward`. Both files reach `until`, by default the last row of either. With `per="person"`
    the first row of each participant is kept. Errors name rows and columns, never rewards.
    """
    outside = check("outside", outside, Outside)
    if reward_range is None and outside == "clip":
        raise ParameterError('outside = "clip" needs a range; give it with --range')
    options = read_options or ReadOptions()
    reward = reward_column(reward, outcomes, outcomes_as)
    clip_source = ""
    if clip_from is not None:
        _require_public(path, clip, clip_from)
        clip, clip_source = public_limits(
            clip_from, reward=reward, quantiles=clip_quantiles, read_options=options
        )
    given_range = reward_range and _checked_range("range", reward_range)
    clip = clip and _checked_range("clip", clip)
    file = outcome_file(outcomes, by, time, reward, window, until, outcomes_as)
    columns = named_columns(propensity, time, person, by, features)
    source = "the pipe" if os.fspath(path) == PIPE else os.fspath(path)
    read = read_with_outcomes(path, arm, reward, columns, file, options, time_format, per)
    gone = read.rows.dropped + read.left_out
    _refuse_huge(f"{kept_rows(source, gone)}: column {reward!r}", read.rows.rewards)
    rows, kept, left_out = _with_enough_rows(source, arm, read, min_rows)
    log = LogSummary(
        source,
        rows,
        given_range=given_range,
        outside=outside,
        clip=clip,
        clip_source=clip_source,
        left_out=(*read.findings, *left_out),
        window_rows=read.window_rows,
        **_further_columns(kept_rows(source, gone), columns, rows, kept, options, time_format),
    )
    _require_within(log)
    if log.clip is not None and log.kind == "bounded" and log.given_range is None:
        log = dataclasses.replace(log, given_range=log.clip, outside="clip", clip=None)
    return log


def read_with_outcomes(
    path: str | os.PathLike[str],
    arm: str,
    reward: str,
    columns: dict[str, str],
    file: OutcomeFile | None,
    options: ReadOptions,
    time_format: str | None,
    per: Per,
    *,
    public_end: bool = False,
) -> JoinedLog:
    """The rows of a log, with the outcomes of a second file if there is one."""
    options, source = options.checked(), os.fspath(path)
    if check("per", per, Per) == "person":
        if "person" not in columns:
            raise ParameterError(
                "--per person needs participants; give their column with --person, or with "
                "--outcomes as --by"
            )
        if "by" in columns:
            raise ParameterError(
                f"--per person: --by {columns['by']} and --person {columns['person']} differ; "
                "leave --person out, so that outcomes are joined by participant"
            )
    if file is None:
        return read_decisions(source, arm, reward, columns, options, time_format, per)
    return read_joined_log(
        source, arm, columns, file, options, time_format, per, public_end=public_end
    )


def named_columns(
    propensity: str | None,
    time: str | None,
    person: str | None,
    by: str | None,
    features: Sequence[str],
) -> dict[str, str]:
    """The names of further columns by purpose; ids that join outcomes may be participants."""
    person = by if person is None else person
    named = {"propensity": propensity, "time": time, "person": person}
    named["by"] = None if by == person else by
    columns = {purpose: column for purpose, column in named.items() if column is not None}
    return columns | {f"{_FEATURE}{i}": column for i, column in enumerate(features, start=1)}


def _refuse_huge(where: str, rewards: np.ndarray) -> None:
    huge, what = np.abs(rewards) > MAX_ABSOLUTE_REWARD, f"is beyond {MAX_ABSOLUTE_REWARD:g}"
    refuse_rows(where, huge, what, "if it marks a missing value, remove or replace it")


def _require_within(log: LogSummary) -> None:
    """Refuse rewards outside the range that is declared, unless they are to be clipped."""
    if log.given_range is not None and log.outside == "refuse" and log.clipped:
        low, high = log.given_range
        raise ParameterError(
            f"range = ({low:g}, {high:g}) does not contain all rewards of {log.path}; widen it, or "
            "clip the others to it with --outside clip"
        )


def reward_column(reward: str | None, outcomes: object, outcomes_as: OutcomesAs) -> str:
    """The name of the rewards; raises if they need a column and none is given."""
    outcomes_as = check("outcomes_as", outcomes_as, OutcomesAs)
    if outcomes is None and outcomes_as != "sum":
        raise ParameterError(f"--outcomes-as {outcomes_as} needs --outcomes; give the file")
    if reward is None and outcomes_as == "sum":
        raise ParameterError(
            "--reward is missing; give the column with the reward, or with --outcomes "
            "--outcomes-as any: a row with an outcome then has the reward 1, others 0"
        )
    return ("bought" if outcomes_as == "any" else "outcomes") if reward is None else reward


def outcome_file(
    outcomes: str | os.PathLike[str] | None,
    by: str | None,
    time: str | None,
    reward: str,
    window: str | None,
    until: str | None,
    outcomes_as: OutcomesAs,
) -> OutcomeFile | None:
    needed = {"--outcomes": outcomes, "--by": by, "--window": window}
    if all(each is None for each in (*needed.values(), until)):
        return None
    missing = [name for name, each in {**needed, "--time": time}.items() if each is None]
    if outcomes is None or by is None or window is None or time is None:
        raise ParameterError(
            "--outcomes needs --by, --window and --time together; give " + ", ".join(missing)
        )
    return OutcomeFile(os.fspath(outcomes), by, time, reward, window, outcomes_as, until)


def _require_public(
    path: str | os.PathLike[str], clip: object, clip_from: str | os.PathLike[str]
) -> None:
    """Refuse two sources of limits, and limits from the log, whose rewards need protection."""
    if clip is not None:
        raise ParameterError("--clip and --clip-from are both given; give one of them")
    if os.path.exists(path) and os.path.exists(clip_from) and os.path.samefile(path, clip_from):
        raise ParameterError(
            f"clip-from = {os.fspath(clip_from)!r} is the log itself, whose rewards need "
            "protection; give a public file"
        )


def _checked_range(name: str, pair: tuple[float, float]) -> tuple[float, float]:
    low, high = check(name, pair, RewardRange)
    if not low < high:
        raise ParameterError(f"{name} = ({low:g}, {high:g}) is empty; give the smaller limit first")
    return low, high


def _with_enough_rows(
    source: str, arm: str, read: JoinedLog, min_rows: int | None
) -> tuple[LoggedRewards, np.ndarray, tuple[str, ...]]:
    """The log without rare arms, a mask of the rows kept, and sentences on dropped rows."""
    rows = read.rows
    labels = list(rows.by_arm)
    counts = np.bincount(rows.arms, minlength=len(labels))
    _require_arms(source, arm, labels, counts, min_rows)
    enough = counts >= (min_rows or 1)
    kept = enough[rows.arms]
    sentences = []
    if rows.dropped:
        total = rows.dropped + read.left_out + rows.rewards.size
        sentences.append(
            f"{rows.dropped:,} of {total:,} rows ({rows.dropped / total:.1%}) lack a value and "
            "were dropped: averages are biased unless values are missing at random."
        )
    if not enough.all():
        sentences.append(
            f"{int((~enough).sum())} of {len(labels)} arms have fewer than {min_rows} rows and "
            f"were left out, {int((~kept).sum()):,} rows ({(~kept).mean():.1%})."
        )
        rows = rows.with_arms(enough)
    if len(rows.by_arm) < 2:
        names, advice = "one arm only", "give a log with at least two"
        if len(labels) > 1:
            names, advice = "fewer than two arms with enough rows", "lower --min-rows"
        raise ParameterError(f"{source}: column {arm!r} names {names}; {advice}")
    return rows, kept, tuple(sentences)


def _require_arms(
    source: str, arm: str, labels: list[Any], counts: np.ndarray, min_rows: int | None
) -> None:
    """Refuse a column that hardly names arms, and arms with too few rows."""
    rows, rare = int(counts.sum()), int(np.argmin(counts))
    if len(labels) > MANY_ARMS and rows < 2 * len(labels):
        raise ParameterError(
            f"{source}: column {arm!r} has {len(labels):,} different cells in {rows:,} rows; give "
            "the column that names the arm"
        )
    if len(labels) > 1 and min_rows is None and counts[rare] < MIN_ROWS_PER_ARM:
        raise ParameterError(
            f"{source}: arm {labels[rare]!r} has {counted(counts[rare], 'row')}; give at least "
            f"{MIN_ROWS_PER_ARM} for each arm, leave out rare arms with --min-rows "
            f"{MIN_ROWS_PER_ARM}, or accept wide intervals with --min-rows 2"
        )


def _further_columns(
    source: str,
    columns: dict[str, str],
    rows: LoggedRewards,
    kept: np.ndarray,
    options: ReadOptions,
    time_format: str | None,
) -> dict[str, Any]:
    """Propensities, times, participants and features of the rows kept."""
    cells = {column: rows.others[purpose] for purpose, column in columns.items()}
    read_as = {"commas_between_cells": rows.commas_between_cells, "decimal": options.decimal}
    further: dict[str, Any] = {}
    features = {name: cells[name] for key, name in columns.items() if key.startswith(_FEATURE)}
    if features:
        further["features"] = read_features(source, features, **read_as).select(kept)
    for purpose, column in columns.items():
        where = f"{source}: column {column!r}"
        if purpose == "propensity":
            further["propensities"] = _read_propensities(where, cells[column], read_as)[kept]
        elif purpose == "time":
            times, further["dated"] = read_times(where, cells[column], time_format)
            further["times"] = times[kept]
        elif purpose == "person":
            further["participants"] = as_labels(where, cells[column])[1][kept]
    return further


def _read_propensities(where: str, cells: Any, read_as: dict[str, Any]) -> np.ndarray:
    propensities, _ = read_numbers(where, cells, **read_as)
    wrong = (propensities <= 0) | (propensities > 1)
    advice = "give the probability with which the arm of that row was played"
    refuse_rows(where, wrong, "is not above 0 and at most 1", advice)
    return propensities
