"""Locally private EXP3 (Tossou, Dimitrakakis 2017; Agarwal, Singh 2017)."""

from typing import Any, NamedTuple

import numpy as np

from balaclava._core.declared import Epsilon, Horizon
from balaclava._core.kernels import kernel
from balaclava.frames.pending import forget_note
from balaclava.policies.base import Kernels, register
from balaclava.policies.classic import exp3
from balaclava.policies.local_policies import REPORTED, LocalPolicy, unit_laplace_report
from balaclava.policies.loss_policies import LearningRateScale, Outstanding, PrivateLossPolicy


class Params(NamedTuple):
    """The parameters of exp3's kernels, and epsilon."""

    arms: int
    outstanding: int
    eta: float
    gamma: float
    anytime: bool
    epsilon: float


@kernel(borrows=True)
def learn(
    params: Any, state: exp3.State, t: int, arm: int, reward: float, phase: int, rng: Any
) -> None:
    exp3.learn(params, state, t, arm, unit_laplace_report(params, reward, 1.0, rng), phase, rng)


@register
class LDPExp3(LocalPolicy, PrivateLossPolicy):
    """EXP3 on losses that each participant reports with Laplace noise.

    For losses that an adversary chose and only the participant's device may see. With a trusted
    server dp-htinf is far better at a small epsilon: it adds noise once per batch, this policy to
    every loss. At an epsilon near 1/sqrt(T) it cannot learn.

    A device with loss l in [0, 1] reports l + Lap(1/epsilon). The policy is exp3 on reports, with
    the rates for T rounds and noise of scale 1/epsilon.

    Privacy:
        epsilon-local differential privacy of each report, hence epsilon-differential privacy of
        the whole trajectory: two losses in [0, 1] are at most 1 apart.

    Parameters:
        learning_rate_scale: multiplies eta, and gamma with it; never affects privacy.

    Example:
        >>> policy = bl.policy("ldp-exp3", arms=3, horizon=10_000, epsilon=0.5)
        >>> world = bl.environment("stochastic-losses", means=[0.5, 0.5, 0.2])
        >>> results = bl.simulate(policy, world, horizon=10_000, repetitions=20, seed=1)
        >>> round(float(results.final_regret("ldp-exp3").mean()))
        1930
    """

    name = "ldp-exp3"
    reference = "Tossou, Dimitrakakis 2017"
    cites = "Tossou, Dimitrakakis 2017; Agarwal, Singh 2017; Asi, Raman, Talwar 2025"
    see_also = "dp-exp3, dp-htinf, exp3"
    assumptions = (REPORTED,)
    report_kernel = staticmethod(unit_laplace_report)
    learn_report = staticmethod(exp3.learn)
    kernels = Kernels(exp3.begin, exp3.choose, learn, forget_note)
    horizon: Horizon
    epsilon: Epsilon
    learning_rate_scale: LearningRateScale = 1.0
    outstanding: Outstanding = 256

    def _exp3(self) -> exp3.Exp3:
        return exp3.Exp3(
            arms=self.arms,
            horizon=self.horizon,
            loss_noise=1.0 / self.epsilon,
            learning_rate_scale=self.learning_rate_scale,
            outstanding=self.outstanding,
        )

    def constants(self) -> Params:
        return Params(*self._exp3().constants(), self.epsilon)

    def chances(self, state: Any) -> np.ndarray | None:
        return np.array(state.chances)

    def proved_bound(self, environment: Any, horizon: int) -> float | None:
        return self._exp3().proved_bound(environment, horizon)
