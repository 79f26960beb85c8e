"""Drift of a log over time: averages and shares of the arms in four periods."""

import datetime

import numpy as np

from balaclava._core.extras import require_extra

DRIFT_PERIODS = 4  # with equally many rows; the sentences say "quarter"
_MIN_ROWS_PER_PERIOD = 10  # of an arm; below it the normal approximation of its mean is poor
# Probability of reporting a drift without one: once for the rewards of all arms together, once
# for the shares of the arms, so 5 % in all.
_FALSE_ALARM_PROBABILITY = 0.025

_SHARE_BINS = 60  # of equally many rows, among which the period of other shares is sought
DRIFT_CAUSES = (
    "One id with thousands of rows, or doubled rows, can look like this: remove them first, and "
    "look again."
)
DRIFT_WARNING = (
    "Most policies expect averages that do not change. Policies for adversarial losses (`balaclava "
    "policies --rewards loss`) tolerate drift."
)


def drift_findings(
    labels: list[str],
    arms: np.ndarray,
    rewards: np.ndarray,
    times: np.ndarray,
    dated: bool = False,
) -> list[str]:
    """What changes over time, in sentences; `dated` times are seconds since 1970."""
    require_extra("scipy", "looking for drift")
    from scipy.stats import chi2_contingency

    periods = drift_periods(times)
    by_arm = [periods[arms == i] for i in range(len(labels))]
    counts = np.array([np.bincount(mine, minlength=DRIFT_PERIODS) for mine in by_arm])
    sentences = []
    for i, label in enumerate(labels):
        means, p_value = _test_arm(rewards[arms == i], by_arm[i], counts[i])
        if p_value < _FALSE_ALARM_PROBABILITY / len(labels):
            steps = ", ".join(f"{mean:.3g}" for mean in means)
            sentences.append(
                f"Arm {label!r} changes over time: its averages by quarter of the rows are {steps} "
                f"(chance alone: p = {p_value:.1g})."
            )
    drifting = bool(sentences)
    if chi2_contingency(counts).pvalue < _FALSE_ALARM_PROBABILITY:
        sentences.append(_changed_shares(labels, arms, times, dated))
    if sentences:
        sentences.append(DRIFT_CAUSES)
    if drifting:
        sentences.append(DRIFT_WARNING)
    return sentences or [f"No drift is seen in {DRIFT_PERIODS} periods; it may be small or late."]


def _changed_shares(labels: list[str], arms: np.ndarray, times: np.ndarray, dated: bool) -> str:
    """The period in which the share of an arm departs most from that of the other rows.

    Of all runs of bins, the one with the largest z-score of the arm's rows against the others.
    """
    order = np.argsort(times, kind="stable")
    edges = np.arange(_SHARE_BINS + 1) * times.size // _SHARE_BINS
    part = np.clip(np.subtract.outer(edges, edges).T, 0, None) / times.size  # [start, end]
    best = (-1.0, 0, 0, 1)
    for arm in range(len(labels)):
        mine = np.concatenate([[0], (arms[order] == arm).cumsum()])[edges]
        excess = np.abs(np.subtract.outer(mine, mine).T - mine[-1] * part)
        scale = np.sqrt(mine[-1] * (1.0 - mine[-1] / times.size) * part * (1.0 - part))
        score = np.divide(excess, scale, out=np.zeros_like(excess), where=scale > 0)
        start, end = (int(i) for i in np.unravel_index(np.argmax(score), score.shape))
        best = max(best, (float(score[start, end]), arm, start, end))
    arm, start, end = best[1:]
    inside = np.zeros(times.size, bool)
    inside[order[edges[start] : edges[end]]] = True
    within, others = (arms[inside] == arm).mean(), (arms[~inside] == arm).mean()
    when = f"from {_moment(times[inside].min(), dated)} to {_moment(times[inside].max(), dated)}"
    causes = "the logging policy was learning, or an arm was added or removed"
    if start > 0 and end < edges.size - 1:
        causes = f"the split was broken in that period, {causes}"
    else:
        causes = f"{causes}, or the split was broken in that period"
    return (
        f"Which arm was played changes over time: {labels[arm]!r} has {within:.0%} of the "
        f"{int(inside.sum()):,} rows {when}, and {others:.0%} of the others. Perhaps {causes}."
    )


def _moment(time: float, dated: bool) -> str:
    """A time as people read it."""
    if not dated:
        return f"{time:g}"
    return f"{datetime.datetime.fromtimestamp(time, datetime.UTC):%Y-%m-%d %H:%M}"


def drift_periods(times: np.ndarray) -> np.ndarray:
    """The period of each row, from 0; all have equally many rows."""
    periods = np.empty(times.size, np.int64)
    periods[np.argsort(times, kind="stable")] = np.arange(times.size) * DRIFT_PERIODS // times.size
    return periods


def _test_arm(
    rewards: np.ndarray, periods: np.ndarray, counts: np.ndarray
) -> tuple[np.ndarray, float]:
    """An arm's averages in the periods, and the p-value of their being equal (chi squared)."""
    from scipy.stats import chi2

    enough = counts >= _MIN_ROWS_PER_PERIOD
    variance = float(rewards.var(ddof=1))
    if enough.sum() < 2 or variance == 0:
        return np.empty(0), 1.0
    sums = np.bincount(periods, weights=rewards, minlength=DRIFT_PERIODS)
    means, sizes = sums[enough] / counts[enough], counts[enough]
    centre = np.average(means, weights=sizes)
    statistic = float((sizes * (means - centre) ** 2).sum()) / variance
    return means, float(chi2.sf(statistic, enough.sum() - 1))
