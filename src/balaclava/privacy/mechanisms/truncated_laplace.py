"""The truncated Laplace mechanism (Wang and Zhu 2024, Lemma 15).

Answer value + w, where w has a density proportional to exp(-epsilon |w| / s) on |w| <= A,

    A = (s / epsilon) log(1 + E / (2 delta)),   E = exp(epsilon) - 1,   s = sensitivity.

delta = 0 gives the Laplace mechanism. epsilon = 0 gives the uniform law on |w| <= s / (2 delta).

Proof: `truncated_laplace.proof.md` beside this file.
"""

import functools
import math
import secrets
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from balaclava._core.kernels import kernel
from balaclava.privacy.exact_noise import LARGEST_EXPONENT, bernoulli_exp, to_steps
from balaclava.privacy.mechanisms.base import Loss, Terms, mechanism
from balaclava.privacy.mechanisms.laplace import exact_laplace

# Epsilon below which the law is uniform to the last bit, and quotients would underflow.
_UNIFORM_EPSILON = 1e-200


@kernel(borrows=True)
def kept_mass(epsilon: float, delta: float) -> float:
    """Mass of the Laplace law within the truncation: q = E / (E + 2 delta)."""
    if delta == 0.0 or epsilon > LARGEST_EXPONENT:  # nothing is cut off in a float
        return 1.0
    # expm1, by functions that the compiler can move out of a loop over the arms.
    grown = math.exp(epsilon)
    excess = (grown - 1.0) * (epsilon / math.log(grown)) if grown > 1.0 else epsilon
    return excess / (excess + 2.0 * delta)


@kernel(borrows=True)
def truncated_laplace_magnitude(
    v: float, sensitivity: float, epsilon: float, delta: float
) -> float:
    """The |w| that the noise exceeds with probability 1 - v: `exceeded_with` as a kernel."""
    if delta > 0.0 and epsilon < _UNIFORM_EPSILON:
        return v * sensitivity / (2.0 * delta)
    return -math.log1p(-v * kept_mass(epsilon, delta)) * sensitivity / epsilon


@functools.lru_cache(maxsize=4096)
def reach_in_steps(steps: int, epsilon: float, delta: float) -> int:
    """A of the released form: the largest noise, in whole steps."""
    if epsilon < _UNIFORM_EPSILON:
        return max(steps, math.ceil((Fraction(steps) / Fraction(delta) - 1) / 2))
    rate = epsilon / steps
    one_minus_a = -math.expm1(-rate)
    excess = (math.expm1(epsilon) + delta * one_minus_a) / (delta * (2.0 - one_minus_a))
    return max(steps, math.ceil(math.log1p(excess) / rate * (1.0 + 1e-12)) - 1)


def truncated_noise(steps: int, epsilon: float, delta: float) -> int:
    """Draw the noise of the released form, in whole steps."""
    reach = reach_in_steps(steps, epsilon, delta)
    numerator, denominator = epsilon.as_integer_ratio() if epsilon >= _UNIFORM_EPSILON else (0, 1)
    while True:
        k = secrets.randbelow(2 * reach + 1) - reach
        if bernoulli_exp(abs(k) * numerator, steps * denominator):
            return k


def exact_truncated_laplace(terms: Terms) -> float:
    """Release a number with truncated discrete Laplace noise on the grid."""
    if kept_mass(terms.epsilon, terms.delta) == 1.0:  # nothing to truncate: delta is 0
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


def exceeded_with(p: Any, epsilon: float, delta: float) -> Any:
    """The |w| that noise of sensitivity 1 exceeds with probability p, also for arrays of p.

    log(1 + (1 - p) E / (p E + 2 delta)) / epsilon, E = exp(epsilon) - 1: accurate for small p.
    """
    if delta > 0.0 and epsilon < _UNIFORM_EPSILON:
        return (1.0 - p) / (2.0 * delta)
    return np.log1p((1.0 - p) / (p + _cut(epsilon, delta))) / epsilon


def _cut(epsilon: float, delta: float) -> float:
    """2 delta / E: mass that truncation removes, before normalisation."""
    if delta == 0.0 or epsilon > LARGEST_EXPONENT:
        return 0.0
    return 2.0 * delta / math.expm1(epsilon)


@dataclass(frozen=True)
class TruncatedLaplaceLaw:
    centre: float
    sensitivity: float
    epsilon: float
    delta: float

    def _above(self, size: Any) -> Any:
        """The probability that the noise is above `size` >= 0."""
        size = size / self.sensitivity
        if self.delta > 0.0 and self.epsilon < _UNIFORM_EPSILON:
            return 0.5 * np.maximum(1.0 - 2.0 * self.delta * size, 0.0)
        decay, cut = -self.epsilon * size, _cut(self.epsilon, self.delta)
        return 0.5 * np.maximum(np.exp(decay) + cut * np.expm1(decay), 0.0)

    def cdf(self, x: Any) -> Any:
        noise = np.asarray(x) - self.centre
        above = self._above(np.abs(noise))
        return np.where(noise < 0.0, above, 1.0 - above)

    def sf(self, x: Any) -> Any:
        return self.cdf(2.0 * self.centre - np.asarray(x))

    def ppf(self, p: Any) -> Any:
        p = np.asarray(p)
        both = 2.0 * np.minimum(p, 1.0 - p)
        size = self.sensitivity * exceeded_with(both, self.epsilon, self.delta)
        return self.centre + np.where(p < 0.5, -size, size)

    def isf(self, p: Any) -> Any:
        return 2.0 * self.centre - self.ppf(p)

    def support(self) -> tuple[float, float]:
        if self.delta == 0.0 or self.epsilon > LARGEST_EXPONENT:  # nothing is cut off
            return -math.inf, math.inf
        reach = self.sensitivity * float(exceeded_with(0.0, self.epsilon, self.delta))
        return self.centre - reach, self.centre + reach


def truncated_laplace_law(terms: Terms) -> TruncatedLaplaceLaw:
    return TruncatedLaplaceLaw(float(terms.value), *terms[1:])


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
    """Release a value that one reward moves by at most `sensitivity`, with bounded noise."""
    u = rng.random()
    below = u < 0.5
    v = 2.0 * u if below else 2.0 * u - 1.0
    size = truncated_laplace_magnitude(v, sensitivity, epsilon, delta)
    return value - size if below else value + size
