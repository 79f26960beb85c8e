"""The Gaussian mechanism, calibrated exactly (Balle, Wang 2018), for numbers and arrays.

Answer value + w, where the parts of w are independent N(0, (s / m)^2), s is the sensitivity in the
L2 norm, and the shift m is the largest with

    Phi(m/2 - epsilon/m) - exp(epsilon) Phi(-m/2 - epsilon/m) <= delta.

Proof.
    By rotation two inputs at distance s are N(0, 1) and N(m, 1) in one coordinate, in units of the
    noise. The ratio of their densities is monotone, so half-lines are the worst events, and their
    excess over exp(epsilon) is the left-hand side (Theorem 8). It grows with m, so inputs that are
    closer need less.

    Released form: integers k with P(k) proportional to exp(-k^2 / (2 t^2)) in each part, t = r / m
    grid steps for inputs r steps apart (`vector_to_steps` counts what rounding adds). Compare with
    the rounded Gaussian floor(X + 1/2), X ~ N(0, t^2): shifted by whole numbers it is a function
    of the Gaussian mechanism, and so keeps its epsilon and delta. The chances of the two differ
    by a factor within 1 +- (1 + (k/t)^2) / (12 t^2), from the second derivative of the density,
    and the sum of exp(-k^2 / (2 t^2)) differs from t sqrt(2 pi) by a factor of 1 + 2 exp(-19 t^2)
    at most. Beyond 60 t there is a mass of exp(-1800). As t is at least 2^14 (smaller ones are
    refused), a part costs a factor 1 +- 1.2e-6 at most, d parts d times that. So the released
    form is calibrated for epsilon - 4e-6 d and delta / (1 + 4e-6 d); settings with less are
    refused.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from balaclava._core.extras import require_extra
from balaclava._core.kernels import kernel
from balaclava.errors import PrivacyError
from balaclava.privacy.exact_noise import discrete_gaussian, vector_to_steps
from balaclava.privacy.mechanisms.base import Loss, Terms, mechanism

_APART = 4e-6  # by which a part of the released form may differ from the rounded Gaussian
_LEAST_SCALE = 2.0**14  # in grid steps
_SPARE = 1.0 - 1e-9  # of the shift: more than the rounding of its own formula
_MOST_EPSILON = 700.0  # exp overflows soon after


@kernel(borrows=True)
def gaussian_excess(shift: float, epsilon: float) -> float:
    """Phi(m/2 - epsilon/m) - exp(epsilon) Phi(-m/2 - epsilon/m), m = `shift`."""
    near = 0.5 * math.erfc((epsilon / shift - 0.5 * shift) / math.sqrt(2.0))
    far = 0.5 * math.erfc((epsilon / shift + 0.5 * shift) / math.sqrt(2.0))
    return near - math.exp(epsilon) * far


@kernel(borrows=True)
def gaussian_shift(epsilon: float, delta: float) -> float:
    """The largest shift that keeps epsilon and delta: sensitivity over standard deviation.

    >>> round(1 / gaussian_shift(1.0, 1e-5), 6)  # the published figure is 3.730632
    3.730632
    """
    low, high = 0.0, 1.0
    while gaussian_excess(high, epsilon) < delta:
        low, high = high, 2.0 * high
    for _ in range(100):
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        if gaussian_excess(middle, epsilon) <= delta:
            low = middle
        else:
            high = middle
    return low * _SPARE


def require_gaussian(terms: Terms) -> None:
    """Refuse terms that no Gaussian keeps."""
    if not (terms.delta > 0.0 and terms.epsilon <= _MOST_EPSILON):
        raise PrivacyError(
            f"epsilon = {terms.epsilon!r}, delta = {terms.delta!r}: Gaussian noise needs a delta "
            f"above 0 and an epsilon of at most {_MOST_EPSILON:g}; use Laplace noise otherwise"
        )


def gaussian_rounding_cost(epsilon: float, parts: int) -> float:
    """What the parts of an answer cost of epsilon; refuses an epsilon that is no more."""
    apart = _APART * parts
    if epsilon <= apart:
        raise PrivacyError(
            f"epsilon = {epsilon!r} is too small for exact Gaussian noise in {parts} parts; give "
            f"more than {apart:g}"
        )
    return apart


def exact_gaussian_vector(terms: Terms) -> list[float]:
    """The released answer of an array: OpenDP's discrete Gaussian on the grid."""
    positions, steps, step = vector_to_steps(terms.value, terms.sensitivity, 2.0)
    apart = gaussian_rounding_cost(terms.epsilon, len(positions))
    scale = steps / gaussian_shift(terms.epsilon - apart, terms.delta / (1.0 + apart))
    if scale < _LEAST_SCALE:
        raise PrivacyError(
            f"epsilon = {terms.epsilon!r} is so large that the grid would show; give less"
        )
    return [float(part * step) for part in discrete_gaussian(scale)(positions)]


def exact_gaussian(terms: Terms) -> float:
    """The released answer of a number."""
    (answer,) = exact_gaussian_vector(terms._replace(value=(float(terms.value),)))
    return answer


def gaussian_loss(apart: float, terms: Terms) -> Loss:
    """The shift of a value that moved by this much."""
    return Loss(shift=apart / terms.sensitivity * gaussian_shift(terms.epsilon, terms.delta))


def gaussian_law(terms: Terms) -> Any:
    """The law of the answer, or of the noise in each part of one."""
    require_extra("scipy", "the law of a mechanism")
    from scipy import stats

    centre = 0.0 if isinstance(terms.value, tuple) else terms.value
    return stats.norm(centre, terms.sensitivity / gaussian_shift(terms.epsilon, terms.delta))


@mechanism(
    "Gaussian",
    exact_gaussian,
    require=require_gaussian,
    loss=gaussian_loss,
    law=gaussian_law,
    borrows=True,
)
def gaussian_release(
    rng: Any, value: float, sensitivity: float, epsilon: float, delta: float
) -> float:
    """A value that one reward moves by at most `sensitivity`, with Gaussian noise."""
    scale = sensitivity / gaussian_shift(epsilon, delta)
    return float(value + scale * rng.standard_normal())


@mechanism(
    "Gaussian of an array",
    exact_gaussian_vector,
    require=require_gaussian,
    norm=2.0,
    loss=gaussian_loss,
    law=gaussian_law,
    borrows=True,
)
def gaussian_vector_release(
    rng: Any, value: np.ndarray, sensitivity: float, epsilon: float, delta: float, out: np.ndarray
) -> None:
    """An array that one reward moves by at most `sensitivity` in the L2 norm."""
    scale = sensitivity / gaussian_shift(epsilon, delta)
    for i in range(value.size):
        out[i] = value[i] + scale * rng.standard_normal()
