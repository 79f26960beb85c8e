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
