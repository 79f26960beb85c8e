"""The truncated Laplace mechanism (Wang and Zhu 2024, Lemma 15).

Answer value + w, where w has a density proportional to exp(-epsilon |w| / s) on |w| <= A,

    A = (s / epsilon) log(1 + E / (2 delta)),   E = exp(epsilon) - 1,   s = sensitivity.

delta = 0 gives the Laplace mechanism. epsilon = 0 gives the uniform law on |w| <= s / (2 delta).

Proof.
    Shift the input by z, 0 < z <= s. Where both densities are positive their ratio is at most
    exp(epsilon z / s) <= exp(epsilon). What is left is the mass within z of one end, which is
    largest for z = s: with c = (1/2 + delta / E) epsilon / s in front of the density it is
    (1/2 + delta / E) (exp(-epsilon (A - s) / s) - exp(-epsilon A / s))
    = (1/2 + delta / E) E 2 delta / (2 delta + E) = delta. So every event has
    P(S) <= exp(epsilon) P'(S) + delta, and no smaller delta would do.

    Released form: P(k) proportional to a^|k| on |k| <= A whole steps, a = exp(-epsilon / m), for
    an input that moves by at most m steps. The same argument leaves the m outermost points, of
    mass a^(A-m+1) (1 - a^m) / (1 + a - 2 a^(A+1)). It is at most delta exactly when
    a^(A+1) <= delta (1 + a) / (E + 2 delta): `reach_in_steps` is the smallest such A that is at
    least m, enlarged by a trillionth for the rounding of its own formula. (It falls as A grows,
    so enlarging is safe.) Sampling is by rejection: k uniform, kept with probability
    exp(-epsilon |k| / m), both exact.
"""

from __future__ import annotations

import functools
import math
import secrets
from fractions import Fraction
from typing import Any

from balaclava._core.kernels import kernel
from balaclava.privacy.exact_noise import bernoulli_exp, to_steps
from balaclava.privacy.mechanisms.base import Loss, Terms, mechanism
from balaclava.privacy.mechanisms.laplace import exact_laplace

_NEVER_CUT = 700.0  # exp overflows soon after; long before, nothing is cut off in a double
_UNIFORM = 1e-200  # below, the law is uniform to the last bit, and quotients would underflow


@kernel(borrows=True)
def kept_mass(epsilon: float, delta: float) -> float:
    """The mass of the Laplace law that is kept: q = E / (E + 2 delta)."""
    if delta == 0.0 or epsilon > _NEVER_CUT:
        return 1.0
    # expm1, in functions that the compiler knows: it takes them out of a loop over the arms.
    grown = math.exp(epsilon)
    excess = (grown - 1.0) * (epsilon / math.log(grown)) if grown > 1.0 else epsilon
    return excess / (excess + 2.0 * delta)


@kernel(borrows=True)
def truncated_laplace_magnitude(
    v: float, sensitivity: float, epsilon: float, delta: float
) -> float:
    """The |w| that is exceeded with probability 1 - v."""
    if delta > 0.0 and epsilon < _UNIFORM:
        return v * sensitivity / (2.0 * delta)
    return -math.log1p(-v * kept_mass(epsilon, delta)) * sensitivity / epsilon


@kernel(borrows=True)
def truncated_laplace_quantile(p: float, sensitivity: float, epsilon: float, delta: float) -> float:
    """The noise below which a draw falls with probability p, for p in (0, 1)."""
    size = truncated_laplace_magnitude(abs(2.0 * p - 1.0), sensitivity, epsilon, delta)
    return size if p >= 0.5 else -size


@kernel(borrows=True)
def truncated_laplace_cdf(w: float, sensitivity: float, epsilon: float, delta: float) -> float:
    """The probability that the noise is at most w."""
    if delta > 0.0 and epsilon < _UNIFORM:
        within = 2.0 * delta * abs(w) / sensitivity
    else:
        within = -math.expm1(-epsilon * abs(w) / sensitivity) / kept_mass(epsilon, delta)
    within = min(within, 1.0)
    return 0.5 + 0.5 * within if w >= 0.0 else 0.5 - 0.5 * within


@functools.lru_cache(maxsize=4096)
def reach_in_steps(steps: int, epsilon: float, delta: float) -> int:
    """The A of the released form: the largest noise, in whole steps."""
    if epsilon < _UNIFORM:
        return max(steps, math.ceil((Fraction(steps) / Fraction(delta) - 1) / 2))
    rate = epsilon / steps
    one_minus_a = -math.expm1(-rate)
    excess = (math.expm1(epsilon) + delta * one_minus_a) / (delta * (2.0 - one_minus_a))
    return max(steps, math.ceil(math.log1p(excess) / rate * (1.0 + 1e-12)) - 1)


def truncated_noise(steps: int, epsilon: float, delta: float) -> int:
    """A draw of the released form's noise."""
    reach = reach_in_steps(steps, epsilon, delta)
    numerator, denominator = epsilon.as_integer_ratio() if epsilon >= _UNIFORM else (0, 1)
    while True:
        k = secrets.randbelow(2 * reach + 1) - reach
        if bernoulli_exp(abs(k) * numerator, steps * denominator):
            return k


def exact_truncated_laplace(terms: Terms) -> float:
    """The released answer: truncated discrete Laplace noise on the grid."""
    if kept_mass(terms.epsilon, terms.delta) == 1.0:  # nothing to cut; the stronger promise
        return exact_laplace(terms)
    position, steps, step = to_steps(terms.value, terms.sensitivity)
    return float((position + truncated_noise(steps, terms.epsilon, terms.delta)) * step)


def truncated_laplace_loss(apart: float, terms: Terms) -> Loss:
    """Epsilon times distance over sensitivity, and the mass within that distance of an end."""
    share = apart / terms.sensitivity
    if not share < math.inf:
        return Loss(math.inf)
    law = truncated_laplace_law(terms._replace(value=0.0, sensitivity=1.0))
    _, reach = law.support()
    delta = float(law.sf(reach - share)) if math.isfinite(reach) else 0.0
    return Loss(terms.epsilon * share, delta)


def truncated_laplace_law(terms: Terms) -> Any:
    """The law of the answer."""
    from balaclava.privacy.mechanisms.perturbed_index import TruncatedLaplaceLaw

    return TruncatedLaplaceLaw(
        float(terms.value),
        terms.sensitivity,
        terms.epsilon,
        terms.delta,
    )


@mechanism(
    "truncated Laplace",
    exact_truncated_laplace,
    loss=truncated_laplace_loss,
    law=truncated_laplace_law,
    borrows=True,
)
def truncated_laplace_release(
    rng: Any, value: float, sensitivity: float, epsilon: float, delta: float
) -> float:
    """A value that one reward moves by at most `sensitivity`, with bounded noise."""
    u = rng.random()
    below = u < 0.5
    v = 2.0 * u if below else 2.0 * u - 1.0
    size = truncated_laplace_magnitude(v, sensitivity, epsilon, delta)
    return value - size if below else value + size
