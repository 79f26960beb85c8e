"""Large-deviation rates of means of rewards with several draws of Gaussian noise.

Let S be the sum of n rewards in [0, 1] of mean q and of m Gaussian draws of standard deviation
sigma, v = m sigma^2. By Markov's inequality for exp(-s S), at every s >= 0,

    P(S <= n x) <= exp(s n x) (1 - q + q exp(-s))^n exp(v s^2 / 2),

as exp(-s X) lies below its chord on [0, 1]. The rate is the best exponent over s. It holds for any
noise with E exp(-s W) <= exp(sigma^2 s^2 / 2), such as discrete Gaussian noise (Canonne, Kamath,
Steinke 2020).

The bound may be multiplied by (1 - exp(-l)) / l with l = s sqrt(2 pi v), for continuous noise.

Proof. Under the law tilted by exp(-s S) the noise is Gaussian with the same variance, so that S has
a density of at most f = 1 / sqrt(2 pi v), for any rewards. As in `noisy_kl`,

    P(S <= y) = E[exp(-s S)] exp(s y) E'[exp(-s (y - S)); S <= y],

and the last factor is at most f times the integral of exp(-s u) over u from 0 to 1/f.

Both the rate and the factor's logarithm fall in x and rise in q, as the best s does.
"""

import math

from balaclava._core.kernels import kernel

# Newton steps at most: a guard. Any tilt gives a valid exponent.
_GAUSSIAN_STEPS = 60
# Relative accuracy of s; the relative error of the rate is its square.
_GAUSSIAN_ACCURACY = 1e-3


@kernel(borrows=True)
def gaussian_tilt(n: float, x: float, q: float, variance: float) -> float:
    """The s of the best exponent, for x < q: where n (z(s) - x) = v s.

    z(s) is the mean of rewards tilted by exp(-s). The exponent is concave in s. Newton's method
    starts at (q - x) n / v, which is above the root, with bisection as a fallback.
    """
    low, high = 0.0, n * (q - x) / variance
    s = high
    for _ in range(_GAUSSIAN_STEPS):
        tilted = q * math.exp(-s)
        z = tilted / (1.0 - q + tilted) if q < 1.0 else 1.0
        slope = n * (z - x) - variance * s
        if slope > 0.0:
            low = s
        else:
            high = s
        last, s = s, s + slope / (n * z * (1.0 - z) + variance)
        if not low < s < high:
            s = 0.5 * (low + high)
        if abs(s - last) <= _GAUSSIAN_ACCURACY * s:
            break
    return s


@kernel(borrows=True)
def gaussian_exponent(s: float, n: float, x: float, q: float, variance: float) -> float:
    """The exponent of Markov's inequality at s, and at least 0, its value at s = 0."""
    rewards = -math.log(1.0 - q + q * math.exp(-s)) if q < 1.0 else s
    return max(n * (rewards - s * x) - 0.5 * variance * s * s, 0.0)


@kernel(borrows=True)
def gaussian_kl(n: float, x: float, q: float, deviation: float, draws: float) -> float:
    """Rate at which the released mean of n rewards is x or less, if the true mean is q in [0, 1].

    >>> round(gaussian_kl(300, 0.5, 0.7, 10.0, 1), 4)
    10.8551
    """
    if x >= q:
        return 0.0
    variance = draws * deviation * deviation
    return gaussian_exponent(gaussian_tilt(n, x, q, variance), n, x, q, variance)


@kernel(borrows=True)
def gaussian_tail(n: float, x: float, q: float, deviation: float, draws: float) -> float:
    """A lower bound on -log of the probability that `gaussian_kl` bounds, proved above.

    >>> round(gaussian_tail(300, 0.5, 0.7, 10.0, 1), 3)
    13.052
    """
    if x >= q:
        return 0.0
    variance = draws * deviation * deviation
    s = gaussian_tilt(n, x, q, variance)
    ratio = s * math.sqrt(2.0 * math.pi * variance)
    nats = math.log(ratio / -math.expm1(-ratio)) if ratio > 1e-9 else 0.0
    return gaussian_exponent(s, n, x, q, variance) + nats
