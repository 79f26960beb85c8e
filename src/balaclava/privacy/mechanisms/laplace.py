"""The Laplace mechanism (Dwork, McSherry, Nissim, Smith 2006).

Answer value + w, where w has density exp(-|w| / b) / (2 b) and b = sensitivity / epsilon.

Proof: `laplace.proof.md` beside this file.
"""

import math
from typing import Any

import numpy as np

from balaclava._core.kernels import kernel
from balaclava.privacy.exact_noise import discrete_laplace, to_steps, vector_to_steps
from balaclava.privacy.mechanisms.base import Terms, mechanism, proportional_loss, scipy_law


def exact_laplace(terms: Terms) -> float:
    """Release a number with OpenDP's discrete Laplace noise on the grid."""
    position, steps, step = to_steps(terms.value, terms.sensitivity)
    (answer,) = discrete_laplace(steps, terms.epsilon)([position])
    return float(answer * step)


def exact_laplace_vector(terms: Terms) -> list[float]:
    positions, steps, step = vector_to_steps(terms.value, terms.sensitivity, 1.0)
    answer = discrete_laplace(steps, terms.epsilon)(positions)
    return [float(part * step) for part in answer]


def laplace_tail(sensitivity: float, epsilon: float, probability: float) -> float:
    """Distance from the value that an exact answer exceeds with at most this probability.

    With a = epsilon / m the noise k has P(|k| >= n) = 2 e^(-a n) / (1 + e^-a). For reports of
    values between two limits: the probability to exceed the upper limit by n steps or the lower one
    is at most e^(-a n) (1 + e^-epsilon) / (1 + e^-a) <= e^(-a n), since a <= epsilon.
    """
    _, steps, step = to_steps(0.0, sensitivity)
    scale = float(steps * step) / epsilon * (1.0 + 1e-9)  # OpenDP's may be larger by 2^-47
    return scale * -math.log(probability)


def laplace_law(terms: Terms) -> Any:
    """The law of a number's answer, or of the noise in each element of an array."""
    centre = 0.0 if isinstance(terms.value, tuple) else terms.value
    return scipy_law("laplace", centre, terms.sensitivity / terms.epsilon)


# Declared of every Laplace mechanism.
_LAPLACE_DECLARED: dict[str, Any] = {"loss": proportional_loss, "law": laplace_law, "borrows": True}


@mechanism("Laplace", exact_laplace, **_LAPLACE_DECLARED)
def laplace_release(rng: Any, value: float, sensitivity: float, epsilon: float) -> float:
    """Release a value that one reward moves by at most `sensitivity`."""
    # Simulation only: agents and the service run `exact_laplace`.
    return float(value + rng.laplace(0.0, sensitivity / epsilon))


@mechanism("Laplace report", exact_laplace, local=True, **_LAPLACE_DECLARED)
def laplace_report(rng: Any, value: float, sensitivity: float, epsilon: float) -> float:
    """Report one reward; any two rewards are at most `sensitivity` apart."""
    return float(value + rng.laplace(0.0, sensitivity / epsilon))


@mechanism("Laplace of an array", exact_laplace_vector, **_LAPLACE_DECLARED)
def laplace_vector_release(
    rng: Any, value: np.ndarray, sensitivity: float, epsilon: float, out: np.ndarray
) -> None:
    """Release an array that one reward moves by at most `sensitivity` in the L1 norm."""
    for i in range(value.size):
        out[i] = value[i] + rng.laplace(0.0, sensitivity / epsilon)


@kernel(borrows=True)
def private_argmax_histogram(rng: Any, counts: np.ndarray, epsilon: float) -> int:
    """Index of the largest noisy count; each record is in at most one of the `counts`."""
    fullest, most = 0, -math.inf
    for j in range(counts.size):
        count = laplace_release(rng, float(counts[j]), 1.0, 0.5 * epsilon)
        if count > most:
            fullest, most = j, count
    return fullest
