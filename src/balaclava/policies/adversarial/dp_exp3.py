"""DP-EXP3: EXP3 made private (Asi, Raman, Talwar 2025, Corollary E.1)."""

from __future__ import annotations

from typing import Any, ClassVar

from balaclava.policies.adversarial.conversion import TunedPolicy
from balaclava.policies.base import Policy, register
from balaclava.policies.classic.exp3 import Exp3


@register
class DPExp3(TunedPolicy):
    """EXP3, told the noisy mean loss of each batch of 1/epsilon rounds.

    For comparison: dp-htinf has the better bound and plays far better, because exp3 has to be
    slowed down to survive the largest noise of all rounds, and htinf only the usual one.

    In each batch of tau rounds exp3 chooses an arm. It is then told the mean of the batch's losses
    + Lap(lam), lam = 1 / (tau epsilon). Its eta and gamma are those for n = floor(T / tau) rounds
    and noise of scale lam. At epsilon = 1/tau, eta is within 5% of the paper's
    sqrt(log K / (22 n K log(K n)^2)).

    Privacy:
        epsilon-differential privacy of the whole trajectory: each loss enters one batch, whose sum
        is released once with noise of scale 1/epsilon. See `balaclava.policies.adversarial
        .conversion`. A batch that the horizon cuts off releases nothing.

    Parameters:
        horizon: number of rounds, at least tau.
        epsilon: privacy loss. Above 1 there is no bound on the regret.
        batch: tau; ceil(1/epsilon) by default.
        learning_rate_scale: multiplies exp3's eta, and gamma with it.
        outside: "refuse" losses outside [0, 1], or "clip" them to it.

    Example:
        >>> import balaclava as bl
        >>> policy = bl.policy("dp-exp3", arms=3, horizon=10_000, epsilon=0.5)
        >>> world = bl.environment("stochastic-losses", means=[0.5, 0.5, 0.2])
        >>> results = bl.simulate(policy, world, horizon=10_000, repetitions=20, seed=1)
        >>> round(float(results.final_regret("dp-exp3").mean()))
        1898

    References:
        Asi, Raman, Talwar. Faster rates for private adversarial bandits. ICML 2025.

    See Also:
        exp3, dp-htinf, ldp-exp3
    """

    name = "dp-exp3"
    reference = "Asi, Raman, Talwar 2025"
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {"learning_rate_scale": 5.0},
        {"epsilon": 0.25, "learning_rate_scale": 5.0},
    )

    def base_policy(self) -> Policy:
        return Exp3(horizon=self.batches, **self.tuning)
