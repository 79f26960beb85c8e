"""Proved regret of the private policies for experts (Asi, Raman, Talwar 2025, Table 1)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from balaclava._core.declared import Arms, Delta, Epsilon, Experts, Horizon
from balaclava._core.docstrings import checked
from balaclava._core.number_format import rounded_up
from balaclava.advice.choose.scale_search import least_proved_bound
from balaclava.errors import ParameterError
from balaclava.policies.base import POLICIES, Policy

# Scales tried with `tuned`: four per factor of 2. A finer grid lowers a bound by less than 1 %.
_LEARNING_RATE_SCALES = (1.0, *(2.0 ** (i / 4) for i in range(-40, 41)))
_EXPERT_POLICIES = ("dp-htinf-experts", "ldp-exp4", "dp-exp4")


@dataclass(frozen=True)
class ExpertPolicyBound:
    """A policy for experts, and the regret proved for it or the reason that there is none.

    `learning_rate_scale` has the least bound; privacy does not depend on it.
    """

    policy: str
    guarantee: str
    bound: float | None
    learning_rate_scale: float = 1.0
    why_not: str = ""

    def __str__(self) -> str:
        if self.bound is None:
            return f"no bound: {self.why_not}"
        scale = f"; learning_rate_scale={self.learning_rate_scale:.3g}"
        promise = f"{self.guarantee}{scale if self.learning_rate_scale != 1.0 else ''}"
        return f"regret at most {rounded_up(self.bound, ',.0f')} ({promise})"


@dataclass(frozen=True)
class ExpertsRecommendation:
    """Private policies for experts, least proved regret first.

    Attributes:
        horizon: rounds.
        candidates: the policies with their bounds.
    """

    horizon: int
    candidates: tuple[ExpertPolicyBound, ...]

    @property
    def policy(self) -> str | None:
        """The policy with the least bound; None if nothing is proved."""
        first = self.candidates[0]
        return first.policy if first.bound is not None else None

    @property
    def empty(self) -> bool:
        """Whether no bound is below the horizon, which even the worst policy does not exceed."""
        bound = self.candidates[0].bound
        return bound is None or bound >= self.horizon

    def __str__(self) -> str:
        width = max(len(candidate.policy) for candidate in self.candidates)
        lines = [f"{candidate.policy:{width}}  {candidate}" for candidate in self.candidates]
        if self.empty:
            lines.append(
                f"No bound is below the horizon of {self.horizon:,}, so nothing is promised. Raise "
                "horizon or epsilon, or use fewer experts; simulate to see the regret."
            )
        else:
            lines.append(f"Take {self.policy}. Bounds are for the worst losses; simulate yours.")
        return "\n".join(lines)


@checked
def recommend_experts(
    arms: Arms,
    experts: Experts,
    horizon: Horizon,
    epsilon: Epsilon,
    *,
    delta: Delta | None = None,
    tuned: bool = False,
) -> ExpertsRecommendation:
    """Compare the proved regret of the private policies for experts, constants included.

    Up to logarithms, dp-htinf-experts grows as sqrt(N T / epsilon), ldp-exp4 as
    sqrt(K T) / epsilon and dp-exp4 as N^(1/6) K^(1/2) T^(2/3) / epsilon^(1/3). So they suit, in
    turn: few experts; many at an epsilon near 1; many at a small epsilon and a long horizon.

    Their guarantees differ: ldp-exp4 also protects each loss from the operator; dp-exp4 needs a
    delta.

    Note:
        A bound is not the regret. The paper's learning rate for ldp-exp4 is at least ten times too
        low, because its proof overstates the noise. Use the scale that `tuned=True` finds; its
        bound is proved too. dp-htinf-experts stays far below its bound, so a tuned bound is not a
        reason to prefer another policy (`balaclava reproduce asi2025-table2`).

    Args:
        delta: probability outside it, for dp-exp4 only; 1/horizon by default, 0 excludes dp-exp4.
        tuned: search for the learning rate with the least bound instead of taking the paper's.

    Returns:
        The policies with their bounds, least first.

    Example:
        >>> import balaclava as bl
        >>> print(bl.recommend_experts(5, 20, 10**6, 1.0, delta=1e-5))
        dp-htinf-experts  regret at most 232,380 (ε=1 per trajectory)
        ldp-exp4          regret at most 330,013 (ε=1 per report)
        dp-exp4           regret at most 649,610 (ε=1, δ=1e-05 per trajectory)
        Take dp-htinf-experts. Bounds are for the worst losses; simulate yours.
        >>> bl.recommend_experts(5, 20, 10**6, 1.0, tuned=True).candidates[0].learning_rate_scale
        11.313708498984761
    """
    shared: dict[str, Any] = dict(arms=arms, experts=experts, horizon=horizon, epsilon=epsilon)
    delta = 1.0 / horizon if delta is None else delta
    scales = _LEARNING_RATE_SCALES if tuned else (1.0,)
    candidates = [_expert_policy_bound(name, shared, delta, scales) for name in _EXPERT_POLICIES]
    candidates.sort(key=lambda one: (one.bound is None, one.bound or 0.0))
    return ExpertsRecommendation(horizon, tuple(candidates))


def _expert_policy_bound(
    name: str, shared: dict[str, Any], delta: float, scales: Iterable[float]
) -> ExpertPolicyBound:
    """The policy at the scale with the least bound."""
    if name == "dp-exp4":
        shared = {**shared, "delta": delta}
    refusals: list[str] = []

    def policies() -> Iterator[Policy]:
        for scale in scales:
            try:
                yield POLICIES.create(name, {**shared, "learning_rate_scale": scale})
            except ParameterError as error:
                refusals.append(str(error))

    best = least_proved_bound(policies(), None, shared["horizon"])
    if best is None:
        why_not = refusals[-1] if refusals else "its theorem is for epsilon up to 1"
        return ExpertPolicyBound(name, "", None, why_not=why_not)
    policy, bound = best
    scale = policy.parameters["learning_rate_scale"]
    return ExpertPolicyBound(name, str(policy.guarantee), bound, scale)
