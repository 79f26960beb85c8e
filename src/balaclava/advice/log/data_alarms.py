"""Alarms about a log: signs that rows were lost, doubled, mislabelled or joined wrongly.

Each function returns sentences, none if nothing is wrong. No sentence repeats a reward or an id.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from balaclava._core.extras import require_extra
from balaclava._core.number_format import counted
from balaclava.logs.repeats import repeated_rows

if TYPE_CHECKING:
    from balaclava.advice.log.feature_columns import FeatureColumns

# p-value below which a split counts as broken: the usual one for sample-ratio checks, since each
# log is checked once and true failures are mostly far below it.
_BROKEN_SPLIT = 0.001
# Rows of one id, and their multiple of the median id. Both are guesses.
_CROWDED_ROWS, _CROWDED_RATIO = 100, 50.0
_FEW = 0.01  # share of rewards of the other sign that look like a mistake; a guess
# A placeholder such as 9999: repeated at least so often, at so many times the next reward; a guess.
_PLACEHOLDER_ROWS, _PLACEHOLDER_RATIO = 3, 10.0
# A gap: share of the time span, rows that its length would hold, and its multiple of the second
# longest, since nights and weekends recur. All are guesses.
_GAP_SHARE, _GAP_ROWS, _GAP_RATIO = 0.1, 50.0, 2.0
_LEAK_CORRELATION = 0.9  # with the reward; features known before a decision stay far below it


def split_alarm(counts: dict[str, int]) -> list[str]:
    """Whether the rows of the arms could come from an even split (chi squared).

    >>> split_alarm({"a": 5_000, "b": 5_050}), split_alarm({"a": 5_000, "b": 5_600})[0][:44]
    ([], 'If arms were drawn with equal probabilities,')
    """
    require_extra("scipy", "checking the split of a log")
    from scipy.stats import chisquare

    p_value = float(chisquare(list(counts.values())).pvalue)
    if p_value >= _BROKEN_SPLIT:
        return []
    rare, often = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
    return [
        "If arms were drawn with equal probabilities, this is a sample-ratio mismatch: "
        f"{counts[often]:,} rows of {often!r} and {counts[rare]:,} of {rare!r} would come by "
        f"chance with p = {p_value:.1g}. Rows of some arms were lost or added, and averages may be "
        "biased. If the probabilities were unequal, give them with --propensity."
    ]


def similar_labels(labels: Iterable[str]) -> list[str]:
    """Labels that differ only by case or spaces, which may name one arm."""
    alike: dict[str, list[str]] = {}
    for label in labels:
        alike.setdefault("".join(label.split()).casefold(), []).append(label)
    return [
        f"The labels {', '.join(map(repr, same))} differ only by case or spaces: each is taken as "
        "an arm of its own. If they name one arm, write them alike, and read the log again."
        for same in alike.values()
        if len(same) > 1
    ]


def doubled_rows(
    arms: np.ndarray,
    rewards: np.ndarray,
    times: np.ndarray | None,
    participants: np.ndarray | None,
) -> list[str]:
    """Whether rows repeat another row in every column; needs times or participants."""
    columns = {"arm": arms, "reward": rewards, "time": times, "participant": participants}
    known = {name: column for name, column in columns.items() if column is not None}
    if len(known) == 2:
        return []
    identified = participants is not None
    doubled = repeated_rows(list(known.values()), times, identified=identified)
    if not doubled:
        return []
    *names, last = known
    return [
        f"{counted(doubled, 'row')} ({doubled / arms.size:.1%}) repeat another row in "
        f"{', '.join(names)} and {last}. Was the log exported or joined twice? Remove them."
    ]


def crowded_ids(participants: np.ndarray) -> list[str]:
    """Whether some ids have far more rows than a person would."""
    counts = np.bincount(participants)
    counts = counts[counts > 0]
    crowded = counts[counts > max(_CROWDED_ROWS, _CROWDED_RATIO * float(np.median(counts)))]
    if not crowded.size:
        return []
    have = "has" if crowded.size == 1 else "have"
    return [
        f"{counted(crowded.size, 'id')} of {counts.size:,} {have} "
        f"more than {_CROWDED_ROWS} rows each, up to {int(crowded.max()):,}, together "
        f"{crowded.sum() / participants.size:.0%} of all rows. A robot, a test account, or a "
        "placeholder such as 'unknown'? Remove them if they are not people."
    ]


def strange_rewards(rewards: np.ndarray) -> list[str]:
    """Whether some rewards look like mistakes: a rare sign, or a repeated extreme value."""
    sentences = []
    for sign, name in ((-1.0, "negative"), (1.0, "positive")):
        share = float((sign * rewards > 0).mean())
        if 0 < share <= _FEW and float((sign * rewards < 0).mean()) > 10 * share:
            rows = int((sign * rewards > 0).sum())
            sentences.append(
                f"{counted(rows, 'reward')} ({share:.2g} of all) {'is' if rows == 1 else 'are'} "
                f"{name}, unlike the others. Refunds, or a mark for a missing value? Correct or "
                "remove them."
            )
    sizes = np.sort(np.abs(rewards))
    largest = int((sizes == sizes[-1]).sum())
    if largest >= _PLACEHOLDER_ROWS and largest < sizes.size:
        following = sizes[-largest - 1]
        if following > 0 and sizes[-1] >= _PLACEHOLDER_RATIO * following:
            sentences.append(
                f"The largest reward is in {largest:,} rows and is over "
                f"{_PLACEHOLDER_RATIO:g} times the next one. Is it a mark for a missing value? "
                "Remove it, or leave such cells empty and use --drop-missing or --missing."
            )
    return sentences


def time_gaps(times: np.ndarray) -> list[str]:
    """Whether the log has a long period without rows.

    >>> with_gap = np.delete(np.arange(1000.0), slice(300, 600))
    >>> time_gaps(np.arange(1000.0)), [text[:43] for text in time_gaps(with_gap)]
    ([], ['The log has no rows in 30% of its time span'])
    """
    ordered = np.sort(times)
    span = float(ordered[-1] - ordered[0])
    second, gap = np.sort(np.concatenate([[0.0, 0.0], np.diff(ordered)]))[-2:].tolist()
    if span <= 0 or gap < max(_GAP_SHARE * span, _GAP_RATIO * second):
        return []
    expected = (times.size - 1) * gap / (span - gap) if gap < span else 0.0
    if expected < _GAP_ROWS:
        return []
    return [
        f"The log has no rows in {gap / span:.0%} of its time span, in one gap, where about "
        f"{expected:,.0f} would be expected. Was logging interrupted, or is a part missing?"
    ]


def leaking_features(features: FeatureColumns, rewards: np.ndarray) -> list[str]:
    """Whether a feature is nearly the reward, so that it was hardly known before the decision."""
    spread = rewards.std()
    leaking = []
    for name, column in zip(features.names, features.table.T, strict=True):
        scale = spread * column.std()
        if scale > 0:
            covariance = ((column - column.mean()) * (rewards - rewards.mean())).mean()
            if abs(covariance) >= _LEAK_CORRELATION * scale:
                leaking.append(repr(name))
    if not leaking:
        return []
    return [
        f"{', '.join(leaking)} nearly determine{'s' if len(leaking) == 1 else ''} the reward. Was "
        "this known before the decision? A feature must not look into the future: leave it out."
    ]
