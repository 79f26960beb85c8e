"""Perturbed indices: the arm with the highest random index is played (Wang, Zhu 2024).

For each decision every arm gets a new index, which is compared and discarded. An observer sees only
the arm with the highest one. Here `value` is the mean of an arm's n rewards and `sensitivity` is
1/n, which gives the laws their n. Proofs, and why floating point is enough:
`perturbed_index.proof.md` beside this file.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from balaclava._core.extras import import_extra
from balaclava._core.kernels import kernel
from balaclava.errors import PrivacyError
from balaclava.privacy.exact_noise import LARGEST_EXPONENT, fresh_generator
from balaclava.privacy.mechanisms.base import Loss, Terms, mechanism, scipy_law

# Largest epsilon of the proof for the Beta index; larger ones count as this one.
_BETA_EPSILON = 20.0
# Pulls: a start phase this long never ends. Floats hold every integer up to it.
ENDLESS_START = 2.0**53


def gaussian_threshold(epsilon: float, delta: float) -> float:
    """min{1 / (4 pi delta^2), log(e / (4 pi delta^2)) / epsilon^2}."""
    log_first = -math.log(4.0 * math.pi) - 2.0 * math.log(delta)
    return _smaller(log_first, 1.0 + log_first, epsilon)


def beta_threshold(epsilon: float, delta: float) -> float:
    """max{min{40e / (9 pi delta^2), L / min(epsilon, 20)^2}, 1000e / (9 pi)}.

    L = 8000 log(e / (2 pi delta^2)) / 81.
    """
    log_square = -2.0 * math.log(delta)
    log_first = math.log(40.0 * math.e / (9.0 * math.pi)) + log_square
    second = 8000.0 / 81.0 * (1.0 - math.log(2.0 * math.pi) + log_square)
    shortest = 1000.0 * math.e / (9.0 * math.pi)
    return max(_smaller(log_first, second, min(epsilon, _BETA_EPSILON)), shortest)


def _smaller(log_first: float, second: float, epsilon: float) -> float:
    """min{exp(log_first), second / epsilon^2}, with infinity in place of an overflow."""
    first = math.exp(log_first) if log_first < LARGEST_EXPONENT else math.inf
    return min(first, second / epsilon / epsilon) if epsilon > 0.0 else first


def whole_pulls(threshold: float) -> int:
    """The threshold rounded up to a whole number of pulls, at least 1."""
    return max(1, math.ceil(min(threshold, ENDLESS_START)))


@kernel(borrows=True)
def draw_gaussian(rng: Any, mean: float, step: float) -> float:
    """N(mean, 2/n), where step is 1/n."""
    return float(mean + math.sqrt(2.0 * step) * rng.standard_normal())


@kernel(borrows=True)
def beta_shape(mean: float, step: float) -> tuple[float, float]:
    """The two parameters of the Beta index, where step is 1/n."""
    n = math.floor(1.0 / step + 0.5)
    successes = math.floor(mean * n + 0.5)
    extra = n // 8 + 2.0  # floor(n/8) + 1, and the 1 of the uniform prior
    return successes + extra, n - successes + extra


def require_pulls(law: str, threshold: Callable[[float, float], float], terms: Terms) -> None:
    """Refuse an index of fewer rewards than the threshold of its law."""
    pulls, least = math.floor(1.0 / terms.sensitivity + 0.5), threshold(terms.epsilon, terms.delta)
    if pulls < least:
        raise PrivacyError(
            f"a {law} index of {pulls} rewards does not keep this epsilon and delta; it needs at "
            f"least {math.ceil(least)} rewards: lengthen the start phase to that"
        )


def gaussian_index_loss(apart: float, terms: Terms) -> Loss:
    """The shift of the index, in its standard deviations."""
    return Loss(shift=apart / math.sqrt(2.0 * terms.sensitivity))


@mechanism(
    "Gaussian index",
    lambda terms: draw_gaussian(fresh_generator(), float(terms.value), terms.sensitivity),
    require=functools.partial(require_pulls, "Gaussian", gaussian_threshold),
    loss=gaussian_index_loss,
    law=lambda terms: scipy_law("norm", terms.value, math.sqrt(2.0 * terms.sensitivity)),
    borrows=True,
)
def gaussian_index(
    rng: Any, value: float, sensitivity: float, epsilon: float, delta: float
) -> float:
    """Draw an index around the mean of n >= `gaussian_threshold` rewards; sensitivity 1/n."""
    return draw_gaussian(rng, value, sensitivity)


@mechanism(
    "Beta index",
    lambda terms: fresh_generator().beta(*beta_shape(float(terms.value), terms.sensitivity)),
    require=functools.partial(require_pulls, "Beta", beta_threshold),
    law=lambda terms: BetaLaw(*beta_shape(float(terms.value), terms.sensitivity)),
    borrows=True,
)
def beta_index(rng: Any, value: float, sensitivity: float, epsilon: float, delta: float) -> float:
    """Draw an index around the mean of n >= `beta_threshold` rewards 0 or 1; sensitivity 1/n."""
    a, b = beta_shape(value, sensitivity)
    return float(rng.beta(a, b))


class IndexLaw(Protocol):
    """The law of an arm's index, vectorised like scipy's frozen distributions.

    `sf` is 1 - `cdf`, accurate for small values; `ppf` and `isf` are their inverses; `support` has
    the smallest and the largest index, infinite if unbounded.
    """

    def cdf(self, x: Any) -> Any: ...

    def sf(self, x: Any) -> Any: ...

    def ppf(self, p: Any) -> Any: ...

    def isf(self, p: Any) -> Any: ...

    def support(self) -> tuple[float, float]: ...


@dataclass(frozen=True)
class BetaLaw:
    """The Beta law, which an audit makes hundreds of times: scipy's is slow to make."""

    a: float
    b: float

    @property
    def _special(self) -> Any:
        return import_extra("scipy.special", "the law of a mechanism")

    def cdf(self, x: Any) -> Any:
        return self._special.betainc(self.a, self.b, np.clip(x, 0.0, 1.0))

    def sf(self, x: Any) -> Any:
        return self._special.betaincc(self.a, self.b, np.clip(x, 0.0, 1.0))

    def ppf(self, p: Any) -> Any:
        return self._special.betaincinv(self.a, self.b, p)

    def isf(self, p: Any) -> Any:
        return self._special.betainccinv(self.a, self.b, p)

    def support(self) -> tuple[float, float]:
        return 0.0, 1.0
