"""Confidence sequences for means that were released with noise.

An arm's rewards are independent, lie in [0, 1] and have mean mu. They are released in batches, each
as its sum plus Laplace noise of scale b. The settled batches hold n rewards and m draws of noise,
and S is the total of their releases. For every fixed x in (0, 1/b)

    M(x, mu) = exp(x S) (1 - b^2 x^2)^m / (1 - mu + mu e^x)^n

is a supermartingale that starts at 1, and so is a mixture over x with weights that add up to at
most 1. By Ville's inequality it ever reaches 1/beta with probability at most beta. It decreases in
mu, so it is below 1/beta exactly for mu above a lower limit; 1 - X in place of X gives the upper
limit. The interval between them holds at all times together, except with probability 2 beta. It
allows adaptive choice of arms, batch sizes chosen from past releases, and every stopping time.
Intervals of several arms hold together if their betas add up.

Proof.
    Batches count in the order in which they were fully asked: a batch counts once all those before
    it, of any arm, have settled. Let F be what happened until a batch is fully asked, without the
    rewards of batches that are not: all decisions, the rewards of earlier batches, arrived or not,
    and their noise, as if it was drawn then. Given F, the batch's rewards have the law by which
    they are drawn: what arrives of a batch changes no decision before the batch is fully asked and
    settled. Each has E e^(x X) <= 1 - mu + mu e^x, since e^(x X) lies below its chord on [0, 1]. A
    draw has E e^(x W) = 1 / (1 - b^2 x^2). So the batch multiplies its arm's M by a factor of mean
    at most 1, and no other M. All that is displayed are values of this one process. Which of them
    may depend on anything: arrivals may depend on rewards.

    This needs the order. Of batches that count as they settle, those rich in rewards that come
    early come first. And it needs every reward: if decisions are given up or cancelled, the proof
    assumes that which ones does not depend on the rewards. They then change n alone.

    Rewards that count in the order of arrival need that assumption always. Let F be the information
    when a batch settles, without the rewards of unsettled batches. Given F and the members of the
    next batch to settle, its rewards have the law by which they were drawn: nothing in F was
    computed from them, and arrivals do not depend on rewards.

    With a window, every decision counts at its end, and a missing reward has a default. The numbers
    that count are then the X of this proof. Batches settle in the order of decisions, and arrivals
    may depend on rewards.

    A tally of rewards, or of local reports, has batches of one. For reports of bits there is no
    noise beyond the bit: m = 0.

Cost of rounding.
    Rewards are rounded to the nearest multiple of g = 2^-20 first, so that mu moves by at most g/2.
    The running mean of the releases is a float and moves by far less than g/2. So the interval is
    widened by g on either side. Released noise is discrete Laplace on the grid, of scale up to
    (1 + 2 g) / epsilon. With u = g/b and y = x g, its E e^(x W) is
    sinh^2(u/2) / (sinh^2(u/2) - sinh^2(y/2)) <= u^2 / (u^2 - y^2), as sinh(z)/z grows with z. So
    `laplace_scale` is larger than 1/epsilon by the factor 1 + 2 g. With it M is a supermartingale
    for exact noise and for that of simulations.

Gaussian noise.
    A draw of variance s^2 has E e^(x W) = e^(s^2 x^2/2), and a draw of discrete Gaussian noise at
    most that (Canonne, Kamath, Steinke 2020). With e^(-s^2 x^2/2) in place of 1 - b^2 x^2, at every
    x > 0, all of the above holds: it uses the noise only through the mean of e^(x W), which is the
    same for -W. Kernels take -s in place of the scale b.

The rates x fall from min(2, 0.9/b) by sqrt 2, with weights 4 / ((k + 4) (k + 5)).

Two arms.
    Is arm b better than arm a? Let A(y) be the mixture of arm a for rewards 1 - X at the mean
    1 - y, and B(y) that of arm b at the mean y. Suppose mu_a >= mu_b, and take a y between them.
    A(y), B(y) and their product are supermartingales that start at 1: a batch that counts changes
    one factor, and all arms share one order. So is p A B + (1 - p) (A + B)/2, for any fixed p. It
    ever reaches 1/beta with probability at most beta, and its minimum over y is no larger. So b may
    be called better than a once the minimum reaches 1/beta, at any time. With beta = delta/(K - 1)
    for each of K - 1 pairs, a wrong arm is ever called the best of K with probability at most
    delta: it would have to beat a best arm.

    If the intervals of a and b at 2 beta' = delta/K are disjoint, then A >= 1/beta' at all y from
    some point between them on, and B >= 1/beta' at all y up to it. With p = 1/K the average is then
    at least (K - 1)/(2 K) 2 K/delta = (K - 1)/delta: no arm is named later than by intervals.

    All three terms are convex in y on a logarithmic scale, and so is their sum. `pair_evidence`
    bounds its minimum from below by the crossing of two tangents. Rates below 0.05/sqrt(n) are left
    out of the sum there, which only lowers it.

Sets of arms.
    Call the order of two arms known once its evidence reaches log(1/beta), in either direction: of
    the two claims only one can be wrong, unless the means are equal and both are right. The same
    holds for an arm and a fixed threshold, with A or B at the threshold as the evidence. So the
    arms above a threshold are known with beta = delta/K, and those above a control arm with
    beta = delta/(K - 1), once every arm is on a known side: a wrong set takes a wrong claim about
    one of K, or K - 1.

    A set of k arms is known to be the best once each of its arms is known to be better than each
    other arm, with beta = delta/(k (K - k)). Let T be k best arms, and y a number between their
    means and those of the others. If the set has an arm that is worse than one it lacks, it lacks
    an a in T and has a b outside T. Then A(y) of a times B(y) of b reached 1/beta, and both factors
    are supermartingales. There are k (K - k) such pairs.
"""

import math

from balaclava._core.kernels import kernel, remembering_kernel
from balaclava.privacy.exact_noise import GRID_BITS

# Rewards in [0, 1] are rounded to multiples of it.
REWARD_GRID = 2.0**-GRID_BITS
# The mixture: its largest rate x, the largest share of 1/b, and the decay of the weights. Chosen by
# interval widths for means .02 and .5, b of 0, 1 and 10, and 100 to 10^8 rewards
# (`python benchmarks/quoted_figures.py`). Every rate below 1/b is valid.
_LARGEST_RATE = 2.0
_RATE_SHARE = 0.9
_WEIGHT_DECAY = 4.0
# Number of rates, each sqrt 2 below the one before: enough for 10^15 rewards.
MIXTURE_RATES = 60
# Newton steps at most; about 15 are needed for 10^6 rewards. Every step gives a valid limit.
_LIMIT_STEPS = 60
# Nats of evidence above the limit at which Newton's method stops.
_EVIDENCE_ACCURACY = 1e-9
# Steps at most in the search for the least evidence of a pair. Every step gives a valid bound.
_PAIR_STEPS = 40
# Nats by which that bound may be below the minimum.
_PAIR_ACCURACY = 1e-3
# Rates below this many standard deviations of a mean, 1/sqrt(n), are left out: they add little.
_LEAST_RATE = 0.05


@kernel(borrows=True)
def laplace_scale(epsilon: float) -> float:
    """Scale of a draw of Laplace noise at sensitivity 1, rounding included."""
    return (1.0 + 2.0 * REWARD_GRID) / epsilon


@kernel(borrows=True)
def log_less_noise(noise: float, x: float) -> float:
    """-log of the largest E e^(x W) of a draw; `noise` as in `mean_interval`."""
    scaled = noise * x
    return math.log1p(-scaled * scaled) if noise > 0.0 else -0.5 * scaled * scaled


@kernel(borrows=True)
def log_evidence(
    total: float, rewards: int, draws: int, noise: float, mean: float, rates: int
) -> tuple[float, float]:
    """Logarithm of the mixture of M at `mean` over the first `rates`, and its negative slope."""
    x = _LARGEST_RATE if noise * _LARGEST_RATE < _RATE_SHARE else _RATE_SHARE / noise
    highest, mass, fall = -math.inf, 0.0, 0.0
    for k in range(rates):
        weight = _WEIGHT_DECAY / ((k + _WEIGHT_DECAY) * (k + _WEIGHT_DECAY + 1.0))
        chord = math.expm1(x)
        log = math.log(weight) + x * total - rewards * math.log1p(mean * chord)
        if draws > 0:
            log += draws * log_less_noise(noise, x)
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
    """Lower confidence limit of a mean in [0, 1], from the noisy total of its rewards.

    The evidence is convex in the mean, so that Newton's method approaches the limit from below:
    every mean below the point where it stops is refuted.
    """
    mean = 0.0
    for _ in range(_LIMIT_STEPS):
        evidence, fall = log_evidence(total, rewards, draws, noise, mean, MIXTURE_RATES)
        excess = evidence + math.log(failure)
        if excess < _EVIDENCE_ACCURACY or mean >= 1.0:
            break
        mean += excess / fall
    return min(max(mean - REWARD_GRID, 0.0), 1.0)


@kernel(borrows=True)
def mean_interval(
    mean: float, rewards: int, draws: int, noise: float, failure: float
) -> tuple[float, float]:
    """Confidence interval for the mean of rewards in [0, 1], from their released mean.

    `mean` is the total of `rewards` rewards and `draws` draws of Laplace noise of scale `noise`, or
    Gaussian noise of deviation -`noise`, divided by `rewards`. The interval ever
    fails with probability at most `failure`.

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


def limit_by_squares(
    total: float, squares: float, rewards: int, draws: int, noise: float, failure: float
) -> float:
    """Lower limit of the mean of numbers Y in [-1/2, 1/2] whose squares are known to be small.

    `total` is the sum of the Y and of `draws` draws of noise; `squares` a sum of bounds on E[Y^2],
    each known before its Y. As (e^z - 1 - z)/z^2 grows, E e^(x Y) is at most
    exp(x E[Y] + 4 E[Y^2] (e^(x/2) - 1 - x/2)). With this in place of the chord, each x of the
    mixture is a supermartingale, and with weight w it ever reaches 1/(w failure) with probability
    at most w `failure`. Each x gives a limit; all hold together.
    """
    x = _LARGEST_RATE if noise * _LARGEST_RATE < _RATE_SHARE else _RATE_SHARE / noise
    limit = -0.5
    for k in range(MIXTURE_RATES):
        weight = _WEIGHT_DECAY / ((k + _WEIGHT_DECAY) * (k + _WEIGHT_DECAY + 1.0))
        log = 4.0 * squares * (math.expm1(0.5 * x) - 0.5 * x) - math.log(weight * failure)
        if draws > 0:
            log -= draws * log_less_noise(noise, x)
        limit = max(limit, (total - log / x) / rewards)
        x *= math.sqrt(0.5)
    return limit - REWARD_GRID


def largest_radius(rewards: int, draws: int, noise: float, failure: float) -> float:
    """A bound on how far the limits of `mean_interval` are from the released mean, for any data.

    log(1 - mu + mu e^x) <= mu x + x^2/8 (Hoeffding). So at the rate x with weight w the evidence
    reaches log(2/failure) at distances r from

        n x (r - x/8) + m log(1 - b^2 x^2) + log w = log(2/failure)

    on, for every mean; the rounding of rewards adds g. The least r of all rates holds.

    Example:
        >>> round(largest_radius(1_000, 4, 1.0, 0.05), 4)
        0.0583
    """
    x, least = min(_LARGEST_RATE, _RATE_SHARE / noise if noise > 0.0 else math.inf), math.inf
    for k in range(MIXTURE_RATES):
        weight = _WEIGHT_DECAY / ((k + _WEIGHT_DECAY) * (k + _WEIGHT_DECAY + 1.0))
        nats = math.log(2.0 / (failure * weight)) - draws * log_less_noise(noise, x)
        least = min(least, x / 8.0 + (nats + _EVIDENCE_ACCURACY) / (rewards * x))
        x *= math.sqrt(0.5)
    return least + REWARD_GRID


@kernel(borrows=True)
def useful_rates(rewards: int, noise: float) -> int:
    """How many rates of the mixture are not far below 1/sqrt(rewards)."""
    x = _LARGEST_RATE if noise * _LARGEST_RATE < _RATE_SHARE else _RATE_SHARE / noise
    falls = 2.0 * math.log2(max(x * math.sqrt(rewards) / _LEAST_RATE, 2.0))
    return min(MIXTURE_RATES, int(falls) + 1)


@kernel(borrows=True)
def log_average(low: float, high: float, joint: float) -> tuple[float, float, float]:
    """Logarithm of p e^(low + high) + (1 - p) (e^low + e^high)/2, and its slopes in both."""
    if joint >= 1.0:
        return low + high, 1.0, 1.0
    both, single = math.log(joint) + low + high, math.log(0.5 - 0.5 * joint)
    most = max(both, single + low, single + high)
    product, first = math.exp(both - most), math.exp(single + low - most)
    second = math.exp(single + high - most)
    mass = product + first + second
    return most + math.log(mass), (product + first) / mass, (product + second) / mass


@kernel(borrows=True)
def evidence_at(
    mean: float, worse: tuple[float, int, int], better: tuple[float, int, int],
    noise: float, joint: float,
) -> tuple[float, float]:  # fmt: skip
    """Logarithm of the evidence against a common mean, and its slope; see `pair_evidence`."""
    x, n, draws = worse
    low, rise = log_evidence(
        n - x * n, n, draws, noise, min(1.0 - mean + REWARD_GRID, 1.0), useful_rates(n, noise)
    )
    x, n, draws = better
    high, fall = log_evidence(
        x * n, n, draws, noise, min(mean + REWARD_GRID, 1.0), useful_rates(n, noise)
    )
    evidence, of_low, of_high = log_average(low, high, joint)
    return evidence, of_low * rise - of_high * fall


@kernel(borrows=True)
def side_evidence(arm: tuple[float, int, int], threshold: float, noise: float) -> float:
    """Evidence in nats that the arm's mean is on the side of the threshold of its released mean.

    The arm is given as in `pair_evidence`, and the claim is ever wrong as seldom.

    Example:
        >>> round(side_evidence((0.7, 500, 3), 0.5, 1.0), 2)
        35.55
    """
    mean, n, draws = arm
    if n < 1:
        return 0.0
    total = mean * n if mean > threshold else n - mean * n
    level = min((threshold if mean > threshold else 1.0 - threshold) + REWARD_GRID, 1.0)
    return max(log_evidence(total, n, draws, noise, level, useful_rates(n, noise))[0], 0.0)


@remembering_kernel
def pair_evidence(
    worse: tuple[float, int, int], better: tuple[float, int, int], noise: float, joint: float
) -> float:
    """Evidence in nats that the mean of `better` is above that of `worse`; at least 0.

    An arm is given by its released mean, rewards and draws of noise. `joint` is p above. If the
    claim is false, the evidence ever reaches log(1/beta) with probability at most beta.

    Example:
        >>> round(pair_evidence((0.5, 400, 3), (0.7, 500, 3), 1.0, 1.0), 2)
        13.82
    """
    if worse[1] < 1 or better[1] < 1 or worse[0] >= better[0]:
        return 0.0
    left, right = min(max(worse[0], 0.0), 1.0), min(max(better[0], 0.0), 1.0)
    v, fall = evidence_at(left, worse, better, noise, joint)
    if fall >= 0.0:
        left = 0.0
        v, fall = evidence_at(left, worse, better, noise, joint)
    w, rise = evidence_at(right, worse, better, noise, joint)
    if rise <= 0.0:
        right = 1.0
        w, rise = evidence_at(right, worse, better, noise, joint)
    if fall >= 0.0 or rise <= 0.0:  # the least is at an end of [0, 1]
        return max(v if fall >= 0.0 else w, 0.0)
    least = -math.inf
    for _ in range(_PAIR_STEPS):
        middle = (w - rise * right - v + fall * left) / (fall - rise)
        least = v + fall * (middle - left)
        here, slope = evidence_at(middle, worse, better, noise, joint)
        if here - least < _PAIR_ACCURACY:
            break
        if slope > 0.0:
            right, w, rise = middle, here, slope
        else:
            left, v, fall = middle, here, slope
    return max(least, 0.0)
