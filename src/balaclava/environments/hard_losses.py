"""Hard losses from proofs of lower bounds, for policies with and without privacy."""

import math

import numpy as np

from balaclava._core.declared import Arms, Epsilon, Horizon
from balaclava._core.docstrings import checked
from balaclava.environments.stochastic_losses import StochasticLosses
from balaclava.environments.switching import Switching
from balaclava.errors import ParameterError


@checked
def hidden_best(
    arms: Arms,
    horizon: Horizon,
    *,
    epsilon: Epsilon | None = None,
    gap: float | None = None,
    best: int | None = None,
) -> StochasticLosses:
    """All arms lose with probability 1/2, one with probability 1/2 - gap.

    The default gap sqrt(K/T) is too small to find the best arm within T rounds. So regret of order
    sqrt(K T) is unavoidable (Auer et al. 2002, Theorem 5.1). With an epsilon below 1 it is
    sqrt(K / (epsilon T)), just too small for noisy means of 1/epsilon rounds: the hardest gap for
    the conversion of Asi et al. (2025).

    Args:
        epsilon: privacy loss of the policy; None without privacy.
        gap: instead of the default.
        best: the best arm; by default the last.

    Example:
        >>> hidden_best(4, 10_000).means.tolist()
        [0.5, 0.5, 0.5, 0.48]
        >>> hidden_best(4, 10_000, epsilon=0.04, best=0).means.tolist()
        [0.4, 0.5, 0.5, 0.5]
    """
    noise = 1.0 if epsilon is None else min(epsilon, 1.0)
    if gap is None:
        gap = min(math.sqrt(arms / (noise * horizon)), 0.5)
    best = arms - 1 if best is None else best
    if not 0 <= best < arms:
        raise ParameterError(f"best = {best!r} is not an arm; give 0 to {arms - 1}")
    means = np.full(arms, 0.5)
    means[best] -= gap
    return StochasticLosses(means=means)


@checked
def fast_commit(horizon: Horizon, epsilon: Epsilon, *, switched: bool = True) -> Switching:
    """Two arms with losses (1/2, 1); the second turns to 0 just after a good policy drops it.

    Lemma 5.1 of Asi et al. (2025): a private policy that seldom plays the second arm notices the
    change late, because its decisions may depend only weakly on 1/epsilon losses. With
    p = 1 / (2 epsilon) the change is after sqrt(p T) / 8 rounds, where all conditions of the lemma
    can hold.

    Args:
        switched: False keeps the losses constant.

    Example:
        >>> fast_commit(horizon=10_000, epsilon=0.02).switch
        62
    """
    pulls = 0.5 / epsilon
    switch = min(int(math.sqrt(pulls * horizon) / 8.0), (horizon - 1) // 2)
    switch = switch if switched else horizon
    before, after = np.array([0.5, 1.0]), np.array([0.5, 0.0])
    return Switching(horizon=horizon, switch=switch, before=before, after=after)
