"""Drift of a log over time: averages and shares of the arms in four periods."""

import numpy as np

from balaclava._core.extras import require_extra

DRIFT_PERIODS = 4  # with equally many rows; the sentences say "quarter"
_MIN_ROWS_PER_PERIOD = 10  # of an arm; below it the normal approximation of its mean is poor
# Probability of reporting a drift without one: once for the rewards of all arms together, once
# for the shares of the arms, so 5 % in all.
_FALSE_ALARM_PROBABILITY = 0.025

DRIFT_WARNING = (
    "Most policies expect averages that do not change. Policies for adversarial losses (`balaclava "
    "policies --rewards loss`) tolerate drift."
)


def drift_findings(
    labels: list[str], arms: np.ndarray, rewards: np.ndarray, times: np.ndarray
) -> list[str]:
    """What changes over time, in sentences."""
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
        first, last = counts[:, 0] / counts[:, 0].sum(), counts[:, -1] / counts[:, -1].sum()
        most = int(np.argmax(np.abs(last - first)))
        sentences.append(
            f"Which arm was played changes over time ({labels[most]!r}: {first[most]:.0%} of the "
            f"first quarter, {last[most]:.0%} of the last): the logging policy was learning, or "
            "an arm was added later."
        )
    if drifting:
        sentences.append(DRIFT_WARNING)
    return sentences or [f"No drift is seen in {DRIFT_PERIODS} periods; it may be small or late."]


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
