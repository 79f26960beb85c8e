"""DP-HTINF: HTINF made private (Asi, Raman, Talwar 2025, Corollary 3.2)."""

from __future__ import annotations

from typing import Any, ClassVar

from balaclava.policies.adversarial.conversion import TunedPolicy
from balaclava.policies.base import Policy, register
from balaclava.policies.classic.htinf import HTINF


@register
class DPHTINF(TunedPolicy):
    """HTINF, told the noisy mean loss of each batch of 1/epsilon rounds.

    The default for losses that an adversary chose: it has the best proved regret, of order
    sqrt(K T / epsilon), sublinear for every epsilon above 1/T, and the least in practice. A
    `learning_rate_scale` of 2 made it better, or no worse, wherever we tried it, at the price of
    the proof. If rewards are random and do not drift, dp-imed is far better.

    In each batch of tau rounds htinf, with alpha = 2 and sigma = sqrt(1 + 2 / (tau epsilon)^2),
    chooses an arm. It is then told the mean of the batch's losses + Lap(1 / (tau epsilon)).

    The paper has sigma = sqrt(6), from E(l + Z)^2 <= 2 E l^2 + 2 E Z^2. Noise has mean 0 and does
    not depend on the loss, so that E(l + Z)^2 = E l^2 + E Z^2, which is what is used here. The
    regret is proved for any such sigma, and is smaller by sqrt(2) or more.

    Privacy:
        epsilon-differential privacy of the whole trajectory: each loss enters one batch, whose sum
        is released once with noise of scale 1/epsilon. See `balaclava.policies.adversarial
        .conversion`. A batch that the horizon cuts off releases nothing.

    Parameters:
        horizon: number of rounds, at least tau.
        epsilon: privacy loss. Above 1 there is no bound on the regret.
        batch: tau; ceil(1/epsilon) by default.
        learning_rate_scale: multiplies htinf's eta; with another than 1 no regret is proved.
        outside: "refuse" losses outside [0, 1], or "clip" them to it.

    Example:
        >>> import balaclava as bl
        >>> policy = bl.policy("dp-htinf", arms=3, horizon=10_000, epsilon=0.5)
        >>> world = bl.environment("stochastic-losses", means=[0.5, 0.5, 0.2])
        >>> results = bl.simulate(policy, world, horizon=10_000, repetitions=20, seed=1)
        >>> round(float(results.final_regret("dp-htinf").mean()))
        415

    References:
        Asi, Raman, Talwar. Faster rates for private adversarial bandits. ICML 2025.
        Huang, Dai, Huang. Adaptive best-of-both-worlds algorithm for heavy-tailed multi-armed
        bandits. ICML 2022.

    See Also:
        htinf, dp-tsallis-inf, dp-exp3, ldp-exp3
    """

    name = "dp-htinf"
    reference = "Asi, Raman, Talwar 2025"
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({}, {"epsilon": 0.25})

    def base_policy(self) -> Policy:
        return HTINF(**self.tuning)
