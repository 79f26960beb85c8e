"""Randomized response (Warner 1965), for rewards in [0, 1] (Ren, Zhou, Liu, Shroff 2020, CTB).

Report y = 1 with probability (x e^epsilon + 1 - x) / (1 + e^epsilon), otherwise y = 0.

Proof: `randomized_response.proof.md` beside this file.
"""

import math
from typing import Any

from balaclava._core.kernels import kernel
from balaclava.privacy.exact_noise import bernoulli, randomized_bit, to_unit_grid
from balaclava.privacy.mechanisms.base import Loss, Terms, mechanism, scipy_law


@kernel(borrows=True)
def report_probability(x: float, epsilon: float) -> float:
    lie = math.exp(-epsilon) / (1.0 + math.exp(-epsilon))
    return lie + x * (1.0 - 2.0 * lie)


def exact_bernoulli(terms: Terms) -> float:
    """Report a reward by an exact coin flip and OpenDP's randomized response."""
    x = to_unit_grid(min(max(terms.value, 0.0), 1.0))
    coin = bernoulli(*x.as_integer_ratio())
    return 1.0 if randomized_bit(terms.epsilon)(coin) else 0.0


def response_loss(one: Terms, other: Terms) -> Loss:
    """The largest log-ratio of an answer's probabilities."""
    chances = [report_probability(float(t.value), t.epsilon) for t in (one, other)]
    p, q = (min(max(chance, 0.0), 1.0) for chance in chances)
    if p == q:
        return Loss()
    if min(p, q) <= 0.0 or max(p, q) >= 1.0:
        return Loss(math.inf)
    return Loss(max(abs(math.log(p / q)), abs(math.log1p(-p) - math.log1p(-q))))


@mechanism(
    "randomized response",
    exact_bernoulli,
    local=True,
    loss_between=response_loss,
    law=lambda terms: scipy_law("bernoulli", report_probability(float(terms.value), terms.epsilon)),
    borrows=True,
)
def bernoulli_report(rng: Any, value: float, epsilon: float) -> float:
    """Report one reward in [0, 1] as 0 or 1."""
    return 1.0 if rng.random() < report_probability(value, epsilon) else 0.0
