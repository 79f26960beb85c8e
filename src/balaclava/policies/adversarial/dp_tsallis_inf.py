"""DP-Tsallis-INF: Tsallis-INF made private by the conversion of Asi, Raman and Talwar (2025)."""

from __future__ import annotations

from typing import Any, ClassVar

from balaclava.policies.adversarial.conversion import TunedPolicy
from balaclava.policies.base import Policy, register
from balaclava.policies.classic.tsallis_inf import TsallisINF


@register
class DPTsallisINF(TunedPolicy):
    """Tsallis-INF, told the noisy mean loss of each batch of 1/epsilon rounds.

    For comparison: what does it bring to leave out no loss? Little. On six kinds of losses its mean
    regret is clearly lower than that of dp-htinf on one and clearly higher on none, and its runs
    differ twice as much (`balaclava reproduce asi2025-learning-rate`, quick scale). No regret is
    proved. Take dp-htinf.

    In each batch of tau rounds tsallis-inf, with sigma = sqrt(1 + 2 / (tau epsilon)^2), chooses an
    arm. It is then told the mean of the batch's losses + Lap(1 / (tau epsilon)).

    Privacy:
        epsilon-differential privacy of the whole trajectory: each loss enters one batch, whose sum
        is released once with noise of scale 1/epsilon. See `balaclava.policies.adversarial
        .conversion`. A batch that the horizon cuts off releases nothing.

    Parameters:
        horizon: number of rounds, at least tau.
        epsilon: privacy loss.
        batch: tau; ceil(1/epsilon) by default.
        learning_rate_scale: multiplies tsallis-inf's eta.
        outside: "refuse" losses outside [0, 1], or "clip" them to it.

    Example:
        >>> import balaclava as bl
        >>> policy = bl.policy("dp-tsallis-inf", arms=3, horizon=10_000, epsilon=0.5)
        >>> world = bl.environment("stochastic-losses", means=[0.5, 0.5, 0.2])
        >>> results = bl.simulate(policy, world, horizon=10_000, repetitions=20, seed=1)
        >>> round(float(results.final_regret("dp-tsallis-inf").mean()))
        287

    References:
        Asi, Raman, Talwar. Faster rates for private adversarial bandits. ICML 2025.
        Zimmert, Seldin. Tsallis-INF: an optimal algorithm for stochastic and adversarial bandits.
        Journal of Machine Learning Research, 2021.

    See Also:
        tsallis-inf, dp-htinf
    """

    name = "dp-tsallis-inf"
    reference = "Asi, Raman, Talwar 2025"
    examples: ClassVar[tuple[dict[str, Any], ...]] = ({}, {"epsilon": 0.25})

    def base_policy(self) -> Policy:
        return TsallisINF(**self.tuning)
