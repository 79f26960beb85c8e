"""Lower bounds: what no private policy can beat, however clever.

Pure functions of the problem. `minimax` holds for every horizon, on the worst instance. The two
`instance` bounds hold for the limit of regret / log(horizon), for policies that are good on all
instances; at a finite horizon a policy may be below them. `wang_zhu` holds for one of two
instances of two arms. All are for rewards in [0, 1] and for the privacy of whole trajectories
(for `wang_zhu` see there).

>>> round(minimax(arms=9, horizon=10**6, epsilon=1.0), 1)
104.8
>>> round(private_kl_instance([0.25, 0.75], horizon=10**6, epsilon=1.0), 2)
17.59
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import numpy as np

from balaclava._declared import (
    Arms,
    Delta,
    Epsilon,
    EpsilonOrZero,
    Horizon,
    Range,
    check,
)
from balaclava.errors import ParameterError
from balaclava.estimation.kl import kl, private_kl

Notion = Literal["average", "trajectory"]

_MEANS = Annotated[np.ndarray, Range(0, 1, "means of Bernoulli arms"), 1]
_LARGEST_LOG = 700.0  # exp overflows soon after


def wang_zhu(
    *,
    horizon: int,
    epsilon: float,
    delta: float = 0.0,
    exponent: float,
    constant: float,
    notion: Notion = "average",
) -> float:
    """Regret that some instance of two arms costs (Wang and Zhu 2024, Theorem 4).

    If a policy's regret is at most c T^a on every instance, then on one of two instances with
    arms of means 1/2 and 1/2 -+ 1/4 it is at least

        L / (16 epsilon),   L = log((E S + 5 delta S) / (40 c E + 5 delta S)),
        E = exp(epsilon) - 1,   S = T^(1-a),   for T >= 3 L / epsilon.

    Its proof scales the privacy loss by the expected number of changed rewards, in the direction
    that the paper's definition of privacy ("average") does not give. For the privacy of whole
    trajectories that number is random and costs a factor: with E in place of epsilon in both
    prefactors the proof holds for every epsilon (for delta above 0, if the guarantee also covers
    rewards that depend on earlier decisions). That is `notion="trajectory"`. The printed form is
    of the same order for epsilon <= 1 and is refused above.

    Args:
        horizon: T.
        epsilon: privacy loss; 0 is allowed if delta is not.
        delta: probability outside it.
        exponent: a, below 1: the policy's regret grows no faster than T^a.
        constant: c, above 0.
        notion: "average" for the theorem as printed, "trajectory" for whole trajectories.

    Returns:
        The bound; 0 where the theorem says nothing (a horizon that is too short for it).

    Example:
        >>> round(wang_zhu(horizon=10**6, epsilon=0.1, exponent=0.5, constant=1.0), 4)
        2.0118
    """
    horizon = check("horizon", horizon, Horizon)
    epsilon = check("epsilon", epsilon, EpsilonOrZero)
    delta = check("delta", delta, Delta)
    exponent = check("exponent", exponent, Annotated[float, Range(0, 1, open_high=True)])
    constant = check("constant", constant, Annotated[float, Range(0, open_low=True)])
    notion = check("notion", notion, Notion)
    if epsilon == 0.0 and delta == 0.0:
        raise ParameterError("epsilon and delta are both 0: nothing can be learned; raise one")
    if notion == "average" and epsilon > 1.0:
        raise ParameterError(
            f"epsilon = {epsilon!r} is above 1, where the printed theorem is in doubt; give at "
            "most 1, or take notion='trajectory'"
        )
    saved = horizon ** (1.0 - exponent)
    if 40.0 * constant >= saved:
        return 0.0
    loss = math.expm1(min(epsilon, _LARGEST_LOG)) if notion == "trajectory" else epsilon
    ratio = _log_per(loss, epsilon, delta, saved, 40.0 * constant)
    return ratio / 16.0 if horizon >= 3.0 * ratio else 0.0


def _log_per(loss: float, epsilon: float, delta: float, saved: float, least: float) -> float:
    """L / loss, also in the limit epsilon = 0, where loss is 0 too."""
    if epsilon == 0.0:
        return (saved - least) / (5.0 * delta * saved)
    excess = math.expm1(min(epsilon, _LARGEST_LOG))
    grown = excess * (saved - least) / (least * excess + 5.0 * delta * saved)
    return math.log1p(grown) / loss


def minimax(*, arms: int, horizon: int, epsilon: float) -> float:
    """Regret of any private policy on its worst instance (Azize and Basu 2022).

        max{sqrt(T (K-1)) / 27, (K-1) / (131 epsilon)}

    The second term is what privacy adds; it is the larger one when epsilon is below about
    sqrt((K-1) / T) / 5.

    Example:
        >>> round(minimax(arms=101, horizon=10_000, epsilon=0.001), 2)
        763.36
    """
    others = check("arms", arms, Arms) - 1
    horizon = check("horizon", horizon, Horizon)
    epsilon = check("epsilon", epsilon, Epsilon)
    return max(math.sqrt(horizon * others) / 27.0, others / (131.0 * epsilon))


def instance(means: Sequence[float] | np.ndarray, *, horizon: int, epsilon: float) -> float:
    """Regret on Bernoulli arms with these means, for long horizons (Azize and Basu 2022).

    Sum over the arms below the best of

        gap log(T) / min{kl(mean, best), 6 epsilon gap}.

    The first is the price of learning without privacy, the second that of privacy; the distance
    in total variation of two Bernoulli arms is their gap. `private_kl_instance` is sharper.

    Example:
        >>> round(instance([0.25, 0.75], horizon=10**6, epsilon=0.1), 2)
        23.03
    """
    epsilon = check("epsilon", epsilon, Epsilon)
    return _over_arms(
        means, horizon, lambda mean, best: min(kl(mean, best), 6.0 * epsilon * (best - mean))
    )


def private_kl_instance(
    means: Sequence[float] | np.ndarray, *, horizon: int, epsilon: float
) -> float:
    """As `instance`, with the exact price (Azize, Wu, Honda, Orabona, Ito, Basu 2025).

    Sum over the arms below the best of gap log(T) / d_eps(mean, best), where

        d_eps(x, y) = min over z between x and y of  epsilon |z - x| + kl(z, y).

    dp-klucb and dp-imed reach it up to their batch ratio.

    Example:
        >>> round(private_kl_instance([0.25, 0.75], horizon=10**6, epsilon=0.1), 2)
        140.84
    """
    epsilon = check("epsilon", epsilon, Epsilon)
    return _over_arms(means, horizon, lambda mean, best: private_kl(mean, best, epsilon))


def _over_arms(means: Any, horizon: int, divergence: Callable[[float, float], float]) -> float:
    """log(T) times the sum of gap / divergence over the arms below the best."""
    arms = check("means", means, _MEANS).tolist()
    horizon = check("horizon", horizon, Horizon)
    best = max(arms)
    gaps = [(best - mean, divergence(mean, best)) for mean in arms if mean < best]
    # Two means may be so close that their divergence is 0 in a double.
    return math.log(horizon) * math.fsum(gap / price if price else math.inf for gap, price in gaps)
