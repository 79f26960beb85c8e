"""Closed forms of privacy accounting.

`composition` combines them and checks them against dp-accounting.
"""

import math
from typing import Annotated

import numpy as np

from balaclava._core.declared import Delta, Epsilon, Range, check
from balaclava._core.extras import import_extra
from balaclava.errors import ParameterError
from balaclava.privacy.exact_noise import LARGEST_EXPONENT

# Above 10^9 decisions the log-binomials of optimal composition lose their digits.
Decisions = Annotated[int, Range(1, 10**9, "number of decisions")]
Interval = Annotated[int, Range(1, meaning="rounds between two releases")]
Rho = Annotated[float, Range(0, meaning="loss in zero-concentrated privacy")]
Decay = Annotated[float, Range(1, 2, "how fast the losses of releases fall", open_low=True)]
# B_2i / (2i)! for i = 1, 2, ...: the weights of the Euler-Maclaurin formula.
_BERNOULLI = (1 / 12, -1 / 720, 1 / 30_240, -1 / 1_209_600, 1 / 47_900_160)


def group_delta(epsilon: float, delta: float, rewards: int) -> float:
    """Delta of k rewards together: delta (e^(k epsilon) - 1) / (e^epsilon - 1), at most 1.

    Group privacy (Vadhan 2017, The complexity of differential privacy, Lemma 2.2): changing k
    rewards one after the other adds delta, e^epsilon delta, ..., e^((k-1) epsilon) delta. Their
    epsilon is k epsilon.

    >>> round(group_delta(1.0, 1e-6, 3) / 1e-6, 4)  # 1 + e + e^2
    11.1073
    """
    if delta == 0 or rewards == 1:
        return delta
    if epsilon == 0:
        return min(rewards * delta, 1.0)
    # The factor e^((k-1) epsilon) would overflow, so it enters by its logarithm.
    ratio = math.expm1(-rewards * epsilon) / math.expm1(-epsilon)
    exponent = math.log(delta) + (rewards - 1) * epsilon + math.log(ratio)
    return math.exp(min(exponent, 0.0))


def advanced_epsilon(epsilon: float, decisions: int, slack: float) -> float:
    """Epsilon of n decisions at delta = n delta_0 + slack, by advanced composition.

    sqrt(2 n log(1/slack)) epsilon + n epsilon (e^epsilon - 1) (Dwork, Rothblum and Vadhan, FOCS
    2010, Theorem III.3).

    >>> round(advanced_epsilon(0.1, 1000, 1e-6), 3)
    27.14
    """
    if slack <= 0 or epsilon > LARGEST_EXPONENT:
        return math.inf
    spread = math.sqrt(2 * decisions * math.log(1 / slack))
    return epsilon * spread + decisions * epsilon * math.expm1(epsilon)


def least_delta(delta: float, decisions: int) -> float:
    """1 - (1 - delta)^n: the probability that one of n decisions fails, a lower bound on delta."""
    return -math.expm1(decisions * math.log1p(-delta))


def spare_delta(delta: float, decisions: int, target: float) -> float:
    """The delta' with 1 - target = (1 - delta)^n (1 - delta'); negative if there is none."""
    return -math.expm1(math.log1p(-target) - decisions * math.log1p(-delta))


def optimal_epsilon(epsilon: float, delta: float, decisions: int, target: float) -> float:
    """Epsilon of n decisions at delta = `target`, exact for the worst mechanism.

    Kairouz, Oh and Viswanath (ICML 2015), Theorem 3.3. The worst (epsilon, delta) mechanism reveals
    everything with probability delta and is randomized response otherwise. Of n answers X are true,
    X ~ Bin(n, e^epsilon / (1 + e^epsilon)), and the loss is (2X - n) epsilon. With the tails P_k
    and Q_k of X under the two neighbours,

        delta'(e) = P_k - e^e Q_k,   k the least with (2k - n) epsilon > e,

    decreases in e. It is inverted on the grid of losses and solved for e within one step of it.
    Infinite if `target` is below 1 - (1 - delta)^n.

    >>> round(optimal_epsilon(0.1, 0.0, 1000, 1e-6), 3)
    19.345
    """
    spare = spare_delta(delta, decisions, target)
    if spare < 0 and target < least_delta(delta, decisions) * (1 - 1e-12):
        return math.inf
    spare *= 1 - 1e-14 * decisions  # covers the rounding of the log-binomials
    if spare < 1e-300 or epsilon == 0:
        return decisions * epsilon
    losses, log_masses = _worst_losses(epsilon, decisions)
    log_p, log_q = _log_tails(log_masses), _log_tails(log_masses - losses)
    deltas = np.zeros_like(losses)  # delta'(e) at e = losses[i]: its tails start at i + 1
    deltas[:-1] = np.exp(log_p[1:]) - np.exp(losses[:-1] + log_q[1:])
    i = int(np.argmax(deltas <= spare))
    share = spare * math.exp(-log_p[i])
    if share >= 1:  # only at i = 0: the target covers all mass above a loss of 0
        return 0.0
    # Q_k by a separate sum, relative to the loss at i: the log-tails are too coarse here.
    q = np.sum(np.exp(log_masses[i:] - log_p[i] + losses[i] - losses[i:]))
    epsilon_sum = float(losses[i]) + math.log1p(-share) - math.log(q)
    return min(max(epsilon_sum * (1 + 1e-15), 0.0), float(losses[i]))


def optimal_delta(epsilon: float, delta: float, decisions: int, target: float) -> float:
    """Delta of n decisions at epsilon = `target` >= 0: the inverse of `optimal_epsilon`.

    >>> round(optimal_delta(1.0, 0.0, 1, 0.0), 6)  # (e - 1) / (e + 1)
    0.462117
    """
    losses, log_masses = _worst_losses(epsilon, decisions)
    above = losses > target
    spare = float(np.sum(np.exp(log_masses[above]) * -np.expm1(target - losses[above])))
    lost = least_delta(delta, decisions)
    return lost + (1 - lost) * spare


def _worst_losses(epsilon: float, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Losses above 0 of n randomized responses, ascending, and their log-probabilities.

    Losses more than 19 sqrt(n) answers from the mean are omitted: by Hoeffding's inequality their
    probability is below 1e-300.
    """
    gammaln = import_extra("scipy.special", "composing decisions").gammaln
    log_true = -math.log1p(math.exp(-epsilon))
    mean, reach = n * math.exp(log_true), 19 * math.sqrt(n)
    first, last = max(n // 2 + 1, math.floor(mean - reach)), min(n, math.ceil(mean + reach))
    k = np.arange(first, last + 1, dtype=np.float64)
    log_masses = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    log_masses += n * log_true - (n - k) * epsilon
    return (2 * k - n) * epsilon, log_masses


def _log_tails(log_masses: np.ndarray) -> np.ndarray:
    """Logarithms of the sums from each place to the end."""
    tails: np.ndarray = np.logaddexp.accumulate(log_masses[::-1])[::-1]
    return tails


def gaussian_delta(shift: float, epsilon: float) -> float:
    """Delta of one Gaussian release at e = `epsilon`: Phi(s/2 - e/s) - e^e Phi(-s/2 - e/s).

    Balle and Wang (ICML 2018), Theorem 8. The shift s is the largest move of the released value by
    one reward, in standard deviations. n releases are one release of shift sqrt(n) s. Logarithms
    keep the digits of the tails; the kernel `gaussian_excess` loses them.
    """
    log_ndtr = import_extra("scipy.special", "composing decisions").log_ndtr
    near = float(log_ndtr(shift / 2 - epsilon / shift))
    far = epsilon + float(log_ndtr(-shift / 2 - epsilon / shift))
    return math.exp(near) * -math.expm1(min(far - near, 0.0))


def gaussian_epsilon(shift: float, delta: float) -> float:
    """Epsilon of one Gaussian release at `delta`: the inverse of `gaussian_delta`.

    >>> round(gaussian_epsilon(1.0, 1e-5), 4)
    4.3772
    """
    brentq = import_extra("scipy.optimize", "composing decisions").brentq
    if delta <= 0:
        return math.inf
    if gaussian_delta(shift, 0.0) <= delta:
        return 0.0
    enough = shift * shift / 2 + shift * math.sqrt(2 * math.log(1 / delta))  # by zCDP
    return float(
        brentq(lambda e: gaussian_delta(shift, e) - delta, 0.0, enough, xtol=1e-13 * enough)
    )


def zcdp_to_approx_dp(rho: float, delta: float) -> float:
    """Epsilon at `delta` of a rho-zCDP release.

    The least over orders a > 1 of a rho - log(a delta) / (a - 1) + log(1 - 1/a) (Canonne, Kamath
    and Steinke, NeurIPS 2020, Proposition 12). The grid of orders is around the one that gives the
    simpler rho + 2 sqrt(rho log(1/delta)).

    >>> round(zcdp_to_approx_dp(0.5, 1e-5), 4)
    4.7284
    """
    rho, delta = check("rho", rho, Rho), check("delta", delta, Delta)
    if rho == 0:
        return 0.0
    if delta == 0:
        raise ParameterError(
            "delta = 0 is not allowed: zCDP has no pure epsilon; give a delta above 0"
        )
    b = math.sqrt(math.log(1 / delta) / rho) * np.geomspace(0.1, 10, 2001)  # a - 1
    log_a = np.log1p(b)
    epsilons = (1 + b) * rho - (log_a + math.log(delta)) / b + np.log(b) - log_a
    return max(float(np.min(epsilons)), 0.0)


def interval_epsilon(interval: int, delta: float, v: float) -> float:
    """Epsilon at `delta` of endless releases j = 1, 2, ... at epsilon_j = (j f)^(-v/2), v > 1.

    f is the `interval`. Advanced composition over all j:

        sum_j epsilon_j (e^epsilon_j - 1) + sqrt(2 log(1/delta) sum_j epsilon_j^2)

    As sum_j epsilon_j^m = f^(-vm/2) zeta(vm/2), the exponential series turns the first sum into
    one over m that converges like 1/m! and covers all j.

    >>> round(interval_epsilon(10, 0.01, 1.1), 2)
    3.65
    """
    f, delta = float(check("interval", interval, Interval)), check("delta", delta, Delta)
    if delta == 0:
        raise ParameterError("delta = 0 is not allowed for endless releases; give a delta above 0")
    v = check("v", v, Decay)
    m = np.arange(1, 40)
    powers = f ** (-v * (m + 1) / 2) * zeta(v * (m + 1) / 2)  # sum_j epsilon_j^(m + 1)
    drift = float(powers @ np.cumprod(1 / m))
    return drift + math.sqrt(2 * math.log(1 / delta) * float(powers[0]))


def zeta(s: np.ndarray) -> np.ndarray:
    """Sum of 1/j^s over all j, s > 1: nineteen terms, then the Euler-Maclaurin formula.

    >>> zeta(np.array([2.0])).round(6).tolist()  # pi^2 / 6
    [1.644934]
    """
    n = 20.0
    total = n ** (1 - s) / (s - 1) + n**-s / 2
    for j in range(1, int(n)):
        total += j**-s
    step = s / n ** (s + 1)  # s (s + 1) ... (s + 2i - 2) / n^(s + 2i - 1)
    for i, weight in enumerate(_BERNOULLI):
        total += weight * step
        step *= (s + 2 * i + 1) * (s + 2 * i + 2) / n**2
    return total


def smallest_interval(epsilon: float, delta: float, v: float) -> int:
    """The smallest interval whose `interval_epsilon` is at most `epsilon`.

    >>> smallest_interval(1.0, 0.01, 1.1)
    77
    """
    epsilon = check("epsilon", epsilon, Epsilon)
    high = 1
    while interval_epsilon(high, delta, v) > epsilon:
        high *= 2
    low = high // 2  # too short
    while high - low > 1:
        middle = (low + high) // 2
        if interval_epsilon(middle, delta, v) > epsilon:
            low = middle
        else:
            high = middle
    return high
