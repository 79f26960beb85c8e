"""How many rewards a person gives, what that makes of epsilon, and what a cap does."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from balaclava.logs.reader import as_labels
from balaclava.privacy.guarantee import Guarantee

_CAPS = (1, 2, 3, 5, 10, 20, 50, 100)


class RewardCap(NamedTuple):
    """The first rewards of each person are used, and no others."""

    rewards: int
    guarantee: str  # for all rewards of a person together
    rows_kept: float  # as a share
    people_cut: float
    best: str  # the arm with the highest average among the rows that are left


class Participants(NamedTuple):
    """Rewards per person in a log."""

    people: int
    rows: int
    median: float
    most: int
    guarantee: str  # of the person with most
    caps: tuple[RewardCap, ...]

    def findings(self) -> list[str]:
        """In sentences."""
        mean = self.rows / self.people
        if self.most == 1:
            return [
                f"{self.people:,} people, one row each: a guarantee for one reward is one each."
            ]
        return [
            f"{self.people:,} people gave {self.rows:,} rewards: {mean:.3g} each on average, half "
            f"of them at most {self.median:g}, one of them {self.most:,}. A guarantee covers one "
            f"reward: who gave {self.most:,} has {self.guarantee}.",
            "Rows of one person are not independent: the intervals take them as one.",
        ]


def read_participants(where: str, column: Any) -> np.ndarray:
    """The number of each row's person."""
    return as_labels(where, column)[1]


def rank_within(people: np.ndarray) -> np.ndarray:
    """Which of a person's rewards each row is, counted from 0 in the order of the rows.

    >>> rank_within(np.array([0, 1, 0, 0, 1])).tolist()
    [0, 0, 1, 2, 1]
    """
    order = np.argsort(people, kind="stable")
    counts = np.bincount(people)
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    ranks = np.empty(people.size, np.int64)
    ranks[order] = np.arange(people.size) - starts
    return ranks


def count_participants(
    labels: list[str],
    arms: np.ndarray,
    rewards: np.ndarray,
    people: np.ndarray,
    guarantee: Guarantee,
) -> Participants:
    """How many rewards a person gives; `guarantee` is that of one reward."""
    counts = np.bincount(people)
    counts = counts[counts > 0]
    most = int(counts.max())
    ranks = rank_within(people)
    caps = []
    for cap in sorted({*(each for each in _CAPS if each < most), most}):
        keep = ranks < cap
        sizes = np.bincount(arms[keep], minlength=len(labels))
        sums = np.bincount(arms[keep], weights=rewards[keep], minlength=len(labels))
        means = np.where(sizes > 0, sums / np.maximum(sizes, 1), -np.inf)
        caps.append(
            RewardCap(
                cap,
                str(guarantee.for_rewards(cap)),
                float(keep.mean()),
                float((counts > cap).mean()),
                labels[int(np.argmax(means))],
            )
        )
    worst = str(guarantee.for_rewards(most))
    return Participants(
        counts.size, people.size, float(np.median(counts)), most, worst, tuple(caps)
    )
