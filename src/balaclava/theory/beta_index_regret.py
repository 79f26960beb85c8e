"""Regret of playing the highest of indices theta ~ Beta(s + 1 + k, n - s + 1 + k).

Of an arm's n rewards s are 1 and the others 0, and k = floor(n/8) + 1. Each arm starts with m
rewards. Let mu be the best mean, and let v < mu be above all other means. Write x' for 1/10 + 4x/5,
and y = v'. In T rounds the worse arms cost, on average, at most

    sum over worse arms of gap P  +  (largest gap) Q,

    P = N + sum over n >= N of (T A)^a exp(-n f),  for an arm of mean p, any x in (p, v), N >= m:
        t = log((1 - x') y / (x' (1 - y))),  a = min{1, log(x (1 - p) / ((1 - x) p)) / t},
        f = -a t/8 - (5/4) a log((1 - y)/(1 - x')) - log(1 - p + p exp(a t)) > 0,
        log A = max of c t + (2c + 1) log((1 - y)/(1 - x')),
    Q = sum over n >= m of B exp(-n g) + C exp(-n kl(w, mu)),  any h > 0, where C depends on n:
        g = h/8 - (5/4) log(1 - y + y e^h) - log(1 - mu + mu e^-h) > 0,
        log B = max of (2c + 1) log(1 - y + y e^h) - c h,
        w = v + max{v, 2.4 v - 0.7}/m < mu,  b = log(mu (1 - w) / ((1 - mu) w)),
        C = (D(b) + D(b)^2/q)/q + sqrt(2 pi) exp(-b n w/4) (D(b/2) + sqrt(2) D(b/2)^2/r),
        D(b) = 1/(1 - exp(-b)),  r^2 = n w (1 - w),  q^2 = min{r^2, n (w/2) (1 - w/2)}.

The maxima are over c = 1/8 and c = 1. Arms of a gap up to d cost at most d T together, instead of
gap P; then v may be below their means. For a < 1, f = kl(x, p) + (5/4) a kl(x', y). With
v = mu - lambda, P is of the order of log T / kl(p', y), and Q is below that of 1 / lambda^3. Wang
and Zhu (2024, Theorem 13) have 5 log T / (2 (gap - 5/2 lambda)^2) and an unnamed constant times
1 / lambda^4. Their level moves with n, and a step of their proof fails (errata, Wang 8).

Proof. c = k - n/8 is in [1/8, 1]; M = n + 2k + 1 = 5n/4 + 2c + 1. The index is at least y with the
probability p(s) = P(Bin(M, y) <= s + k).
1. Pulls of a worse arm with an index of at least y: at most one for each n, and given the arm's
   rewards at most T p(s) on average. So P may be N plus the sum of E min{1, T p(s)} over n >= N,
   and min{1, z} <= z^a. By Chernoff's inequality p(s) <= exp(t (s + k)) ((1 - y)/(1 - x'))^M, and
   E exp(a t s) = (1 - p + p exp(a t))^n. The terms in n make exp(-n f). Those in c are at most A^a:
   their logarithm is linear in c.
2. Pulls of all worse arms with an index below y: at most the sum of E[1/p(s) - 1] over the rewards
   of the best arm. If all other indices are below y, the best arm is played with a probability of
   at least p, and another one with at most 1 - p; each n ends with a pull of the best arm. Let
   z^2 = 2M kl((s + k)/M, y), z < 0 where s + k < My. Then p(s) >= Phi(z) (Zubkov, Serov 2013).
3. For z >= 0, 1/p - 1 <= 2 Phi(-z) <= exp(-z^2/2) <= exp(-h (s + k)) (1 - y + y e^h)^M. The mean of
   that is at most B exp(-n g).
4. For z < 0, 1/p <= sqrt(2 pi) (|z| + 1) exp(z^2/2) (Birnbaum 1942). Let n u = My - k. As kl is
   jointly convex, z^2/2 <= n kl(s/n, u) + (2k + 1) kl(l, l), l = k/(2k + 1): the last is 0. And
   n u = n v + (2c + 1) y - c, so that s/n < u <= w. With i = nw - s > 0, the chance of s times
   exp(n kl(s/n, w)) is exp(-n kl(w, mu) - b i) times the chance of s under Bin(n, s/n). That chance
   is at most 1, and at most sqrt(n / (2 pi s (n - s))) (Stirling). If s >= nw/2, it is at most
   1 / (sqrt(2 pi) q), and |z| <= i/q. Else |z| <= sqrt(2) i/r, since kl is below the chi-square
   divergence, and exp(-b i) <= exp(-b n w/4 - b i/2). The i lie one in each [j, j + 1): sum over j.
The sums over n are geometric, or over 1/sqrt(n) and 1/n times a geometric one; the latter are at
most their first term and an integral, e^(-x) log(1 + 1/x) > the integral of e^(-t)/t from x on.
"""

import math

import numpy as np

from balaclava.estimators.kl import kl
from balaclava.theory.gaussian_index_regret import tail_sum

# Parts of an interval, for x, h and mu - v: all are valid, and the best is taken.
_PARTS = np.linspace(0.02, 0.98, 49)
# A mean nearer to 0 or 1 counts as this far from it, which makes neither P nor Q smaller.
_EDGE = 1e-9
_EXTRA = np.array([0.125, 1.0]).reshape(2, 1, 1)  # least and largest c
_MOST_CUTS = 12  # of the gaps that may be d


def worse_arm_pulls(means: np.ndarray, v: float, first: int, horizon: int) -> np.ndarray:
    """P at the best x, for each of the means."""
    p, y = np.maximum(means, _EDGE)[:, None], 0.1 + 0.8 * v
    x = p + (v - p) * _PARTS
    index = 0.1 + 0.8 * x
    tilt = np.log((1.0 - index) * y / (index * (1.0 - y)))
    shrink = np.log((1.0 - y) / (1.0 - index))
    power = np.minimum(np.log(x * (1.0 - p) / ((1.0 - x) * p)) / tilt, 1.0)
    rate = -power * (tilt / 8.0 + 1.25 * shrink) - np.log1p(p * np.expm1(power * tilt))
    rate = np.where(rate > 0.0, rate, math.nan)
    log = math.log(horizon) + (_EXTRA * tilt + (2.0 * _EXTRA + 1.0) * shrink).max(axis=0)
    pulls = np.maximum(np.ceil(power * log / rate), first)
    totals = pulls + np.exp(power * log - rate * pulls) / -np.expm1(-rate)
    return np.nan_to_num(totals, nan=math.inf).min(axis=1)


def best_arm_shortfall(best: float, v: float, first: int) -> float:
    """Q at the best h; infinite if v is within about 1/first of the best mean."""
    best, y = min(best, 1.0 - _EDGE), 0.1 + 0.8 * v
    w = v + max(v, 2.4 * v - 0.7) / first
    if w >= best:
        return math.inf
    h = _PARTS * math.log(best * (1.0 - v) / ((1.0 - best) * v))
    grow = np.log1p(y * np.expm1(h))
    rates = h / 8.0 - 1.25 * grow - np.log1p(best * np.expm1(-h))
    log = ((2.0 * _EXTRA + 1.0) * grow - _EXTRA * h).max(axis=(0, 1))[rates > 0.0]
    rates = rates[rates > 0.0]
    above = np.exp(log - rates * first) / -np.expm1(-rates)
    b, rate = math.log(best * (1.0 - w) / ((1.0 - best) * w)), kl(w, best)
    near, far = tail_sum(b, 0), tail_sum(b / 2.0, 0)
    wide = math.sqrt(w * (1.0 - w))
    narrow = min(wide, math.sqrt(w / 2.0 * (1.0 - w / 2.0)))
    first_term = math.exp(-first * rate)
    roots = 1.0 / math.sqrt(first) + min(math.sqrt(math.pi / rate), 1.0 / (rate * math.sqrt(first)))
    inverses = 1.0 / first + math.log1p(1.0 / (first * rate))
    below = first_term * (near * roots / narrow + (near / narrow) ** 2 * inverses)
    rare = far + math.sqrt(2.0 / first) * far * far / wide
    rare *= math.sqrt(2.0 * math.pi) * tail_sum(rate + b * w / 4.0, first)
    return float(above.min(initial=math.inf)) + below + rare


def beta_index_regret(means: np.ndarray, first: int, horizon: int) -> float:
    """Upper bound on the regret, for arms with these means in [0, 1].

    Example:
        >>> round(beta_index_regret(np.array([0.3, 0.7]), 97, 10**6))
        74
    """
    best = float(means.max())
    gaps = np.unique(best - means)
    totals = [float(gaps[-1]) * horizon]
    for cut in np.unique(
        np.linspace(0, gaps.size - 2, _MOST_CUTS if gaps.size > 1 else 0, dtype=int)
    ):
        near, worse = gaps[cut] * horizon, means[best - means > gaps[cut]]
        for v in (best - gaps[cut + 1] * _PARTS).tolist():
            pulls = worse_arm_pulls(worse, v, first, max(horizon, 2))
            shortfall = gaps[-1] * best_arm_shortfall(best, v, first)
            totals.append(float(near + (best - worse) @ pulls + shortfall))
    return min(totals)
