"""DP-FTPL over experts (Asi, Raman, Talwar 2025, Algorithm 5)."""

from __future__ import annotations

from typing import Any, ClassVar

from balaclava.policies.adversarial.dp_ftpl import DPFTPL
from balaclava.policies.base import register
from balaclava.policies.experts.experts_as_arms import ConvertedExpertPolicy


@register
class DPFTPLExperts(ConvertedExpertPolicy):
    """dp-ftpl over experts: follow one expert for a batch, and learn from its noisy mean loss.

    For comparison: dp-htinf-experts has the better bound, plays better and is faster.

    In each batch of tau rounds one expert is followed: the arm of each round is drawn from the
    advice that the expert gives in it. Then ftpl is told the mean of the batch's losses
    + Lap(1 / (tau epsilon)) as the loss of that expert.

    Privacy:
        epsilon-differential privacy of the whole trajectory with respect to the losses, as for
        dp-ftpl. Advice is public: see `balaclava.policies.experts.experts_as_arms`.

    Parameters:
        experts: N.
        horizon: number of rounds, at least tau.
        epsilon: privacy loss. Above 1 there is no bound on the regret.
        batch: tau; ceil(1/epsilon) by default.
        learning_rate_scale: multiplies the learning rate of ftpl; privacy is untouched.
        outside: "refuse" losses outside [0, 1], or "clip" them to it.

    Example:
        >>> import balaclava as bl
        >>> agent = bl.policy("dp-ftpl-experts", arms=2, experts=3, horizon=2000,
        ...                   epsilon=0.5, learning_rate_scale=20).agent(seed=1)
        >>> pulls = [0, 0]
        >>> for _ in range(2000):
        ...     decision = agent.ask([[1, 0], [0.5, 0.5], [0, 1]])
        ...     agent.tell(decision, reward=(0.9, 0.2)[decision.arm])
        ...     pulls[decision.arm] += 1
        >>> pulls
        [295, 1705]

    References:
        Asi, Raman, Talwar. Faster rates for private adversarial bandits. ICML 2025.

    See Also:
        dp-htinf-experts, dp-ftpl, exp4
    """

    name = "dp-ftpl-experts"
    reference = "Asi, Raman, Talwar 2025"
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {"epsilon": 0.5, "learning_rate_scale": 20.0},
    )
    inner_class = DPFTPL
