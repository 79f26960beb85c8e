"""Locally private EXP4 (Asi, Raman, Talwar 2025, Algorithm 6, Theorem 4.4)."""

import math
from typing import Any, NamedTuple

from balaclava._core.declared import Epsilon, Horizon
from balaclava._core.kernels import kernel
from balaclava.estimators.expert_weights import ExpertWeights, last_chance
from balaclava.frames.pending import forget_note
from balaclava.policies.base import Kernels, register
from balaclava.policies.classic.exp4 import begin, choose
from balaclava.policies.classic.exp4 import learn as learn_report
from balaclava.policies.expert_policies import PrivateExpertPolicy
from balaclava.policies.local_policies import REPORTED, LocalPolicy, unit_laplace_report
from balaclava.policies.loss_policies import EVEN_SHARE, LearningRateScale, Outstanding


class Params(NamedTuple):
    experts: int
    outstanding: int
    learning_rate: float  # eta
    mixing: float  # gamma
    epsilon: float


@kernel(borrows=True)
def learn(
    params: Any, state: ExpertWeights, t: int, arm: int, reward: float, phase: int, rng: Any
) -> None:
    learn_report(params, state, t, arm, unit_laplace_report(params, reward, 1.0, rng), phase, rng)


@register
class LDPExp4(LocalPolicy, PrivateExpertPolicy):
    r"""EXP4 on losses that each participant reports with Laplace noise.

    For losses that only the participant's device may see. With a trusted server it suits many
    experts and a moderate epsilon: its regret depends on the number of experts only through a
    logarithm. At an epsilon near 1/sqrt(T) it cannot learn; dp-exp4 and dp-htinf-experts still do.
    `bl.recommend_experts` compares them.

    A device with loss l in [0, 1] reports y = l + Lap(1/epsilon). The policy is exp4 on reports:
    arm I is drawn from Q(i) = (1 - gamma) sum_j P_j mu_j(i) + gamma / K, and
    w_j <- w_j exp(-eta mu_j(I) y / Q(I)), with x = log(K T) / epsilon and

    .. math:: \eta = \sqrt{\log N / (3 T K (1 + 10 x^2))}, \quad \gamma = 4 \eta K x.

    The paper asks for epsilon <= 1; its proof holds for every epsilon. Its eta is far too low,
    since the proof overstates the noise: set `learning_rate_scale`, about 10 at epsilon = 1 and
    more below. The bound holds at any scale, and `bl.recommend_experts(..., tuned=True)` finds
    the scale with the least bound.

    Privacy:
        epsilon-local differential privacy of each report, hence epsilon-differential privacy of
        the whole trajectory with respect to the losses: two of them are at most 1 apart.

    Parameters:
        learning_rate_scale: multiplies eta, and gamma with it; never affects privacy.

    Example:
        >>> policy = bl.policy("ldp-exp4", arms=2, experts=3, horizon=2000, epsilon=1.0,
        ...                    learning_rate_scale=10)
        >>> agent = policy.agent(seed=1)
        >>> pulls = [0, 0]
        >>> for _ in range(2000):
        ...     decision = agent.ask([[1, 0], [0.5, 0.5], [0, 1]])
        ...     pulls[decision.arm] += 1
        ...     agent.tell(decision, reward=(0.9, 0.2)[decision.arm])
        >>> pulls
        [531, 1469]
    """

    name = "ldp-exp4"
    reference = "Asi, Raman, Talwar 2025"
    see_also = "dp-exp4, dp-htinf-experts, exp4"
    assumptions = (*PrivateExpertPolicy.assumptions, REPORTED)
    report_kernel = staticmethod(unit_laplace_report)
    learn_report = staticmethod(learn_report)
    kernels = Kernels(begin, choose, learn, forget_note)
    horizon: Horizon
    epsilon: Epsilon
    learning_rate_scale: LearningRateScale = 1.0
    outstanding: Outstanding = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        if (mixing := self.constants().mixing) > 1.0:
            raise self.refuse(
                "horizon",
                f"is too short: gamma, the share of uniform draws, would be {mixing:.2g}, above 1; "
                "raise horizon, or lower learning_rate_scale",
            )

    def constants(self) -> Params:
        K, T, N = self.arms, self.horizon, self.experts
        x = math.log(K * T) / self.epsilon
        eta = self.learning_rate_scale * math.sqrt(
            math.log(N) / (3.0 * T * K * (1.0 + 10.0 * x**2))
        )
        return self.fill(Params, learning_rate=eta, mixing=EVEN_SHARE * eta * K * x)

    def propensity(self, state: Any, arm: int) -> float | None:
        return last_chance(state)

    def proved_bound(self, environment: Any, horizon: int) -> float | None:
        """log N / eta + gamma T + eta T K (1 + 2 / epsilon^2) + 1.

        The proof of Theorem 4.4 with the variance of the noise, 2 / epsilon^2, in place of the
        square of the largest of T draws; at most 2 sqrt(33 T K log N) log(K T) / epsilon + 1.
        """
        if horizon > self.horizon or not self.competes_in(environment):
            return None
        if self.experts == 1:
            return 0.0
        p = self.constants()
        each = p.mixing + p.learning_rate * self.arms * (1.0 + 2.0 / self.epsilon**2)
        return math.log(self.experts) / p.learning_rate + horizon * each + 1.0
