"""Confidence sequences for means that were released with noise.

An arm's rewards are independent, lie in [0, 1] and have mean mu. They are released in batches, each
as its sum plus Laplace noise of scale b; the batches that are settled hold n rewards and m draws of
noise, and S is the total of what was released of them. For every fixed x in (0, 1/b)

    M(x, mu) = exp(x S) (1 - b^2 x^2)^m / (1 - mu + mu e^x)^n

is a supermartingale that starts at 1, and so is a mixture over x with weights that add up to at
most 1. By Ville's inequality it ever reaches 1/beta with probability at most beta. As it falls in
mu, the mu at which it is below 1/beta are those above a lower limit; 1 - X in place of X gives the
upper one. The interval between them holds at all times at once, except with probability 2 beta:
under adaptive choice of arms, however batches are sized by what was released, and whenever one
stops. Intervals of several arms hold together if their betas add up.

Proof.
    Let F be all that is known when a batch settles, except the rewards of batches that are not
    settled: what was released of all arms, decisions, arrivals. Which batch is next, how many
    rewards it has and which decisions they belong to is a matter of decisions and of arrivals. So
    given F and that, its rewards are as they were drawn, in whatever order batches settle: nothing
    in F was made from them, and arrivals do not depend on rewards. Each has E e^(x X) <=
    1 - mu + mu e^x, since e^(x X) lies below its chord on [0, 1]. A draw has
    E e^(x W) = 1 / (1 - b^2 x^2). The batch therefore multiplies M by something of mean at most 1.
    Rewards that never come change n alone, if whether they come does not depend on what they are.
    Where every decision counts when its window ends, with a stand-in for a reward that did not
    come, the numbers that count are the X of this proof, batches settle in the order of decisions,
    and arrivals may depend on rewards.

    Local reports are batches of one. For reports of bits there is no noise beyond the bit: m = 0.

What rounding costs.
    Rewards are rounded to the nearest multiple of g = 2^-20 first, so that mu moves by g/2 at most;
    the running mean of the releases is a float and moves by far less than g/2. The interval is made
    wider by g on either side. Released noise is discrete Laplace on the grid, of scale up to
    (1 + 2 g) / epsilon: with u = g/b and y = x g, its E e^(x W) is
    sinh^2(u/2) / (sinh^2(u/2) - sinh^2(y/2)) <= u^2 / (u^2 - y^2), as sinh(z)/z grows with z. So
    `laplace_scale` is larger than 1/epsilon by 2 g, and M with it is a supermartingale both for
    exact noise and for that of simulations.

The rates x fall from min(2, 0.9/b) by sqrt 2, with weights 4 / ((k + 4) (k + 5)): picked by widths
for means .02 and .5, b of 0, 1 and 10 and 100 to 10^8 rewards. There, with one draw of noise, the
95 % interval is 1.6 to 2.6 times as wide as one for a single, fixed n by the normal law
(`python benchmarks/docstring_figures.py`).
"""

from __future__ import annotations

import math

from balaclava._core.kernels import kernel

GRID = 2.0**-20  # of a reward's range: what rewards are rounded to
_RATES = 60  # enough for 10^15 rewards
_LARGEST = 2.0
_SHARE = 0.9  # of 1/b
_FLATNESS = 4.0
_STEPS = 60  # of Newton's rule; about 15 are needed for 10^6 rewards
_CLOSE = 1e-9


@kernel(borrows=True)
def laplace_scale(epsilon: float) -> float:
    """The scale of a draw of Laplace noise at sensitivity 1, rounding included."""
    return (1.0 + 2.0 * GRID) / epsilon


@kernel(borrows=True)
def log_evidence(
    total: float, rewards: int, draws: int, noise: float, mean: float
) -> tuple[float, float]:
    """The logarithm of the mixture of M against `mean`, and how fast it falls as the mean grows."""
    x = _LARGEST if noise * _LARGEST < _SHARE else _SHARE / noise
    highest, mass, fall = -math.inf, 0.0, 0.0
    for k in range(_RATES):
        weight = _FLATNESS / ((k + _FLATNESS) * (k + _FLATNESS + 1.0))
        chord = math.expm1(x)
        scaled = noise * x
        log = math.log(weight) + x * total - rewards * math.log1p(mean * chord)
        if draws > 0:
            log += draws * math.log1p(-scaled * scaled)
        slope = rewards * chord / (1.0 + mean * chord)
        if log > highest:
            shrink = math.exp(highest - log)
            mass, fall, highest = mass * shrink + 1.0, fall * shrink + slope, log
        else:
            share = math.exp(log - highest)
            mass, fall = mass + share, fall + share * slope
        x *= math.sqrt(0.5)
    return highest + math.log(mass), fall / mass


@kernel(borrows=True)
def lower_limit(total: float, rewards: int, draws: int, noise: float, failure: float) -> float:
    """The least mean in [0, 1] that is not refuted at `failure`, by noisy total of rewards.

    The evidence is convex in the mean, so that Newton's rule comes from below and never passes the
    limit: where it stops, everything below is refuted.
    """
    mean = 0.0
    for _ in range(_STEPS):
        evidence, fall = log_evidence(total, rewards, draws, noise, mean)
        excess = evidence + math.log(failure)
        if excess < _CLOSE or mean >= 1.0:
            break
        mean += excess / fall
    return min(max(mean - GRID, 0.0), 1.0)


@kernel(borrows=True)
def mean_interval(
    mean: float, rewards: int, draws: int, noise: float, failure: float
) -> tuple[float, float]:
    """An interval for the mean of rewards in [0, 1], from their released mean.

    Args:
        mean: of the rewards and all draws of noise: their total over `rewards`.
        rewards: how many rewards are in it.
        draws: how many draws of Laplace noise are in it.
        noise: the scale b of a draw.
        failure: the chance that the interval ever fails, both sides together.

    Example:
        >>> low, high = mean_interval(0.6123, 1_000, 4, 1.0, 0.05)
        >>> f"{low:.3f} {high:.3f}"
        '0.558 0.665'
    """
    if rewards < 1:
        return 0.0, 1.0
    total = mean * rewards
    low = lower_limit(total, rewards, draws, noise, 0.5 * failure)
    high = 1.0 - lower_limit(rewards - total, rewards, draws, noise, 0.5 * failure)
    return low, high
