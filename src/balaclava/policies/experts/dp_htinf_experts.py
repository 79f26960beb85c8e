"""DP-HTINF over experts (Asi, Raman, Talwar 2025, Algorithm 5, Corollary 4.3)."""

from __future__ import annotations

from typing import Any, ClassVar

from balaclava.policies.adversarial.dp_htinf import DPHTINF
from balaclava.policies.base import register
from balaclava.policies.experts.experts_as_arms import ConvertedExpertPolicy


@register
class DPHTINFExperts(ConvertedExpertPolicy):
    """dp-htinf over experts: follow one expert for a batch, and learn from its noisy mean loss.

    The first choice for few experts: its regret, of order sqrt(N T / epsilon), does not depend on
    the number of arms and has no logarithms, and there is no delta. For many experts take ldp-exp4
    or dp-exp4, whose regret grows more slowly with N; `bl.recommend_experts` compares.

    In each batch of tau rounds one expert is followed: the arm of each round is drawn from the
    advice that the expert gives in it. Then htinf is told the mean of the batch's losses
    + Lap(1 / (tau epsilon)) as the loss of that expert.

    Privacy:
        epsilon-differential privacy of the whole trajectory with respect to the losses, as for
        dp-htinf. Advice is public: see `balaclava.policies.experts.experts_as_arms`.

    Parameters:
        experts: N.
        horizon: number of rounds, at least tau.
        epsilon: privacy loss. Above 1 there is no bound on the regret.
        batch: tau; ceil(1/epsilon) by default.
        learning_rate_scale: multiplies the learning rate of htinf; privacy is untouched.
        outside: "refuse" losses outside [0, 1], or "clip" them to it.

    Example:
        >>> import balaclava as bl
        >>> agent = bl.policy("dp-htinf-experts", arms=2, experts=3, horizon=2000,
        ...                   epsilon=0.5).agent(seed=1)
        >>> pulls = [0, 0]
        >>> for _ in range(2000):
        ...     decision = agent.ask([[1, 0], [0.5, 0.5], [0, 1]])
        ...     agent.tell(decision, reward=(0.9, 0.2)[decision.arm])
        ...     pulls[decision.arm] += 1
        >>> pulls
        [350, 1650]

    References:
        Asi, Raman, Talwar. Faster rates for private adversarial bandits. ICML 2025.

    See Also:
        dp-exp4, ldp-exp4, dp-htinf
    """

    name = "dp-htinf-experts"
    reference = "Asi, Raman, Talwar 2025"
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({"epsilon": 0.5},)
    inner_class = DPHTINF
