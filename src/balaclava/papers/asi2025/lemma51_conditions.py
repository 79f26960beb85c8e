"""Lemma 5.1 of Asi, Raman and Talwar (2025): the least regret of a policy that settles early.

Losses are (1/2, 1); in the second sequence, the second loss turns to 0 after tau rounds. The lemma
has two conditions on the sequence that does not turn, each with probability 1/2. The policy plays
the second arm a share gamma of all rounds, and at most p times in the p / gamma rounds after tau.
Here 2 gamma tau <= p and p <= gamma (T - tau). Then p changed losses have little effect, so the
policy hardly sees the turn. `bl.bounds.early_commitment` has the bound and its proof.
"""

import math
from typing import NamedTuple

import numpy as np

from balaclava.environments.hard_losses import fast_commit
from balaclava.simulation.results import Results
from balaclava.theory.bounds import early_commitment

# Candidates for p times epsilon, around the 1/2 of `lemma_line`.
_CHANGED_LOSSES = (0.25, 0.5, 1.0, 2.0)
# Candidates for gamma, as parts of the median share of the second arm.
_GAMMA_PARTS = (1.0, 0.5, 0.25)


def lemma_line(horizon: int, epsilon: float) -> float:
    """The least regret that the lemma allows a policy under its conditions, p = 1/(2 epsilon).

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
    """A turn at which the lemma's conditions hold, and the regret it then requires."""

    switch: int
    share: float
    changed: float
    bound: float


def strongest_condition(
    results: Results, label: str, epsilon: float, switches: list[int]
) -> Condition | None:
    """The turn at which the lemma requires most; None if its conditions never hold.

    `results` are on the losses that do not turn. There regret is half the pulls of the second arm,
    at every checkpoint.
    """
    T = results.horizon
    pulls = 2.0 * results.regret(label)
    usual = float(np.median(pulls[:, -1])) / T
    rounds = np.concatenate([[0], results.checkpoints])
    paths = np.hstack([np.zeros((len(pulls), 1)), pulls])
    conditions = []
    for switch in switches:
        for part in _GAMMA_PARTS:
            for times in _CHANGED_LOSSES:
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
