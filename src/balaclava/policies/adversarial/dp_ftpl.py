"""DP-FTPL: FTPL with resampling made private (Asi, Raman, Talwar 2025, Corollary E.3)."""

from __future__ import annotations

from typing import Any, ClassVar

from balaclava.policies.adversarial.conversion import TunedPolicy
from balaclava.policies.base import Policy, register
from balaclava.policies.classic.ftpl import FTPL


@register
class DPFTPL(TunedPolicy):
    """FTPL with resampling, told the noisy mean loss of each batch of 1/epsilon rounds.

    For comparison: dp-htinf has the better bound and plays far better. Not to be mixed up with
    dp-ftpl-gauss and its kin, which are for random rewards.

    In each batch of tau rounds ftpl chooses an arm. It is then told the mean of the batch's losses
    + Lap(lam), lam = 1 / (tau epsilon). Its eta and M are those for n = floor(T / tau) rounds and
    noise of scale lam.

    Privacy:
        epsilon-differential privacy of the whole trajectory: each loss enters one batch, whose sum
        is released once with noise of scale 1/epsilon. See `balaclava.policies.adversarial
        .conversion`. The noise of ftpl itself adds nothing to that. A batch that the horizon cuts
        off releases nothing.

    Parameters:
        horizon: number of rounds, at least tau.
        epsilon: privacy loss. Above 1 there is no bound on the regret.
        batch: tau; ceil(1/epsilon) by default.
        learning_rate_scale: multiplies ftpl's eta; above 1 no regret is proved.
        outside: "refuse" losses outside [0, 1], or "clip" them to it.

    Example:
        >>> import balaclava as bl
        >>> policy = bl.policy("dp-ftpl", arms=3, horizon=10_000, epsilon=0.5)
        >>> world = bl.environment("stochastic-losses", means=[0.5, 0.5, 0.2])
        >>> results = bl.simulate(policy, world, horizon=10_000, repetitions=20, seed=1)
        >>> round(float(results.final_regret("dp-ftpl").mean()))
        1874

    References:
        Asi, Raman, Talwar. Faster rates for private adversarial bandits. ICML 2025.

    See Also:
        ftpl, dp-htinf, dp-exp3
    """

    name = "dp-ftpl"
    reference = "Asi, Raman, Talwar 2025"
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {"learning_rate_scale": 20.0},
        {"epsilon": 0.25, "learning_rate_scale": 20.0},
    )

    def base_policy(self) -> Policy:
        return FTPL(horizon=self.batches, **self.tuning)
