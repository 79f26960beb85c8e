"""Laplace noise of two servers: either noise is enough.

Answer value + v + w, where v and w are independent and have density exp(-|v| / b) / (2 b) with
b = sensitivity / epsilon. Each server adds one of them to its share of the value. A server knows
its own noise, so that the other server's alone protects the value from it.

The sum of both noises, in units of b, has for x >= 0 the density and the tail

    f(x) = (1 + x) exp(-x) / 4,    P(v + w > x) = (1 + x/2) exp(-x) / 2.

Proof: `split_laplace.proof.md` beside this file.
"""

import math
from typing import Any

import numpy as np

from balaclava._core.kernels import kernel
from balaclava.privacy.exact_noise import to_steps
from balaclava.privacy.mechanisms.base import Terms, mechanism, proportional_loss
from balaclava.privacy.secret_shares import combine, modulus_bits, shared_release

# Chance that the modulus of an exact release wraps.
_RELEASE_WRAPS = 2.0**-60
# Newton's method doubles the correct digits in each step, from a first digit on.
_QUANTILE_STEPS = 8


@kernel(borrows=True)
def two_noises_quantile(nats: float) -> float:
    """The x with (1 + x/2) exp(-x) = exp(-nats): what both noises exceed with half that chance.

    For a single noise it is `nats` itself; here it lies between that and twice that.
    g(x) = x - log(1 + x/2) - nats is convex and increases, so that from the first step on Newton's
    method comes from above.

    >>> round(two_noises_quantile(3.0), 4)
    4.1181
    """
    x = nats + math.log1p(0.5 * nats)
    for _ in range(_QUANTILE_STEPS):
        x -= (x - math.log1p(0.5 * x) - nats) * (2.0 + x) / (1.0 + x)
    return max(x, nats)


class TwoLaplaceLaw:
    """The law of an answer: a centre plus two independent Laplace noises of a scale."""

    def __init__(self, centre: float, scale: float) -> None:
        self.centre, self.scale = centre, scale

    def support(self) -> tuple[float, float]:
        return -math.inf, math.inf

    def sf(self, x: Any) -> Any:
        u = (np.asarray(x, float) - self.centre) / self.scale
        size = np.abs(u)
        beyond = 0.5 * (1.0 + 0.5 * size) * np.exp(-size)
        return np.where(u >= 0.0, beyond, 1.0 - beyond)[()]

    def cdf(self, x: Any) -> Any:
        return self.sf(2.0 * self.centre - np.asarray(x, float))

    def isf(self, chance: Any) -> Any:
        p = np.asarray(chance, float)
        nats = -np.log(2.0 * np.minimum(p, 1.0 - p))
        u = np.array([two_noises_quantile(each) for each in nats.ravel()]).reshape(p.shape)
        return (self.centre + self.scale * np.where(p < 0.5, u, -u))[()]

    def ppf(self, chance: Any) -> Any:
        return 2.0 * self.centre - self.isf(chance)


def two_laplace_law(terms: Terms) -> TwoLaplaceLaw:
    return TwoLaplaceLaw(terms.value, terms.sensitivity / terms.epsilon)


def exact_split_laplace(terms: Terms) -> float:
    """Release a number by the protocol of two servers, with the number as a device's."""
    position, steps, step = to_steps(terms.value, terms.sensitivity)
    values = abs(position) // steps + 1  # as many rewards would reach it
    bits = modulus_bits(values, steps, terms.epsilon, _RELEASE_WRAPS)
    one, other = shared_release([position], steps, terms.epsilon, bits)
    return float(combine(one.releases[0], other.releases[0], bits) * step)


@mechanism(
    "split Laplace",
    exact_split_laplace,
    loss=proportional_loss,
    law=two_laplace_law,
    views=shared_release,
    borrows=True,
)
def split_laplace_release(rng: Any, value: float, sensitivity: float, epsilon: float) -> float:
    """Release a sum that two servers hold in shares, each with full noise."""
    # Simulation only: agents run `exact_split_laplace`, servers `secret_shares.noisy_sum`.
    scale = sensitivity / epsilon
    return float(value + rng.laplace(0.0, scale) + rng.laplace(0.0, scale))
