"""A log for `compare`: rows that can be used, and further columns that say more of them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from balaclava._core.declared import Outside, RewardRange, check
from balaclava.advice.log.clipping import QUANTILES, public_limits
from balaclava.advice.log.drift import read_times
from balaclava.advice.log.feature_columns import FEATURE, read_features
from balaclava.advice.log.log_summary import LogSummary
from balaclava.advice.log.participants import read_participants
from balaclava.environments.base import environment as make_environment
from balaclava.errors import ParameterError
from balaclava.logs.cells import PIPE, ReadOptions
from balaclava.logs.numerals import FIRST_ROW, first_row, read_numbers
from balaclava.logs.reader import LoggedRewards, read_log

_LARGEST = 1e100  # of a reward: sums of squares stay finite
_MANY = 20  # arms
LEAST_ROWS = 20  # of an arm; with fewer an average is hardly one


def summarise_log(
    path: str | os.PathLike[str],
    *,
    arm: str,
    reward: str,
    reward_range: tuple[float, float] | None = None,
    outside: Outside = "refuse",
    clip: tuple[float, float] | None = None,
    clip_from: str | os.PathLike[str] | None = None,
    clip_quantiles: tuple[float, float] = QUANTILES,
    propensity: str | None = None,
    time: str | None = None,
    person: str | None = None,
    features: Sequence[str] = (),
    min_rows: int | None = None,
    how: ReadOptions | None = None,
) -> LogSummary:
    """Read a log; errors name rows and columns, never rewards.

    With outside = "clip" rewards may leave `reward_range`, and policies clip them to it; with
    `clip` policies that do so are tried beside those that need no range; `clip_from` takes these
    limits from quantiles of a public file. `features` are columns that were known before the
    decision. Arms with fewer than `min_rows` rows are left out.
    """
    outside = check("outside", outside, Outside)
    if reward_range is None and outside == "clip":
        raise ParameterError('outside = "clip" needs a range; give it with --range')
    clip_source = ""
    if clip_from is not None:
        _require_public(path, clip, clip_from)
        clip, clip_source = public_limits(
            clip_from, reward=reward, quantiles=clip_quantiles, how=how or ReadOptions()
        )
    limits = {
        name: _checked_range(name, pair)
        for name, pair in (("range", reward_range), ("clip", clip))
        if pair is not None
    }
    path = os.fspath(path)
    columns = {"propensity": propensity, "time": time, "person": person}
    wanted = {name: column for name, column in columns.items() if column is not None}
    wanted |= {f"{FEATURE}{i + 1}": column for i, column in enumerate(features)}
    rows = read_log(path, arm=arm, reward=reward, others=wanted, how=how)
    path = "the pipe" if path == PIPE else path
    _refuse_huge(f"{path}: column {reward!r}", rows.rewards)
    log, kept = _with_enough_rows(path, arm, rows, min_rows)
    log = dataclasses.replace(
        log,
        given_range=limits.get("range"),
        outside=outside,
        clip=limits.get("clip"),
        clip_source=clip_source,
        **_more(path, wanted, rows, kept, None if how is None else how.decimal),
    )
    if "range" in limits and outside == "refuse" and log.clipped:
        low, high = limits["range"]
        raise ParameterError(
            f"range = ({low:g}, {high:g}) does not hold all rewards of {path}; widen it, or "
            "have the others clipped to it (--outside clip)"
        )
    if log.clip is not None and log.kind == "bounded" and log.given_range is None:
        log = dataclasses.replace(log, given_range=log.clip, outside="clip", clip=None)
    return log


def _require_public(
    path: str | os.PathLike[str], clip: object, clip_from: str | os.PathLike[str]
) -> None:
    """One source of limits, and another file than the log, whose rewards are to be protected."""
    if clip is not None:
        raise ParameterError("give --clip or --clip-from, and not both")
    if os.path.exists(path) and os.path.exists(clip_from) and os.path.samefile(path, clip_from):
        raise ParameterError(
            f"clip-from = {os.fspath(clip_from)!r} is the log itself, whose rewards are to be "
            "protected; give a file that is public"
        )


def _refuse_huge(where: str, rewards: np.ndarray) -> None:
    beyond = np.abs(rewards) > _LARGEST
    if beyond.any():
        raise ParameterError(
            f"{where} is beyond {_LARGEST:g} in row {first_row(beyond)} {FIRST_ROW}; is it a mark "
            "for what is missing? Remove or replace it"
        )


def _checked_range(name: str, pair: tuple[float, float]) -> tuple[float, float]:
    low, high = check(name, pair, RewardRange)
    if not low < high:
        raise ParameterError(f"{name} = ({low:g}, {high:g}) is empty; give smallest, then largest")
    return low, high


def _with_enough_rows(
    path: str, arm: str, rows: LoggedRewards, min_rows: int | None
) -> tuple[LogSummary, np.ndarray]:
    """The log without arms that are too rare, and which rows are left."""
    left_out = []
    if rows.dropped:
        total = rows.dropped + rows.rewards.size
        left_out.append(
            f"{rows.dropped:,} of {total:,} rows ({rows.dropped / total:.1%}) lack a value and "
            "were dropped: if they are not missing by chance, averages are biased."
        )
    labels = list(rows.by_arm)
    counts = np.bincount(rows.arms, minlength=len(labels))
    rare = int(np.argmin(counts))
    if len(labels) > _MANY and rows.rewards.size < 2 * len(labels):
        raise ParameterError(
            f"{path}: column {arm!r} has {len(labels):,} different cells in {rows.rewards.size:,} "
            "rows; does it name the arm? Give the column that says which option was taken"
        )
    if len(labels) > 1 and min_rows is None and counts[rare] < LEAST_ROWS:
        raise ParameterError(
            f"{path}: arm {labels[rare]!r} has {counts[rare]} rows; give at least {LEAST_ROWS} for "
            f"each arm, leave out such arms with --min-rows {LEAST_ROWS}, or take what there is, "
            "which says little, with --min-rows 2"
        )
    enough = counts >= (min_rows or 1)
    kept = enough[rows.arms]
    if not enough.all():
        left_out.append(
            f"{int((~enough).sum())} of {len(labels)} arms have fewer than {min_rows} rows and "
            f"were left out, {int((~kept).sum()):,} rows ({(~kept).mean():.1%})."
        )
        by_arm = {
            label: rows.by_arm[label]
            for label, is_kept in zip(labels, enough, strict=True)
            if is_kept
        }
        rows = dataclasses.replace(
            rows,
            by_arm=by_arm,
            arms=(np.cumsum(enough) - 1)[rows.arms[kept]],
            rewards=rows.rewards[kept],
        )
    if len(rows.by_arm) < 2:
        names = "one arm only" if len(labels) == 1 else "fewer than two arms with enough rows"
        raise ParameterError(
            f"{path}: column {arm!r} names {names}; a bandit needs two or more to choose from"
        )
    world = make_environment("empirical", samples=rows.by_arm)
    return LogSummary(path, world, rows, left_out=tuple(left_out)), kept


def _more(
    path: str, wanted: dict[str, str], rows: LoggedRewards, kept: np.ndarray, decimal: str | None
) -> dict[str, Any]:
    """The further columns, as numbers, for the rows that are left."""
    more: dict[str, Any] = {}
    columns = {
        column: rows.others[name] for name, column in wanted.items() if name.startswith(FEATURE)
    }
    if columns:
        more["features"] = read_features(
            path, columns, commas_between_cells=rows.commas_between_cells, decimal=decimal
        ).of(kept)
    for name, column in wanted.items():
        where = f"{path}: column {column!r}"
        cells = rows.others[name]
        if name == "propensity":
            chances, _ = read_numbers(
                where, cells, commas_between_cells=rows.commas_between_cells, decimal=decimal
            )
            wrong = (chances <= 0) | (chances > 1)
            if wrong.any():
                raise ParameterError(
                    f"{where} is not above 0 and at most 1 in row {first_row(wrong)} {FIRST_ROW}; "
                    "give the probability with which the arm of that row was played"
                )
            more["propensities"] = chances[kept]
        elif name == "time":
            more["times"] = read_times(where, cells)[kept]
        elif name == "person":
            more["people"] = read_participants(where, cells)[kept]
    return more
