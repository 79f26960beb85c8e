"""Winners: how often simulated runs name the best arm, and when."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from balaclava._core.declared import check
from balaclava._core.kernels import compiled
from balaclava._core.number_format import count, percent
from balaclava._core.text_tables import ResultTable
from balaclava.agents.estimates import Confidence
from balaclava.errors import EstimateError
from balaclava.policies.intervals import NO_WINNER, winner_kernel

if TYPE_CHECKING:
    from balaclava.policies.base import Policy
    from balaclava.simulation.results import Results, Run


class WinnersRow(NamedTuple):
    """Shares of one policy's runs; NaN without estimates or finished runs."""

    label: str
    right: float  # the first arm named has the highest mean
    wrong: float  # the first arm named does not
    none: float  # no arm was named by the horizon
    median_round: float  # of the checkpoints at which runs first named an arm; NaN if none did


class Winners(ResultTable[WinnersRow]):
    """The share of runs of each policy that named an arm, and when."""

    header = ("policy", "right", "wrong", "none", "median round")

    def __init__(self, confidence: float, rows: Sequence[WinnersRow]) -> None:
        super().__init__(rows)
        self.confidence = confidence
        self.title = f"winners named at {confidence:.6g} confidence, stopping at the first"

    def row_cells(self, row: WinnersRow) -> tuple[str, ...]:
        label, *shares, median = row
        return (label, *map(percent, shares), count(median))


def has_releases(results: Results) -> bool:
    """Whether any run recorded its releases: the simulation had `winners=True`."""
    return any(run.released is not None for runs in results.runs.values() for run in runs.values())


def find_winners(results: Results, confidence: float) -> Winners:
    confidence = check("confidence", confidence, Confidence)
    if not has_releases(results):
        raise EstimateError(
            "no releases were recorded; simulate with winners=True and a policy that offers "
            "estimates, such as dp-imed"
        )
    return Winners(confidence, [_row(results, label, confidence) for label in results.labels])


def _row(results: Results, label: str, confidence: float) -> WinnersRow:
    runs = [run for run in results._finished_runs(label) if run.released is not None]
    policy = results.policies[label]
    try:
        policy.require_estimates((1.0 - confidence) / policy.arms)
    except EstimateError:
        runs = []
    if not runs:
        return WinnersRow(label, *[math.nan] * 4)
    first = first_winners(policy, runs, confidence)
    has_winner = first[:, 1] != NO_WINNER
    best = results.environment.gaps[first[:, 1]] <= 0.0
    rounds = results.checkpoints[first[has_winner, 0]]
    return WinnersRow(
        label,
        float((has_winner & best).mean()),
        float((has_winner & ~best).mean()),
        float((~has_winner).mean()),
        float(np.median(rounds)) if rounds.size else math.nan,
    )


def first_winners(policy: Policy, runs: Sequence[Run], confidence: float) -> np.ndarray:
    """For each run the first checkpoint with a winner, and the winner or NO_WINNER."""
    failure = 1.0 - confidence
    estimation = policy.require_estimates(failure / policy.arms)
    name_best = winner_kernel(estimation)
    is_kernel = estimation.winner is None
    search = compiled(make_search, name_best) if is_kernel else make_search(name_best)
    params, joint = policy.constants(), estimation.joint_weight(policy.arms)
    return np.array([search(params, run.released, joint, failure) for run in runs])


def make_search(winner: Callable[..., int]) -> Callable[..., tuple[int, int]]:
    """Close the search for a run's first winner over the kernel that names one."""

    def search(params: Any, released: np.ndarray, joint: float, failure: float) -> tuple[int, int]:
        for c in range(released.shape[0]):
            if c == 0 or not np.array_equal(released[c], released[c - 1]):
                arm = winner(params, released[c], joint, failure)
                if arm != NO_WINNER:
                    return c, arm
        return 0, NO_WINNER

    return search
