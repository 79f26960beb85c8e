"""Bernoulli divergences, and upper confidence bounds from their inverses.

`kl(p, q)` is the relative entropy of two Bernoulli distributions. `private_kl(x, y, epsilon)`
replaces it under differential privacy (Azize, Wu, Honda, Orabona, Ito, Basu 2025):

    d_eps(x, y) = min over z between x and y of  epsilon |z - x| + kl(z, y).

An upper bound is the largest mean within a divergence of `level`.
"""

import math

from balaclava._core.kernels import kernel


@kernel(borrows=True)
def kl(p: float, q: float) -> float:
    """p log(p/q) + (1-p) log((1-p)/(1-q)), with 0 log 0 = 0."""
    if p == q:
        return 0.0
    if (p > 0.0 and q <= 0.0) or (p < 1.0 and q >= 1.0):
        return math.inf
    divergence = 0.0
    if p > 0.0:
        divergence += p * math.log(p / q)
    if p < 1.0:
        divergence += (1.0 - p) * math.log((1.0 - p) / (1.0 - q))
    return max(divergence, 0.0)  # rounding may give -1e-17


@kernel(borrows=True)
def entropy(p: float) -> float:
    """-p log p - (1-p) log(1-p), with 0 log 0 = 0."""
    if p <= 0.0 or p >= 1.0:
        return 0.0
    return -p * math.log(p) - (1.0 - p) * math.log1p(-p)


@kernel(borrows=True)
def kl_exceeds(p: float, q: float, level: float) -> bool:
    """Whether kl(p, q) > level, usually without a logarithm.

    kl(p, q) is the integral of (x-p) / (x(1-x)) from p to q. As 1/(x(1-x)) is convex, Jensen's
    inequality puts it above (q-p)^2 / (2 m(1-m)), where m = (p+2q)/3.
    """
    m = p + 2.0 * q  # 3 m, to avoid a division
    rest = (1.0 - p) + 2.0 * (1.0 - q)  # 3 (1 - m), without the rounding error of 3 - 3 m
    return 4.5 * (q - p) * (q - p) > level * m * rest or kl(p, q) > level


@kernel(borrows=True)
def kl_upper(p: float, level: float) -> float:
    """max{q in [p, 1] : kl(p, q) <= level}, to about 1e-13.

    With 1-q = (1-p) e^-v and r = (q-p)/p the bound solves

        g(v) = (1-p) v - p log(1+r) = level,    g'(v) = r/(1+r).

    g increases, is convex and g'' decreases, so that Newton's method converges from any start: the
    first step may overshoot, the others decrease to the root. In v, kl is not steep at q = 1 and
    does not cancel at q = p.
    """
    if level <= 1e-30 or p >= 1.0:  # the bound is within 1e-15 of p
        return p
    if p <= 1e-15:
        return max(-math.expm1(-level), p)
    odds = (1.0 - p) / p
    small = math.sqrt(2.0 * level / odds)  # g(v) is odds v^2/2 at 0 ...
    start = small * (1.0 + (1.0 + 2.0 * odds) * small / 6.0)
    v = min(start, (level - p * math.log(p)) / (1.0 - p))  # ... and above its asymptote elsewhere
    for _ in range(60):  # a guard: 3 or 4 steps are usual
        r = -odds * math.expm1(-v)
        step = ((1.0 - p) * v - p * math.log1p(r) - level) * (1.0 + r) / r
        v -= step
        if abs(step) <= 1e-6 * v:  # the remaining error is below step^2/v
            break
    q = p - (1.0 - p) * math.expm1(-v)
    return min(max(q, p), 1.0)


@kernel(borrows=True)
def private_kl(x: float, y: float, epsilon: float) -> float:
    """d_eps(x, y) in closed form.

    For x <= y the minimum is at z = max(x, z*), z* = y e^-eps / (1 - y + y e^-eps). For x > y it
    is the value at (1-x, 1-y).
    """
    if x > y:
        x, y = 1.0 - x, 1.0 - y
    if y >= 1.0:
        return epsilon * (1.0 - x)
    shrunk = y * math.exp(-epsilon)
    if x * (1.0 - y) >= (1.0 - x) * shrunk:  # x >= z*
        return kl(x, y)
    return max(-epsilon * x - math.log(1.0 - y + shrunk), 0.0)


@kernel(borrows=True)
def private_kl_upper(x: float, level: float, epsilon: float) -> float:
    """max{y in [x, 1] : d_eps(x, y) <= level}.

    d_eps(x, y) is kl(x, y) up to the y with z*(y) = x, where it equals `switch`. Beyond, it
    inverts in closed form, and d_eps(x, 1) is at most epsilon (1-x).
    """
    if x >= 1.0 or level >= epsilon * (1.0 - x):
        return 1.0
    if x > 0.0:
        switch = (1.0 - x) * epsilon + math.log(x + (1.0 - x) * math.exp(-epsilon))
        if level <= switch:
            return kl_upper(x, level)
    return min(max(math.expm1(-level - epsilon * x) / math.expm1(-epsilon), x), 1.0)
