"""Does a log change over time? Averages and shares of the arms in four periods."""

from __future__ import annotations

from typing import Any

import numpy as np

from balaclava._core.extras import require_extra
from balaclava.errors import ParameterError
from balaclava.logs.numerals import FIRST_ROW, first_row, to_array

PERIODS = 4  # with equally many rows
_LEAST = 10  # rows of an arm in a period
_CHANCE = (
    0.025  # of seeing a drift where there is none: of rewards, of all arms together; of shares
)

UNFIT = (  # what is said where rewards drift
    "Policies here expect averages that stay: what is simulated below has no drift in it. Policies "
    "for adversarial losses (`balaclava policies --rewards loss`) do not mind it."
)


def read_times(where: str, column: Any) -> np.ndarray:
    """Moments as numbers that grow: from numbers, dates, or text such as 2026-01-31 or ISO 8601."""
    require_extra("pyarrow", "looking for drift")
    import pyarrow as pa

    with_zone = (pa.timestamp("us", "UTC"), pa.int64())
    for kinds in ((pa.float64(),), (pa.timestamp("us"), pa.int64()), with_zone, (pa.int64(),)):
        times = column
        try:
            for kind in kinds:
                times = times.cast(kind, safe=False)
        except pa.ArrowException:
            continue
        if times.null_count:
            raise ParameterError(
                f"{where} is empty in row {first_row(times.is_null())} {FIRST_ROW}; fill it, or "
                "drop such rows (--drop-missing)"
            )
        return to_array(times).astype(np.float64)
    raise ParameterError(f"{where} is not a time; write 2026-01-31, 2026-01-31T12:00 or numbers")


def drift_findings(
    labels: list[str], arms: np.ndarray, rewards: np.ndarray, times: np.ndarray
) -> list[str]:
    """What changes over time, in sentences."""
    require_extra("scipy", "looking for drift")
    from scipy.stats import chi2, chi2_contingency

    order = np.argsort(times, kind="stable")
    periods = np.empty(rewards.size, np.int64)
    periods[order] = np.arange(rewards.size) * PERIODS // rewards.size
    counts = np.array(
        [np.bincount(periods[arms == i], minlength=PERIODS) for i in range(len(labels))]
    )
    sentences = []
    for i, label in enumerate(labels):
        mine = rewards[arms == i]
        enough = counts[i] >= _LEAST
        spread = float(mine.var(ddof=1))
        if enough.sum() < 2 or spread == 0:
            continue
        sums = np.bincount(periods[arms == i], weights=mine, minlength=PERIODS)
        means, sizes = sums[enough] / counts[i][enough], counts[i][enough]
        centre = np.average(means, weights=sizes)
        chance = chi2.sf(float((sizes * (means - centre) ** 2).sum()) / spread, enough.sum() - 1)
        if chance < _CHANCE / len(labels):
            steps = ", ".join(f"{mean:.3g}" for mean in means)
            sentences.append(
                f"Arm {label!r} changes over time: its averages by quarter of the rows are {steps} "
                f"(chance alone: p = {chance:.1g})."
            )
    drifting = bool(sentences)
    if chi2_contingency(counts).pvalue < _CHANCE:
        first, last = counts[:, 0] / counts[:, 0].sum(), counts[:, -1] / counts[:, -1].sum()
        most = int(np.argmax(np.abs(last - first)))
        sentences.append(
            f"Which arm was played changes over time ({labels[most]!r}: {first[most]:.0%} of the "
            f"first quarter, {last[most]:.0%} of the last): someone or something was learning, or "
            "an arm came later."
        )
    if drifting:
        sentences.append(UNFIT)
    return sentences or [
        f"No drift over time was seen in {PERIODS} periods; a small or a late one may be there."
    ]
