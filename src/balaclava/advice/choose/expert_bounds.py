"""Which private policy for experts promises the least regret (Asi, Raman, Talwar 2025, Table 1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from balaclava._core.declared import Arms, Delta, Epsilon, Experts, Horizon, check
from balaclava._core.number_format import rounded_up
from balaclava.errors import ParameterError
from balaclava.policies.base import REGISTRY

LEARNING_RATE_SCALES = (1.0, *(2.0 ** (i / 4) for i in range(-40, 41)))
EXPERT_POLICIES = ("dp-htinf-experts", "ldp-exp4", "dp-exp4")


@dataclass(frozen=True)
class ExpertPolicyBound:
    """A policy, and the regret that is proved for it or why there is none.

    `learning_rate_scale` is the one whose bound is least; it never touches privacy.
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
    """The candidates by their bounds, least first. `policy` is the first, or None."""

    horizon: int
    candidates: tuple[ExpertPolicyBound, ...]

    @property
    def policy(self) -> str | None:
        """The policy with the least bound; None if no bound is known."""
        first = self.candidates[0]
        return first.policy if first.bound is not None else None

    @property
    def empty(self) -> bool:
        """Whether no bound is below the horizon, which is what the worst policy loses."""
        bound = self.candidates[0].bound
        return bound is None or bound >= self.horizon

    def __str__(self) -> str:
        width = max(len(candidate.policy) for candidate in self.candidates)
        lines = [f"{candidate.policy:{width}}  {candidate}" for candidate in self.candidates]
        if self.empty:
            lines.append(
                f"None is below the horizon of {self.horizon:,}: nothing is promised here. Raise "
                "horizon or epsilon, or have fewer experts; simulate to see what they do."
            )
        else:
            lines.append(f"Take {self.policy}. Bounds are for the worst losses; simulate yours.")
        return "\n".join(lines)


def recommend_experts(
    arms: int,
    experts: int,
    horizon: int,
    epsilon: float,
    *,
    delta: float | None = None,
    tuned: bool = False,
) -> ExpertsRecommendation:
    """Compare the proved regret of the private policies for experts, constants included.

    Up to logarithms, dp-htinf-experts grows as sqrt(N T / epsilon), ldp-exp4 as
    sqrt(K T) / epsilon and dp-exp4 as N^(1/6) K^(1/2) T^(2/3) / epsilon^(1/3): in turn for few
    experts, for many at an epsilon near 1, and for many at a small epsilon and a long horizon.

    They do not promise the same: ldp-exp4 protects each loss from the operator too, dp-exp4 needs
    a delta.

    A bound is not what a policy does. The paper's learning rate for ldp-exp4 is ten and more times
    too low, since its proof overstates the noise: whenever you take ldp-exp4, take the scale that
    `tuned=True` finds, at which its bound is proved as well. dp-htinf-experts stays far below its
    bound, whose constant is 30, so that a tuned bound is no reason to prefer another to it. Where
    one expert is good, it has the least regret of all with up to 16 experts, and ldp-exp4, tuned,
    with 64 and more (`balaclava reproduce asi2025-table2`).

    Args:
        arms: K.
        experts: N.
        horizon: T.
        epsilon: privacy loss.
        delta: probability outside it, for dp-exp4 only; 1/horizon by default, and with 0 it is
            left out.
        tuned: find for each the learning rate whose bound is least; the paper's otherwise.

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
    shared: dict[str, Any] = {
        "arms": check("arms", arms, Arms),
        "experts": check("experts", experts, Experts),
        "horizon": check("horizon", horizon, Horizon),
        "epsilon": check("epsilon", epsilon, Epsilon),
    }
    delta = 1.0 / shared["horizon"] if delta is None else check("delta", delta, Delta)
    candidates = [
        _candidate(name, shared, delta, LEARNING_RATE_SCALES if tuned else (1.0,))
        for name in EXPERT_POLICIES
    ]
    candidates.sort(key=lambda one: (one.bound is None, one.bound or 0.0))
    return ExpertsRecommendation(shared["horizon"], tuple(candidates))


def _candidate(
    name: str, shared: dict[str, Any], delta: float, scales: Iterable[float]
) -> ExpertPolicyBound:
    """The policy at the scale with the least bound."""
    if name == "dp-exp4":
        shared = {**shared, "delta": delta}
    best = ExpertPolicyBound(name, "", None, why_not="its theorem is for epsilon up to 1")
    for scale in scales:
        try:
            policy = REGISTRY.create(name, {**shared, "learning_rate_scale": scale})
        except ParameterError as error:
            if best.bound is None:
                best = ExpertPolicyBound(name, "", None, why_not=str(error))
            continue
        bound = policy.proved_bound(None, shared["horizon"])
        if bound is not None and (best.bound is None or bound < best.bound):
            best = ExpertPolicyBound(name, str(policy.guarantee), bound, scale)
    return best
