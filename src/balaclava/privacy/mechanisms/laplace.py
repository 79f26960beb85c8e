"""The Laplace mechanism (Dwork, McSherry, Nissim, Smith 2006).

Answer value + w, where w has density exp(-|w| / b) / (2 b) and b = sensitivity / epsilon.

Proof.
    Two inputs at most `sensitivity` apart give densities whose ratio at any answer is at most
    exp(sensitivity / b) = exp(epsilon): epsilon-differential privacy, for every event. Used once
    by the owner of a reward, whose values lie within a width, the same bound holds between any
    two rewards: epsilon-local privacy. The released form adds discrete Laplace noise,
    P(k) proportional to exp(-epsilon |k| / m), to a whole number of grid steps that moves by at
    most m; the ratio is at most exp(epsilon) again, and OpenDP's privacy map, which rounds
    upwards, confirms it for the scale in use. `secure` shows that rounding to the grid is free.

    An array that one reward moves by at most `sensitivity` in the L1 norm gets independent noise
    of that scale in each part: the logarithms of the ratios add up to at most epsilon. Rounding
    d parts moves their distance by d steps at most, which are added to m.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from balaclava._core.extras import require_extra
from balaclava._core.kernels import kernel
from balaclava.privacy.exact_noise import discrete_laplace, to_steps, vector_to_steps
from balaclava.privacy.mechanisms.base import Terms, mechanism, proportional_loss


def exact_laplace(terms: Terms) -> float:
    """The released answer: OpenDP's discrete Laplace on the grid."""
    position, steps, step = to_steps(terms.value, terms.sensitivity)
    (answer,) = discrete_laplace(steps, terms.epsilon)([position])
    return float(answer * step)


def exact_laplace_vector(terms: Terms) -> list[float]:
    """The released answer of an array: one draw for each part."""
    positions, steps, step = vector_to_steps(terms.value, terms.sensitivity, 1.0)
    answer = discrete_laplace(steps, terms.epsilon)(positions)
    return [float(part * step) for part in answer]


def laplace_law(terms: Terms) -> Any:
    """The law of the answer, or of the noise in each part of one."""
    require_extra("scipy", "the law of a mechanism")
    from scipy import stats

    centre = 0.0 if isinstance(terms.value, tuple) else terms.value
    return stats.laplace(centre, terms.sensitivity / terms.epsilon)


@mechanism("Laplace", exact_laplace, loss=proportional_loss, law=laplace_law, borrows=True)
def laplace_release(rng: Any, value: float, sensitivity: float, epsilon: float) -> float:
    """A value that one reward moves by at most `sensitivity`, with noise of all sizes."""
    return float(value + rng.laplace(0.0, sensitivity / epsilon))


@mechanism(
    "Laplace report",
    exact_laplace,
    local=True,
    loss=proportional_loss,
    law=laplace_law,
    borrows=True,
)
def laplace_report(rng: Any, value: float, sensitivity: float, epsilon: float) -> float:
    """One reward, as its owner reports it; any two rewards are at most `sensitivity` apart."""
    return float(value + rng.laplace(0.0, sensitivity / epsilon))


@mechanism(
    "Laplace of an array",
    exact_laplace_vector,
    loss=proportional_loss,
    law=laplace_law,
    borrows=True,
)
def laplace_vector_release(
    rng: Any, value: np.ndarray, sensitivity: float, epsilon: float, out: np.ndarray
) -> None:
    """An array that one reward moves by at most `sensitivity` in the L1 norm."""
    for i in range(value.size):
        out[i] = value[i] + rng.laplace(0.0, sensitivity / epsilon)


@kernel(borrows=True)
def private_argmax_histogram(rng: Any, counts: np.ndarray, epsilon: float) -> int:
    """The bin that seems fullest; `counts` hold each record at most once."""
    fullest, most = 0, -math.inf
    for j in range(counts.size):
        count = laplace_release(rng, float(counts[j]), 1.0, 0.5 * epsilon)
        if count > most:
            fullest, most = j, count
    return fullest
