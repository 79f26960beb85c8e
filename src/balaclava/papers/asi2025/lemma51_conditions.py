"""Lemma 5.1 of Asi, Raman and Talwar (2025): what a private policy loses that settles early.

Losses (1/2, 1) do not turn, or the second turns to 0 after tau rounds. Let a policy play the second
arm, on the losses that do not turn, a share gamma of all rounds with probability 1/2, and at most p
times in the p / gamma rounds after tau with probability 1/2, where 2 gamma tau <= p and
p <= gamma (T - tau). Then p changed losses change little, so that it hardly sees the turn.
`bl.bounds.early_commitment` has the bound and its proof.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from balaclava.environments.hard_losses import fast_commit
from balaclava.theory.bounds import early_commitment

if TYPE_CHECKING:
    from balaclava.simulation.results import Results

_CHANGED = (0.25, 0.5, 1.0, 2.0)  # p, times epsilon
_SHARES = (1.0, 0.5, 0.25)  # gamma, as a part of what half of the runs exceed


def lemma_line(horizon: int, epsilon: float) -> float:
    """The least that the lemma leaves to a policy that fulfils its conditions, p = 1/(2 epsilon).

    The turn is that of `fast_commit`.

    >>> round(lemma_line(100_000, 0.1))
    118
    """
    changed, switch = 0.5 / epsilon, fast_commit(horizon, epsilon).switch
    high = min(0.5, changed / (2.0 * max(switch, 1)))
    low = min(changed / (horizon - switch), high)
    shares = np.geomspace(low, high, 400).tolist()
    return min(
        early_commitment(
            horizon=horizon, epsilon=epsilon, share=share, changed=changed, switch=switch
        )
        for share in shares
    )


class Condition(NamedTuple):
    """A turn at which the lemma's conditions hold, and what it then asks for."""

    switch: int
    share: float
    changed: float
    bound: float


def strongest_condition(
    results: Results, label: str, epsilon: float, switches: list[int]
) -> Condition | None:
    """Where the lemma asks for most; None where it says nothing of the policy.

    `results` are of the losses that do not turn, on which regret is half the pulls of the second
    arm, at every checkpoint.
    """
    T = results.horizon
    pulls = 2.0 * results.regret(label)
    usual = float(np.median(pulls[:, -1])) / T
    rounds = np.concatenate([[0], results.checkpoints])
    paths = np.hstack([np.zeros((len(pulls), 1)), pulls])
    conditions = []
    for switch in switches:
        for part in _SHARES:
            for times in _CHANGED:
                share, changed = part * usual, times / epsilon
                end = switch + changed / share if share else math.inf
                if not (share <= 0.5 and 2.0 * share * switch <= changed and end <= T):
                    continue
                window = [np.interp(end, rounds, p) - np.interp(switch, rounds, p) for p in paths]
                if np.mean(np.array(window) <= changed) >= 0.5:
                    bound = early_commitment(
                        horizon=T, epsilon=epsilon, share=share, changed=changed, switch=switch
                    )
                    conditions.append(Condition(switch, share, changed, bound))
    return max(conditions, key=lambda one: one.bound, default=None)
