"""Rewards from a second file: what each decision's participant did within a window after it."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from balaclava._core.extras import require_extra
from balaclava._core.number_format import counted
from balaclava.errors import ParameterError
from balaclava.logs.cells import Columns, ReadOptions
from balaclava.logs.first_rows import Per, first_rows
from balaclava.logs.reader import (
    LoggedRewards,
    as_labels,
    group_rewards,
    kept_rows,
    read_rewards,
    read_rows,
)
from balaclava.logs.repeats import repeated_rows
from balaclava.logs.times import read_times, read_window

# The reward of a decision: its outcomes' amounts, whether it has one, or how many.
OutcomesAs = Literal["sum", "any", "count"]
_MANY_UNMATCHED = 0.1  # share of outcomes above which ids or times hardly fit; a guess


class OutcomeFile(NamedTuple):
    """A file with one row per outcome, such as a purchase."""

    path: str
    by: str  # the column of ids that joins both files, such as that of participants
    time: str  # the column of times, in both files
    reward: str  # the column of amounts; not read unless they are summed
    window: str  # such as "7d": outcomes count until so long after the decision
    rewards_as: OutcomesAs = "sum"
    until: str | None = None  # time at which both files end; by default that of the last row


class JoinedLog(NamedTuple):
    """Decisions with their outcomes."""

    rows: LoggedRewards
    findings: list[str]  # what was left out
    window_rows: int | None  # decisions made in a window, on average; None if all are at once
    left_out: int = 0  # rows that were left out, beside those that lack a value


def read_decisions(
    source: str,
    arm: str,
    reward: str,
    others: Mapping[str, str],
    options: ReadOptions,
    time_format: str | None = None,
    per: Per = "row",
) -> JoinedLog:
    """Read decisions with their rewards; with `per="person"`, the first of each participant.

    Args:
        source: the path of the decisions.
        arm: the column of arms.
        reward: the column of rewards.
        others: further columns, as {purpose: name}; with `per="person"`, "person" among them.
        options: how to read the file.
        time_format: of the times, as for `read_times`.
        per: what a row that is kept stands for.

    Returns:
        The rewards by arm, and sentences on what was left out.

    Raises:
        ParameterError: if the file is not suitable.
    """
    columns, dropped = read_rows(source, {"arm": arm, "reward": reward, **others}, options)
    kept = kept_rows(source, dropped)
    rewards, notation = read_rewards(kept, columns, reward, options)
    findings: list[str] = []
    left_out = 0
    if per == "person":
        times = None
        if "time" in others:
            where = f"{kept}: column {others['time']!r}"
            times, _ = read_times(where, columns.cells["time"], time_format)
        people = as_labels(f"{kept}: column {others['person']!r}", columns.cells["person"])[1]
        mask, findings = first_rows(_arm_codes(kept, arm, columns), people, times)
        columns, rewards, left_out = _filtered(columns, mask), rewards[mask], int((~mask).sum())
    rows = group_rewards(source, arm, columns, rewards, notation, dropped)
    return JoinedLog(rows, findings, None, left_out)


def _arm_codes(kept: str, arm: str, columns: Columns) -> np.ndarray:
    return as_labels(f"{kept}: column {arm!r}", columns.cells["arm"])[1]


def _filtered(columns: Columns, mask: np.ndarray) -> Columns:
    import pyarrow as pa

    chosen = pa.array(mask)
    return columns._replace(
        cells={name: column.filter(chosen) for name, column in columns.cells.items()}
    )


def read_joined_log(
    source: str,
    arm: str,
    others: Mapping[str, str],
    file: OutcomeFile,
    options: ReadOptions,
    time_format: str | None = None,
    per: Per = "row",
    *,
    public_end: bool = False,
) -> JoinedLog:
    """Read decisions and outcomes; the reward of a decision is made of its outcomes.

    An outcome counts once, for the last decision of its id until then. A decision without
    an outcome in its window has the reward 0. Decisions whose window had not ended when the files
    end are left out. With `per="person"` later decisions of an id are left out first, so that its
    outcomes count for the first decision.

    Args:
        source: the path of the decisions.
        arm: the column of arms.
        others: further columns, as {purpose: name}; "time" among them, and the ids as "by", or as
            "person" if they are those of participants.
        file: the outcomes.
        options: how to read both files.
        time_format: of the times, as for `read_times`.
        per: what a row that is kept stands for.
        public_end: without `until` the files end with the last decision: which decisions are left
            out then does not depend on any outcome.

    Returns:
        The rewards by arm, sentences on what was left out, and the decisions of a window.

    Raises:
        ParameterError: if a file or the window is not suitable.
    """
    require_extra("pyarrow", "reading a log")
    columns, dropped = read_rows(source, {"arm": arm, **others}, options)
    ids = "by" if "by" in others else "person"
    where = f"{kept_rows(source, dropped)}: column {file.time!r}"
    times, seconds = read_times(where, columns.cells["time"], time_format)
    window = read_window(file.window, seconds=seconds)
    known = as_labels(f"{kept_rows(source, dropped)}: column {others[ids]!r}", columns.cells[ids])
    total, last, sentences = times.size, times.max(initial=-np.inf), list[str]()
    if per == "person":
        arms = _arm_codes(kept_rows(source, dropped), arm, columns)
        mask, sentences = first_rows(arms, known[1], times)
        columns, times, known = _filtered(columns, mask), times[mask], (known[0], known[1][mask])
    outcomes = _read_outcomes(file, seconds, options, time_format)
    rewards, counts, why = _joined(source, file, known, times, window, outcomes)
    end = times.max() if public_end else max(float(outcomes.times.max()), last)
    if file.until is not None:
        end = _end_of_files(file.until, seconds, time_format)
    complete = times + window <= end
    if not complete.any():
        raise ParameterError(
            f"window = {file.window!r} had not ended for any row when the files end; give a "
            "shorter one, or later outcomes"
        )
    columns = _filtered(columns, complete)
    if not complete.all():
        sentences.append(
            f"{int((~complete).sum()):,} of {times.size:,} rows were left out: their window of "
            f"{file.window} had not ended when the files end."
        )
    sentences = _unmatched_findings(file, counts, why, sentences)
    if outcomes.dropped:
        every = outcomes.dropped + counts.size
        sentences.append(
            f"{outcomes.dropped:,} of {every:,} outcomes ({outcomes.dropped / every:.1%}) lack a "
            f"value in {file.path} and were dropped: they count as no outcome."
        )
    doubled = repeated_rows([outcomes.codes, outcomes.times, outcomes.amounts], outcomes.times)
    if doubled:
        equal = "time and reward" if file.rewards_as == "sum" else "and time"
        sentences.insert(
            0,
            f"{counted(doubled, 'outcome')} of {counts.size:,} repeat another in {file.by}, "
            f"{equal}. Was the file exported or joined twice? Remove them.",
        )
    notation = [f"rewards from {file.path}"]
    rows = group_rewards(source, arm, columns, rewards[complete], notation, dropped)
    span = float(np.ptp(times))
    wait = round(times.size * window / span) if span else None
    return JoinedLog(rows, sentences, wait, total - rows.rewards.size)


def _end_of_files(until: str, seconds: bool, time_format: str | None) -> float:
    import pyarrow as pa

    end, same_unit = read_times("until", pa.array([until]), time_format)
    if same_unit != seconds:
        raise ParameterError(
            f"until = {until!r} is not in the unit of the decisions' times; write it like them"
        )
    return float(end[0])


def _unmatched_findings(
    file: OutcomeFile, counts: np.ndarray, why: dict[str, int], others: list[str]
) -> list[str]:
    """The sentences on a join: that on outcomes that do not count is first if there are many."""
    unmatched = int((~counts).sum())
    if not unmatched:
        return others
    have, share = "has" if unmatched == 1 else "have", unmatched / counts.size
    sentence = (
        f"{counted(unmatched, 'outcome')} of {counts.size:,} {have} no row of the "
        f"same {file.by} in the {file.window} before, and {'does' if unmatched == 1 else 'do'} not "
        "count: "
        + ", ".join(f"{number:,} {reason}" for reason, number in why.items() if number)
        + "."
    )
    if share <= _MANY_UNMATCHED:
        return [*others, sentence]
    sentence += (
        f" That is {share:.0%}: are ids written alike in both files, and times in one time zone?"
    )
    return [sentence, *others]


class _Outcomes(NamedTuple):
    """The rows of a file of outcomes."""

    labels: Any  # of ids
    codes: np.ndarray  # numbers of the labels
    times: np.ndarray
    amounts: np.ndarray
    dropped: int


def _read_outcomes(
    file: OutcomeFile, seconds: bool, options: ReadOptions, time_format: str | None
) -> _Outcomes:
    """The outcomes; `seconds` says whether the times of decisions are seconds."""
    wanted = {"by": file.by, "time": file.time}
    if file.rewards_as == "sum":
        wanted["reward"] = file.reward
    columns, dropped = read_rows(file.path, wanted, options)
    if not len(columns.cells["by"]):
        raise ParameterError(f"{file.path} has no rows; give one for each outcome")
    kept = kept_rows(file.path, dropped)
    where = f"{kept}: column {file.time!r}"
    times, same_unit = read_times(where, columns.cells["time"], time_format)
    if same_unit != seconds:
        raise ParameterError(f"{where} is not in the unit of the decisions' times; convert one")
    amounts = np.ones(times.size)
    if file.rewards_as == "sum":
        amounts, _ = read_rewards(kept, columns, file.reward, options)
    labels, codes = as_labels(f"{kept}: column {file.by!r}", columns.cells["by"])
    return _Outcomes(labels, codes, times, amounts, dropped)


def _joined(
    source: str,
    file: OutcomeFile,
    known: tuple[Any, np.ndarray],
    times: np.ndarray,
    window: float,
    outcomes: _Outcomes,
) -> tuple[np.ndarray, np.ndarray, dict[str, int]]:
    """Rewards of decisions, a mask of the outcomes that count, and why others do not."""
    labels, codes = known
    numbers = {label: i for i, label in enumerate(labels.to_pylist())}
    others = outcomes.labels.to_pylist()
    same = np.array([numbers.get(label, len(numbers) + i) for i, label in enumerate(others)])
    later = same[outcomes.codes]
    decided = _last_decision(codes, times, later, outcomes.times)
    counts = (decided >= 0) & (outcomes.times - times[decided] <= window)
    shared = np.isin(later, codes)
    if not counts.any():
        _refuse_none(source, file, labels[codes[0]], outcomes.labels[outcomes.codes[0]],
                     bool(shared.any()))  # fmt: skip
    why = {
        "with an id that no row has": int((~shared).sum()),
        "before the first row of their id": int((shared & (decided < 0)).sum()),
        "after the window": int(((decided >= 0) & ~counts).sum()),
    }
    rewards = np.bincount(decided[counts], weights=outcomes.amounts[counts], minlength=times.size)
    if file.rewards_as == "any":
        rewards = np.minimum(rewards, 1.0)
    return rewards, counts, why


def _refuse_none(source: str, file: OutcomeFile, id: Any, other: Any, shared: bool) -> None:
    """Refuse outcomes without any row: that all rewards are 0 would be a mistake."""
    if shared:
        raise ParameterError(
            f"no outcome in {file.path} has a row of the same {file.by} in the {file.window} "
            "before; give a longer window, or times in one time zone"
        )
    raise ParameterError(
        f"no id in column {file.by!r} of {file.path}, such as {other.as_py()!r}, is in {source}, "
        f"which has such as {id.as_py()!r}; write ids alike in both"
    )


def _last_decision(
    ids: np.ndarray, times: np.ndarray, others: np.ndarray, later: np.ndarray
) -> np.ndarray:
    """For each outcome the number of the last decision of its id until then, or -1.

    >>> ids, times = np.array([0, 1, 0]), np.array([1.0, 1.0, 5.0])
    >>> _last_decision(ids, times, np.array([0, 0, 1, 2]), np.array([4.0, 5.0, 0.5, 9.0]))
    array([ 0,  2, -1, -1])
    """
    codes = np.concatenate([ids, others])
    moments = np.concatenate([times, later])
    is_outcome = np.arange(codes.size) >= ids.size
    order = np.lexsort((is_outcome, moments, codes))  # a decision first where times are equal
    places = np.arange(order.size)
    last = np.maximum.accumulate(np.where(is_outcome[order], -1, places))
    latest = np.where(last >= 0, order[last], -1)
    same = (last >= 0) & (codes[order] == codes[latest])
    decided = np.empty(order.size, np.int64)
    decided[order] = np.where(same, latest, -1)
    return decided[ids.size :]
