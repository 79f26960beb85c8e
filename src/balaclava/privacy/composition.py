"""Composition: the privacy loss of many decisions, by several accountants that must agree.

A law describes the loss of one decision: `AnyMechanism` knows only an epsilon and a delta;
`RandomizedResponse`, `LaplaceNoise` and `GaussianNoise` know more. `compose` bounds the loss of
many decisions of one law by

- basic composition: (n epsilon, n delta)
- advanced composition
- a closed form: optimal composition, or the analytic Gaussian
- the Rényi (RDP) and privacy loss distribution (PLD) accountants of dp-accounting

and refuses if two of them contradict each other. Composition is adaptive throughout: a decision
may depend on all earlier ones.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple, Protocol

from balaclava._core.declared import Delta, Range, check, check_claim
from balaclava._core.extras import require_extra
from balaclava._core.number_format import rounded_down, rounded_up
from balaclava.errors import ParameterError, PrivacyError
from balaclava.privacy.accounting import (
    Decisions,
    advanced_epsilon,
    gaussian_epsilon,
    least_delta,
    optimal_epsilon,
    spare_delta,
    zcdp_to_approx_dp,
)
from balaclava.privacy.exact_noise import LARGEST_EXPONENT

# Relative difference allowed between accountants that should agree: covers the grid error of PLD.
ACCOUNTANT_TOLERANCE = 0.01
# Epsilon below which dp-accounting's formulas for pure mechanisms cancel to rounding errors.
SMALL_EPSILON = 1e-3
# Least delta that dp-accounting's Fourier transforms resolve: in all, and per decision.
PLD_DELTA, PLD_DELTA_EACH = 1e-10, 1e-13
Shift = Annotated[float, Range(1e-100, 1e6, "sensitivity / standard deviation")]

Role = Literal["lower", "exact", "numerical", "upper"]


class Bound(NamedTuple):
    """The epsilon that one accountant finds, and its relation to the true epsilon.

    Role "exact" equals it (in closed form), "numerical" approximates it (on a grid), "upper" and
    "lower" bound it.
    """

    method: str
    epsilon: float
    role: Role


class Law(Protocol):
    """The known privacy loss of one decision; hashable, since results are cached."""

    def __hash__(self) -> int: ...

    @property
    def scale(self) -> float:
        """Size of one decision's loss."""

    @property
    def lost(self) -> float:
        """Probability that one decision reveals everything."""

    def alone(self, delta: float) -> tuple[float, float]:
        """Epsilon and delta of one decision; epsilon is at `delta` if it depends on it."""

    def closed_forms(self, n: int, delta: float) -> list[Bound]:
        """Bounds for n decisions at `delta`, without dp-accounting."""

    def rdp_event(self) -> Any:
        """One decision as an event of dp-accounting's RDP accountant, without `lost`."""

    def pld(self, n: int) -> Any:
        """n decisions as dp-accounting's privacy loss distribution, or None."""


@dataclass(frozen=True)
class AnyMechanism:
    """A decision with a known epsilon and delta; the worst such mechanism is assumed."""

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        epsilon, delta = check_claim(self.epsilon, self.delta)
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "delta", delta)

    @property
    def scale(self) -> float:
        return self.epsilon

    @property
    def lost(self) -> float:
        return self.delta

    def alone(self, delta: float) -> tuple[float, float]:
        return self.epsilon, self.delta

    def closed_forms(self, n: int, delta: float) -> list[Bound]:
        epsilon = optimal_epsilon(self.epsilon, self.delta, n, delta)
        return [Bound("optimal composition", epsilon, "exact")]

    def rdp_event(self) -> Any:
        import dp_accounting

        if self.epsilon < SMALL_EPSILON:
            return dp_accounting.ZCDpEvent(rho=self.epsilon**2 / 2)
        noise = 2 / (1 + math.exp(self.epsilon))
        return dp_accounting.RandomizedResponseDpEvent(noise_parameter=noise, num_buckets=2)

    def pld(self, n: int) -> Any:
        # Not PLDAccountant: it ignores the count of randomized responses and has no generic event.
        # With steps of epsilon both losses lie on the grid, so nothing is rounded.
        from dp_accounting.pld import common, privacy_loss_distribution

        if self.epsilon == 0:
            return None
        claim = common.DifferentialPrivacyParameters(self.epsilon, self.delta)
        one = privacy_loss_distribution.from_privacy_parameters(claim, self.epsilon)
        return one.self_compose(n)


@dataclass(frozen=True)
class PureMechanism(AnyMechanism):
    """A decision with delta = 0."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.delta != 0:
            raise ParameterError(
                f"delta = {self.delta!r} is not allowed; {type(self).__name__} has delta = 0"
            )


@dataclass(frozen=True)
class RandomizedResponse(PureMechanism):
    """A bit reported truly with odds e^epsilon to 1: the worst pure mechanism."""


@dataclass(frozen=True)
class LaplaceNoise(PureMechanism):
    """A value with Laplace noise of scale sensitivity / epsilon."""

    def closed_forms(self, n: int, delta: float) -> list[Bound]:
        # Many releases have no closed form but two bounds. Laplace noise is epsilon-DP. Its output,
        # cut half way between the neighbours, is randomized response at log(2 e^(epsilon/2) - 1).
        half = self.epsilon / 2
        cut = half + math.log1p(-math.expm1(-half))
        bounds = [
            Bound("optimal composition", optimal_epsilon(self.epsilon, 0.0, n, delta), "upper"),
            Bound("output cut in two", optimal_epsilon(cut, 0.0, n, delta), "lower"),
        ]
        if n == 1:
            epsilon = max(self.epsilon + 2 * math.log1p(-delta), 0.0)
            bounds.append(Bound("Laplace", epsilon, "exact"))
        return bounds

    def rdp_event(self) -> Any:
        import dp_accounting

        if self.epsilon < SMALL_EPSILON:
            return dp_accounting.ZCDpEvent(rho=self.epsilon**2 / 2)
        return dp_accounting.LaplaceDpEvent(1 / self.epsilon)

    def pld(self, n: int) -> Any:
        if self.epsilon < SMALL_EPSILON:  # the two closed forms meet as epsilon goes to 0
            return None
        from dp_accounting.pld import privacy_loss_distribution

        # The error is of second order in a step and matters less with more decisions. The losses
        # of large epsilons lie within a few units of epsilon.
        step = min(self.epsilon, 5.0) / max(10.0, 2000 / math.sqrt(n))
        one = privacy_loss_distribution.from_laplace_mechanism(
            1 / self.epsilon, value_discretization_interval=step
        )
        return one.self_compose(n)


@dataclass(frozen=True)
class GaussianNoise:
    """A value with Gaussian noise; `shift` is sensitivity / standard deviation.

    The sensitivity is the largest move of the value by a change of one reward. dp-accounting is
    called with its default neighbours: for replace-one neighbours its PLD accountant doubles the
    sensitivity, and its RDP accountant does not.
    """

    shift: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "shift", check("shift", self.shift, Shift))

    @property
    def scale(self) -> float:
        return self.shift

    @property
    def lost(self) -> float:
        return 0.0

    def alone(self, delta: float) -> tuple[float, float]:
        return gaussian_epsilon(self.shift, delta), delta

    def closed_forms(self, n: int, delta: float) -> list[Bound]:
        shift = self.shift * math.sqrt(n)
        bounds = [Bound("analytic Gaussian", gaussian_epsilon(shift, delta), "exact")]
        if delta > 0:
            bounds.append(Bound("zCDP", zcdp_to_approx_dp(shift * shift / 2, delta), "upper"))
        return bounds

    def rdp_event(self) -> Any:
        import dp_accounting

        return dp_accounting.GaussianDpEvent(1 / self.shift)

    def pld(self, n: int) -> Any:
        from dp_accounting.pld import privacy_loss_distribution

        # n Gaussian releases are one of shift sqrt(n); composing them on a grid would round.
        deviation = 1 / (self.shift * math.sqrt(n))
        if deviation < 0.01:  # an epsilon in the thousands: not worth minutes
            return None
        return privacy_loss_distribution.from_gaussian_mechanism(
            deviation, value_discretization_interval=1 / (500 * deviation)
        )


@dataclass(frozen=True)
class Composition:
    """Bounds on the loss of `decisions` decisions at `delta`, by every accountant."""

    law: Law
    decisions: int
    delta: float
    bounds: tuple[Bound, ...]

    @property
    def best(self) -> Bound:
        """The least valid epsilon: the closed form if there is one."""
        exact = [bound for bound in self.bounds if bound.role == "exact"]
        valid = [bound for bound in self.bounds if bound.role != "lower"]
        return min(exact or valid, key=lambda bound: bound.epsilon)

    def epsilon(self, method: str) -> float:
        """Epsilon of one accountant; infinite if it does not apply.

        Args:
            method: its name in `bounds`, such as "basic", "advanced", "RDP" or "PLD".
        """
        return next((b.epsilon for b in self.bounds if b.method == method), math.inf)

    def __str__(self) -> str:
        delta = rounded_up(self.delta, ".3g")
        lines = [f"{self.decisions} decisions of {self.law} at delta = {delta}"]
        for bound in sorted(self.bounds, key=lambda bound: bound.epsilon):
            mark = "  <- best" if bound == self.best else ""
            write = rounded_down if bound.role == "lower" else rounded_up
            epsilon = write(bound.epsilon, ".6g")
            lines.append(f"  {bound.method:<20}{epsilon:>12}  {bound.role}{mark}")
        return "\n".join(lines)


def compose(law: Law, decisions: int, delta: float) -> Composition:
    """Bound the privacy loss of `decisions` decisions of one law, as an epsilon at `delta`.

    Args:
        law: the loss of one decision.
        decisions: their number.
        delta: delta of all decisions together.

    Returns:
        The bound of every accountant, and the best of them.

    Raises:
        ParameterError: if an argument is out of range.
        PrivacyError: if no epsilon reaches `delta`, or if two accountants contradict each other by
            more than 1 %: then one of them is wrong, and none is used.

    >>> composed = compose(AnyMechanism(0.1), 1000, 1e-6)
    >>> {bound.method: round(bound.epsilon, 2) for bound in composed.bounds}
    {'optimal composition': 19.34, 'basic': 100.0, 'advanced': 27.14, 'RDP': 20.45, 'PLD': 19.34}
    """
    return _composed(law, check("decisions", decisions, Decisions), check("delta", delta, Delta))


@lru_cache(maxsize=256)
def _composed(law: Law, n: int, delta: float) -> Composition:
    bounds = [*law.closed_forms(n, delta), *_split(law, n, delta)]
    if all(math.isinf(bound.epsilon) for bound in bounds):
        raise PrivacyError(
            f"delta = {delta!r} is too small for {n} decisions of {law}; give a delta above "
            f"{rounded_up(least_delta(law.lost, n))}, or fewer decisions"
        )
    bounds += _accountants(law, n, delta)
    bounds = [bound for bound in bounds if math.isfinite(bound.epsilon)]
    reconcile(bounds, law.scale)
    return Composition(law, n, delta, tuple(bounds))


def _split(law: Law, n: int, delta: float) -> list[Bound]:
    """Basic and advanced composition, from an epsilon and a delta of each decision."""
    each, lost = law.alone(delta / n)
    basic = n * each if n * lost <= delta * (1 + 1e-12) else math.inf
    each, lost = law.alone(delta / (2 * n))
    advanced = advanced_epsilon(each, n, delta - n * lost)
    return [Bound("basic", basic, "upper"), Bound("advanced", advanced, "upper")]


def _accountants(law: Law, n: int, delta: float) -> list[Bound]:
    spare = spare_delta(law.lost, n, delta)
    bounds = []
    if spare > 0:
        bounds.append(Bound("RDP", rdp_epsilon(law, n, spare), "upper"))
    if spare >= max(PLD_DELTA, PLD_DELTA_EACH * n):
        bounds.append(Bound("PLD", pld_epsilon(law, n, delta), "numerical"))
    return bounds


def rdp_epsilon(law: Law, decisions: int, delta: float) -> float:
    """Epsilon by dp-accounting's RDP accountant; infinite if e^epsilon overflows."""
    if law.scale >= LARGEST_EXPONENT:
        return math.inf
    require_extra("dp_accounting", "composing decisions")
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    event = law.rdp_event()
    bit = isinstance(event, dp_accounting.RandomizedResponseDpEvent)
    relation = dp_accounting.NeighboringRelation
    neighbours = relation.REPLACE_ONE if bit else relation.ADD_OR_REMOVE_ONE
    accountant = RdpAccountant(neighboring_relation=neighbours)
    return float(accountant.compose(event, decisions).get_epsilon(delta))


def pld_epsilon(law: Law, decisions: int, delta: float) -> float:
    """Epsilon by dp-accounting's privacy loss distribution; infinite if there is none."""
    losses = None if law.scale >= LARGEST_EXPONENT else law.pld(decisions)
    return math.inf if losses is None else float(losses.get_epsilon_for_delta(delta))


def reconcile(bounds: list[Bound], scale: float = 0.0) -> None:
    """Refuse bounds that differ by more than 1 %, or 1 % of one decision's loss `scale` near 0."""
    for low in bounds:
        for high in bounds:
            ordered = low is not high and low.role != "upper" and high.role != "lower"
            allowed = ACCOUNTANT_TOLERANCE * max(high.epsilon, scale)
            if ordered and low.epsilon - high.epsilon > allowed:
                raise PrivacyError(
                    f"two accountants disagree: {high.method} ({high.role}) gives epsilon = "
                    f"{high.epsilon:.6g}, but {low.method} ({low.role}) gives {low.epsilon:.6g}; "
                    "one is wrong, so neither is used; check the version of dp-accounting"
                )
