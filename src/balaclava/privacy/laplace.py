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
"""

from __future__ import annotations

from typing import Any

from balaclava.privacy.mechanism import Terms, mechanism
from balaclava.privacy.secure import discrete_laplace, to_steps


def exact_laplace(terms: Terms) -> float:
    """The released answer: OpenDP's discrete Laplace on the grid."""
    position, steps, step = to_steps(terms.value, terms.sensitivity)
    (answer,) = discrete_laplace(steps, terms.epsilon)([position])
    return float(answer * step)


@mechanism("Laplace", exact_laplace, borrows=True)
def laplace_release(rng: Any, value: float, sensitivity: float, epsilon: float) -> float:
    """A value that one reward moves by at most `sensitivity`, with noise of all sizes."""
    return float(value + rng.laplace(0.0, sensitivity / epsilon))


@mechanism("Laplace report", exact_laplace, local=True, borrows=True)
def laplace_report(rng: Any, value: float, sensitivity: float, epsilon: float) -> float:
    """One reward, as its owner reports it; any two rewards are at most `sensitivity` apart."""
    return float(value + rng.laplace(0.0, sensitivity / epsilon))
