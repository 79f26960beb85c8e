"""Rewards per participant: their effect on epsilon, and the effect of a cap."""

from typing import NamedTuple

import numpy as np

from balaclava.privacy.guarantee import Guarantee

_CAPS_SHOWN = (1, 2, 3, 5, 10, 20, 50, 100)  # rewards; roughly evenly spaced on a log scale


class RewardCap(NamedTuple):
    """A cap: only the first `rewards` rewards of each participant are used."""

    rewards: int
    guarantee: str  # for all rewards of a participant together
    rows_kept: float  # as a share
    people_cut: float
    best: str  # the arm with the highest average among the rows kept


class Participants(NamedTuple):
    """Rewards per participant in a log."""

    people: int
    rows: int
    median: float
    most: int
    guarantee: str  # of the participant with most rewards
    caps: tuple[RewardCap, ...]

    def findings(self) -> list[str]:
        if self.most == 1:
            return [f"{self.people:,} people, one row each: a guarantee for one reward covers all."]
        return [
            f"{self.people:,} people gave {self.rows:,} rewards: {self.rows / self.people:.3g} "
            f"each on average, with a median of {self.median:g} and a maximum of {self.most:,}. A "
            f"guarantee covers one reward: the participant with {self.most:,} has "
            f"{self.guarantee}.",
            "Rows of one person are not independent: the intervals count them as one.",
        ]


def rank_within(participants: np.ndarray) -> np.ndarray:
    """The ordinal of each row among its participant's rows, from 0.

    >>> rank_within(np.array([0, 1, 0, 0, 1])).tolist()
    [0, 0, 1, 2, 1]
    """
    order = np.argsort(participants, kind="stable")
    counts = np.bincount(participants)
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    ranks = np.empty(participants.size, np.int64)
    ranks[order] = np.arange(participants.size) - starts
    return ranks


def count_participants(
    labels: list[str],
    arms: np.ndarray,
    rewards: np.ndarray,
    participants: np.ndarray,
    guarantee: Guarantee,
) -> Participants:
    """Count the rewards of each participant; `guarantee` covers one reward."""
    counts = np.bincount(participants)
    counts = counts[counts > 0]
    most = int(counts.max())
    ranks = rank_within(participants)
    caps = []
    for cap in sorted({*(each for each in _CAPS_SHOWN if each < most), most}):
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
    return Participants(
        counts.size,
        participants.size,
        float(np.median(counts)),
        most,
        str(guarantee.for_rewards(most)),
        tuple(caps),
    )
