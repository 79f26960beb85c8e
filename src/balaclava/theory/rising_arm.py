"""What it costs to notice that a weak arm rises: a lower bound (Garivier, Moulines 2011).

Where nothing changes, a policy plays a weak arm with mean x at an average rate of r a round, which
costs r (best - x) a round. Then the arm rises to y, above the best mean, for any length of time.
For every policy, private or not, there is a moment after which it loses at least

    (y - best) max over n of n/(r kl(x, y)) (1 - r - sqrt(n/2))

until it has noticed. So regret without a change, times regret after a change, is at least of the
order of the horizon: there is no policy for which both are small.

Proof.
    Let tau = n/(r kl(x, y)). Split the horizon into intervals of tau rounds. In one of them the arm
    is played N <= r tau times in expectation. Compare the problem without a change to that where
    the arm has mean y in this interval. The rewards seen before its end have relative entropy
    E N kl(x, y) <= n (the chain rule; only this arm's rewards in the interval differ). By Pinsker's
    inequality the distributions of all decisions differ by at most sqrt(n/2) in total variation. So
    in the changed problem the arm is played at most r tau + tau sqrt(n/2) times in the interval,
    in expectation, and each other decision loses at least y - best.

The maximum is near n = 8/9, where n (1 - sqrt(n/2)) = 8/27.
"""

import math

from balaclava.errors import ParameterError
from balaclava.estimators.kl import kl

_NATS_TRIED = 200  # of n in (0, 2); the bound is flat near its maximum


def least_regret_of_a_rise(weak: float, best: float, risen: float, rate: float) -> float:
    """The regret that some rise of a weak arm costs at least, before it is noticed.

    Args:
        weak: The arm's mean x, in (0, 1).
        best: The best mean, at least x.
        risen: The arm's mean y after it rose, in (best, 1).
        rate: Its share of the decisions where nothing changes, above 0.

    Returns:
        The bound.

    Raises:
        ParameterError: If the means are not in that order, or the rate is not in (0, 1].

    Example:
        >>> round(least_regret_of_a_rise(0.55, 0.75, 0.95, 0.001), 1)
        85.9
    """
    if not 0.0 < weak <= best < risen < 1.0:
        raise ParameterError(
            f"weak, best, risen = {weak:g}, {best:g}, {risen:g} are not allowed; give ascending "
            "means in (0, 1)"
        )
    if not 0.0 < rate <= 1.0:
        raise ParameterError(f"rate = {rate:g} is not allowed; give a share in (0, 1]")
    nats = (2.0 * (i + 1) / _NATS_TRIED for i in range(_NATS_TRIED))
    return (risen - best) * max(
        n / (rate * kl(weak, risen)) * max(1.0 - rate - math.sqrt(n / 2.0), 0.0) for n in nats
    )
