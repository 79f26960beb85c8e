"""Large-deviation rates of means of rewards with the noise of several releases.

Let S be the sum of n Bernoulli rewards of mean q and of m Laplace draws of scale 1/epsilon. By
Markov's inequality for exp(-s epsilon S), at every s in [0, 1),

    P(S <= n x) <= exp(s epsilon n x) (1 - q + q exp(-epsilon s))^n (1 - s^2)^-m.

The rate is the best exponent over s,

    sup over s of  -s epsilon n x - n log(1 - q + q exp(-epsilon s)) + m log(1 - s^2)
        = min over z in [0, q] of  n kl(z, q) + I_m(epsilon n (z - x)),
    I_m(y) = sup over s of  s y + m log(1 - s^2),

the second by convex duality: rewards explain the mean z, noise explains the rest. For m = 0 and
x >= 0 it is n d_epsilon(x, q), the rate of Azize et al. (2025), in which I_m(y) is y: all draws of
noise count as one.

A Chernoff bound overstates the probability by a factor that grows with the rate and is known to a
few per cent. With sigma the standard deviation of S under the law tilted by s, and
lambda = s epsilon sigma (Esscher 1932),

    P(S <= n x)  is about  exp(-rate) M(lambda) / sqrt(2 pi),    M: Mills' ratio of the normal law.

A part of that factor is proved, for all independent rewards in [0, 1] of mean q. At every s in
(0, 1) the Markov bound may be multiplied by each of

    (1 - s) (2s/(1 + s))^s,
    (1 - exp(-l)) / l,  l = s sqrt(2 pi (1 + s^2) (2m - 3)) / (1 - s^2),  if m >= 2.

Proof of the first. A Laplace draw is at most -v with a probability of at most c exp(-s epsilon v)
for every real v, with c = (2s/(1 + s))^s / (1 + s): the maximum of P exp(s epsilon v) is at
exp(epsilon v) = 2s/(1 + s). Use this for the last of m draws, and Markov's inequality for the sum
of rewards and other draws: (1 - s^2)^-1 becomes c.

Proof of the second. Under the law tilted by exp(-s epsilon S),

    P(S <= v) = E[exp(-s epsilon S)] exp(s epsilon v) E'[exp(-s epsilon (v - S)); S <= v].

If S has under it a density of at most f, the last factor is at most f times the integral of
exp(-s epsilon y) over y from 0 to 1/f, which is (1 - exp(-l)) / l with l = s epsilon / f. f is at
most the largest density of the m tilted draws, for any rewards. The characteristic function
of a tilted draw, in units of 1/epsilon, is in absolute value

    ((1 + u^2/(1 + s)^2) (1 + u^2/(1 - s)^2))^(-1/2) <= (1 + a u^2)^(-1/2),
    a = 2 (1 + s^2) / (1 - s^2)^2.

Its m-th power integrates to at most B(1/2, (m-1)/2) / sqrt(a), with Euler's B. Divide by 2 pi, and
use (Gamma(k + 1/2) / Gamma(k))^2 >= k - 1/4 (Watson 1959) with k = (m-1)/2:

    f <= epsilon / sqrt(a pi (2m - 3)).

`noisy_tail` takes the smaller factor at the s of the best exponent. Both factors fall in s; that s
falls in x and rises in q. So `noisy_tail` falls in x and rises in q, as the rate does.
"""

import math

from balaclava._core.kernels import kernel

# Newton steps at most: a guard. Any tilt gives a valid exponent.
_TILT_STEPS = 60
# Relative accuracy of s and of 1-s. The relative error of the rate is its square, 1e-6.
_TILT_ACCURACY = 1e-3
# Largest s: nearer to 1, 1 - s^2 has fewer than 13 correct bits.
_MOST_TILT = 1.0 - 2.0**-40


@kernel(borrows=True)
def tilted_mean(s: float, q: float, epsilon: float) -> float:
    """The mean of rewards of mean q, tilted by exp(-epsilon s)."""
    tilted = q * math.exp(-epsilon * s)
    return tilted / (1.0 - q + tilted) if q < 1.0 else 1.0


@kernel(borrows=True)
def best_tilt(n: float, x: float, q: float, epsilon: float, draws: float) -> float:
    """The s of the best exponent, for x < q.

    The exponent is concave in s, and its slope is 0 where epsilon n (z(s) - x) (1 - s^2) = 2 m s,
    z(s) the mean of rewards tilted by exp(-epsilon s). Newton's method starts from the root for
    z = q, which is above it, with bisection as a fallback. Every s gives a valid exponent.
    """
    y = epsilon * n * (q - x)
    s = min(y / (math.sqrt(draws * draws + y * y) + draws), _MOST_TILT)
    low, high = 0.0, s
    for _ in range(_TILT_STEPS if q < 1.0 else 0):
        z = tilted_mean(s, q, epsilon)
        y, rest = epsilon * n * (z - x), 1.0 - s * s
        slope = y * rest - 2.0 * draws * s
        if slope > 0.0:
            low = s
        else:
            high = s
        curvature = epsilon * epsilon * n * z * (1.0 - z) * rest + 2.0 * (s * y + draws)
        step = slope / curvature
        last, s = s, s + step
        if not low < s < high:
            s = 0.5 * (low + high)
        if abs(s - last) <= _TILT_ACCURACY * min(s, 1.0 - s):
            break
    return s


@kernel(borrows=True)
def exponent(s: float, n: float, x: float, q: float, epsilon: float, draws: float) -> float:
    """The exponent of Markov's inequality at s, and at least 0, its value at s = 0."""
    noise = draws * math.log1p(-s * s) if draws > 0.0 else 0.0
    tilt = epsilon * s
    rewards = -math.log(1.0 - q + q * math.exp(-tilt)) if q < 1.0 else tilt
    return max(noise - n * (tilt * x - rewards), 0.0)


@kernel(borrows=True)
def noisy_kl(n: float, x: float, q: float, epsilon: float, draws: float) -> float:
    """Rate at which the released mean of n rewards is x or less, if the true mean is q in [0, 1].

    >>> round(noisy_kl(300, 0.5, 0.7, 0.1, 1), 4), round(noisy_kl(300, 0.5, 0.7, 0.1, 4), 4)
    (3.5932, 1.7732)
    """
    if x >= q:
        return 0.0
    return exponent(best_tilt(n, x, q, epsilon, draws), n, x, q, epsilon, draws)


@kernel(borrows=True)
def noisy_surprisal(n: float, x: float, q: float, epsilon: float, draws: float) -> float:
    """-log of twice the probability that `noisy_kl` bounds, within 0.2.

    It is 0 at x = q, and otherwise above the rate. Mills' ratio is approximated by a multiple of
    4 / (3 lambda + sqrt(lambda^2 + 8)) (Sampford 1953) that is exact at 0. There must be at least
    one draw of noise.

    >>> round(noisy_surprisal(300, 0.5, 0.7, 0.1, 1), 3)
    5.6
    """
    if x >= q:
        return 0.0
    s = best_tilt(n, x, q, epsilon, draws)
    z, rest = tilted_mean(s, q, epsilon), 1.0 - s * s
    variance = epsilon * epsilon * n * z * (1.0 - z) + 2.0 * draws * (1.0 + s * s) / (rest * rest)
    tilt = s * math.sqrt(variance)
    ratio = (3.0 * tilt + math.sqrt(tilt * tilt + 8.0)) / math.sqrt(8.0)
    return exponent(s, n, x, q, epsilon, draws) + math.log(ratio)


@kernel(borrows=True)
def noisy_tail(n: float, x: float, q: float, epsilon: float, draws: float) -> float:
    """A lower bound on -log of the probability that `noisy_kl` bounds, proved above.

    It is 0 at x = q, and otherwise above the rate. There must be at least one draw of noise.

    >>> round(noisy_tail(300, 0.5, 0.7, 0.1, 1), 3), round(noisy_tail(300, 0.5, 0.7, 0.1, 4), 3)
    (5.466, 3.283)
    """
    if x >= q:
        return 0.0
    s = best_tilt(n, x, q, epsilon, draws)
    return exponent(s, n, x, q, epsilon, draws) + tail_nats(s, draws)


@kernel(borrows=True)
def tail_nats(s: float, draws: float) -> float:
    """Nats by which the Chernoff bound at the tilt s > 0 overstates the probability, at least."""
    one = -s * math.log(2.0 * s / (1.0 + s)) - math.log1p(-s)
    if draws < 2.0:
        return one
    ratio = s * math.sqrt(2.0 * (1.0 + s * s) * math.pi * (2.0 * draws - 3.0)) / (1.0 - s * s)
    return max(one, math.log(ratio / -math.expm1(-ratio)))
