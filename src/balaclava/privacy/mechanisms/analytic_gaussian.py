"""The Gaussian mechanism with its exact calibration (Balle, Wang 2018), for numbers and arrays.

Answer value + w, where the elements of w are independent N(0, (s / m)^2), s is the sensitivity in
the L2 norm, and the shift m is the largest with

    Phi(m/2 - epsilon/m) - exp(epsilon) Phi(-m/2 - epsilon/m) <= delta.

Proof: `analytic_gaussian.proof.md` beside this file.
"""

import math
from typing import Any

import numpy as np

from balaclava._core.kernels import kernel
from balaclava.errors import PrivacyError
from balaclava.privacy import exact_noise
from balaclava.privacy.mechanisms.base import Loss, Terms, mechanism, scipy_law

# Extra epsilon, and relative delta, of an element's discrete Gaussian; the proof needs 2.4e-6.
_ELEMENT_EPSILON = 4e-6
# Least standard deviation in grid steps, for that proof; twice as much would allow 1e-6.
_LEAST_GAUSSIAN_SCALE = 2.0**14
# Factor on the shift, for the float rounding of `gaussian_excess`.
_SHIFT_MARGIN = 1.0 - 1e-9


@kernel(borrows=True)
def gaussian_excess(shift: float, epsilon: float) -> float:
    """Phi(m/2 - epsilon/m) - exp(epsilon) Phi(-m/2 - epsilon/m), m = `shift`."""
    near = 0.5 * math.erfc((epsilon / shift - 0.5 * shift) / math.sqrt(2.0))
    far = 0.5 * math.erfc((epsilon / shift + 0.5 * shift) / math.sqrt(2.0))
    return near - math.exp(epsilon) * far


@kernel(borrows=True)
def gaussian_shift(epsilon: float, delta: float) -> float:
    """Largest ratio of sensitivity to standard deviation that keeps epsilon and delta.

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
    return low * _SHIFT_MARGIN


def require_gaussian(terms: Terms) -> None:
    """Refuse terms that no Gaussian keeps."""
    if not (terms.delta > 0.0 and terms.epsilon <= exact_noise.LARGEST_EXPONENT):
        raise PrivacyError(
            f"epsilon = {terms.epsilon!r}, delta = {terms.delta!r}: Gaussian noise needs a delta "
            f"above 0 and an epsilon of at most {exact_noise.LARGEST_EXPONENT:g}; use Laplace "
            "noise otherwise"
        )


def exact_gaussian_scale(steps: int, epsilon: float, delta: float, elements: int) -> float:
    """Standard deviation, in grid steps, of exact noise on an array.

    Raises:
        PrivacyError: if exact noise cannot keep these. The message continues "epsilon = x".
    """
    cost = _ELEMENT_EPSILON * elements
    if epsilon <= cost:
        raise PrivacyError(
            f"is too small for exact Gaussian noise on {elements} elements; give more than {cost:g}"
        )
    scale = steps / gaussian_shift(epsilon - cost, delta / (1.0 + cost))
    if scale < _LEAST_GAUSSIAN_SCALE:
        raise PrivacyError(
            "gives noise too small for the grid of exact Gaussian noise; lower epsilon, or set "
            "delta = 0 for Laplace noise"
        )
    return scale


def group_epsilon(shift: float, delta: float, rewards: int) -> float:
    """Epsilon at `delta` of Gaussian releases that so many rewards move, exact noise included.

    `shift` is the root of the sum of squared shifts of all releases. Infinite beyond
    LARGEST_EXPONENT.

    >>> round(group_epsilon(gaussian_shift(1.0, 1e-6), 1e-6, 1), 4)
    1.0
    """
    cost = _ELEMENT_EPSILON * rewards
    target, low, high = delta * math.exp(-cost), 0.0, exact_noise.LARGEST_EXPONENT
    if not gaussian_excess(shift, high) <= target:
        return math.inf
    for _ in range(200):
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        low, high = (low, middle) if gaussian_excess(shift, middle) <= target else (middle, high)
    return high + cost


def released_deviation(epsilon: float, delta: float) -> float:
    """Standard deviation of the released noise at sensitivity 1, at least that of simulations."""
    _, steps, step = exact_noise.vector_to_steps((0.0,), 1.0, 2.0)
    return exact_gaussian_scale(steps, epsilon, delta, 1) * float(step)


def gaussian_fault(epsilon: float, delta: float, elements: int) -> str:
    """Why exact noise on an array cannot keep these, after "epsilon = x"; "" if it can.

    Policies call it when they are created, before there is a reward.
    """
    if epsilon > exact_noise.LARGEST_EXPONENT:
        return f"is too large for Gaussian noise; give at most {exact_noise.LARGEST_EXPONENT:g}"
    try:
        exact_gaussian_scale(2**exact_noise.GRID_BITS, epsilon, delta, elements)  # the fewest steps
    except PrivacyError as error:
        return str(error)
    return ""


def exact_gaussian_vector(terms: Terms) -> list[float]:
    """Release an array with OpenDP's discrete Gaussian noise on the grid."""
    positions, steps, step = exact_noise.vector_to_steps(terms.value, terms.sensitivity, 2.0)
    try:
        scale = exact_gaussian_scale(steps, terms.epsilon, terms.delta, len(positions))
    except PrivacyError as error:
        raise PrivacyError(f"epsilon = {terms.epsilon!r} {error}") from None
    return [float(part * step) for part in exact_noise.discrete_gaussian(scale)(positions)]


def exact_gaussian(terms: Terms) -> float:
    (answer,) = exact_gaussian_vector(terms._replace(value=(float(terms.value),)))
    return answer


def gaussian_loss(apart: float, terms: Terms) -> Loss:
    """The shift of a value that moved by the distance `apart`."""
    return Loss(shift=apart / terms.sensitivity * gaussian_shift(terms.epsilon, terms.delta))


def gaussian_law(terms: Terms) -> Any:
    """The law of a number's answer, or of the noise in each element of an array."""
    centre = 0.0 if isinstance(terms.value, tuple) else terms.value
    deviation = terms.sensitivity / gaussian_shift(terms.epsilon, terms.delta)
    return scipy_law("norm", centre, deviation)


# Declared of every Gaussian mechanism.
_GAUSSIAN_DECLARED: dict[str, Any] = {"require": require_gaussian, "loss": gaussian_loss}
_GAUSSIAN_DECLARED |= {"law": gaussian_law, "borrows": True}


@mechanism("Gaussian", exact_gaussian, **_GAUSSIAN_DECLARED)
def gaussian_release(
    rng: Any, value: float, sensitivity: float, epsilon: float, delta: float
) -> float:
    """Release a value that one reward moves by at most `sensitivity`."""
    scale = sensitivity / gaussian_shift(epsilon, delta)
    return float(value + scale * rng.standard_normal())


@mechanism("Gaussian of an array", exact_gaussian_vector, norm=2.0, **_GAUSSIAN_DECLARED)
def gaussian_vector_release(
    rng: Any, value: np.ndarray, sensitivity: float, epsilon: float, delta: float, out: np.ndarray
) -> None:
    """Release an array that one reward moves by at most `sensitivity` in the L2 norm."""
    scale = sensitivity / gaussian_shift(epsilon, delta)
    for i in range(value.size):
        out[i] = value[i] + scale * rng.standard_normal()
