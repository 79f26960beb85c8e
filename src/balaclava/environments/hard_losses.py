"""Losses that proofs of lower bounds use: what no policy, or no private one, does well on."""

from __future__ import annotations

import math

import numpy as np

from balaclava._core.declared import Arms, Epsilon, Horizon, check
from balaclava.environments.stochastic_losses import StochasticLosses
from balaclava.environments.switching import Switching
from balaclava.errors import ParameterError


def hidden_best(
    arms: int,
    horizon: int,
    *,
    epsilon: float | None = None,
    gap: float | None = None,
    best: int | None = None,
) -> StochasticLosses:
    """All arms lose with chance 1/2, one with chance 1/2 - gap.

    The gap is by default sqrt(K/T), at which no policy can tell the best arm within T rounds, so
    that regret of order sqrt(K T) cannot be avoided (Auer et al. 2002, Theorem 5.1). With an
    epsilon below 1 it is sqrt(K / (epsilon T)), at which a policy that is told noisy means of
    1/epsilon rounds can only just not tell it: the hardest for the conversion of Asi et al. (2025).

    Example:
        >>> hidden_best(4, 10_000).means.tolist()
        [0.5, 0.5, 0.5, 0.48]
        >>> hidden_best(4, 10_000, epsilon=0.04, best=0).means.tolist()
        [0.4, 0.5, 0.5, 0.5]
    """
    arms, horizon = check("arms", arms, Arms), check("horizon", horizon, Horizon)
    noise = 1.0 if epsilon is None else min(check("epsilon", epsilon, Epsilon), 1.0)
    if gap is None:
        gap = min(math.sqrt(arms / (noise * horizon)), 0.5)
    best = arms - 1 if best is None else best
    if not 0 <= best < arms:
        raise ParameterError(f"best = {best!r} is not an arm; give one from 0 to {arms - 1}")
    means = np.full(arms, 0.5)
    means[best] -= gap
    return StochasticLosses(means=means)


def fast_commit(horizon: int, epsilon: float, *, switched: bool = True) -> Switching:
    """Two arms, losses (1/2, 1); the second turns to 0 just when a good policy has dropped it.

    Lemma 5.1 of Asi et al. (2025): a private policy that seldom plays the second arm sees the turn
    late, since the first 1/epsilon losses that show it must not show much in its decisions. With
    p = 1 / (2 epsilon) the turn comes after sqrt(p T) / 8 rounds, where all conditions of the
    lemma can hold. `switched=False` gives the losses that do not turn.

    Example:
        >>> fast_commit(horizon=10_000, epsilon=0.02).switch
        62
    """
    horizon = check("horizon", horizon, Horizon)
    pulls = 0.5 / check("epsilon", epsilon, Epsilon)
    switch = min(int(math.sqrt(pulls * horizon) / 8.0), (horizon - 1) // 2)
    before = np.array([0.5, 1.0])
    after = np.array([0.5, 0.0])
    return Switching(
        horizon=horizon, switch=switch if switched else horizon, before=before, after=after
    )
