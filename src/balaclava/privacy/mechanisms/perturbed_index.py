"""Perturbed indices: the arm with the highest random index is played (Wang, Zhu 2024).

For each decision every arm gets a new index, which is compared and discarded. An observer sees
only the arm with the highest one, so each law need only satisfy, for one changed reward,

    F(x) <= exp(epsilon) F'(x) + delta  and  1 - F(x) <= exp(epsilon) (1 - F'(x)) + delta

at every x (Lemma 8): given the other arms' indices, the decision reveals whether this index is
above or below a fixed number. Here `value` is the mean of an arm's n rewards and `sensitivity` is
1/n, which gives the laws their n.

Proof for the Gaussian index N(mean, 2/n).
    A reward moves the mean by at most 1/n. The mass between x and x + 1/n is at most 1/n times the
    highest density: 1 / sqrt(4 pi n). It is at most delta from n = 1 / (4 pi delta^2) on: enough
    for any epsilon. For fewer rewards split at the x* where that mass is delta. Below x* the first
    argument holds. Above it the ratio of the densities is at most exp(epsilon) from
    n = log(e / (4 pi delta^2)) / epsilon^2 on (Theorem 11). `gaussian_threshold` is the smaller of
    the two, and both conditions become weaker as n grows. The ratio of the densities is monotone,
    so half-lines are the worst events and the claim holds for every event.

Proof for the Beta index, for rewards 0 and 1 (Theorem 13).
    One more success turns Beta(a, b + 1) into Beta(a + 1, b), whose ratio of densities,
    proportional to (1 - x) / x, is monotone again. Let m = a + b. Adding floor(n/8) + 1 to both
    counts keeps a/m and b/m in [0.1, 0.9] and m above 1.25 n. F - F' = C(m, a) x^a (1 - x)^b is at
    most sqrt(e m / (2 pi a b)) (Stirling), which is at most delta from n = 40e / (9 pi delta^2) on.
    F - exp(epsilon) F' is largest where the densities' ratio is exp(epsilon), and there
    F - F' <= exp(-m k), k = log(0.1 + 0.9 exp(epsilon)) - 0.9 epsilon: it is
    C(m, a) (a/m)^a (b/m)^b <= 1 times a power that is largest for b = 0.9 m. From the second
    threshold on m >= L / (0.0081 epsilon^2), L = log(e / (2 pi delta^2)), and for epsilon <= 20
    k is at least 0.584 * 0.0081 epsilon^2: m k >= log(1/delta) for delta up to 0.05. Up to 0.2, k
    is above 0.68 * 0.0081 epsilon^2 or above 1, which is enough as m >= 124. From 0.2 on the
    first bound is enough, for the same reason. `beta_threshold` takes epsilon as 20 beyond that.
    (The printed proof loses a factor (1 + 0.9 epsilon)^2; see errata, Wang 5.)

The truncated Laplace index is a release by the truncated Laplace mechanism, which has the proof.

In a released run the Gaussian and the Beta index are drawn in floating point, with fresh entropy
of the operating system for each draw. That is acceptable because an index is never published: its
last bits affect a decision only if two indices agree in all other bits.
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
