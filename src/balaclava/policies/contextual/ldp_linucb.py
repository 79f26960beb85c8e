"""LDP-LinUCB: optimism from rewards reported by randomized response, contexts public."""

import math
from typing import Any

from balaclava._core.declared import Epsilon
from balaclava._core.kernels import kernel
from balaclava.frames.pending import forget_note
from balaclava.policies.base import Kernels, register
from balaclava.policies.contextual import linear_context
from balaclava.policies.contextual.linucb import Params, Regression, begin_regression, choose
from balaclava.policies.contextual.linucb import learn as learn_linucb
from balaclava.policies.local_policies import REPORTED, LocalBoundedPolicy, unit_bit_report


@kernel(borrows=True)
def learn_report(
    params: Params, state: Regression, t: int, arm: int, bit: float, phase: int, rng: Any
) -> None:
    """Learn from 1/2 + (y - 1/2) / tanh(epsilon/2), which has the mean of the reward."""
    reward = 0.5 + (bit - 0.5) / math.tanh(0.5 * params.epsilon)
    learn_linucb(params, state, t, arm, reward, phase, rng)


@kernel(borrows=True)
def learn(
    params: Params, state: Regression, t: int, arm: int, reward: float, phase: int, rng: Any
) -> None:
    learn_report(params, state, t, arm, unit_bit_report(params, reward, 1.0, rng), phase, rng)


@register
class LDPLinUCB(LocalBoundedPolicy, linear_context.RidgePolicy):
    """LinUCB on rewards that each participant reports as one random bit; the contexts are public.

    For rewards that only the participant's device may see, if the features of participants are
    known and may be public, and means that are linear in them. Set `radius_scale` to 0.3 if regret
    matters more than the proof. ldp-kernel-ucb has less regret on real tables, and no proved bound.

    A device with reward r in [0, 1] reports y = 1 with probability
    1/2 + (r - 1/2) tanh(epsilon/2), otherwise y = 0. Play linucb on 1/2 + (y - 1/2) /
    tanh(epsilon/2), whose mean is r and which is R-sub-Gaussian with R = 1 / (2 tanh(epsilon/2)).
    (Laplace reports have no such R: the radius would not hold for them.)

    Privacy:
        epsilon-local differential privacy of each report, hence epsilon-differential privacy of
        the whole trajectory; contexts are public and not protected, and depend on
        rewards only through reports. The report's probabilities lie between 1 / (1 + e^epsilon)
        and e^epsilon / (1 + e^epsilon) for every r.

    Parameters:
        radius_scale: multiplies beta; never affects privacy.

    Example:
        >>> world = bl.environment("linear", arms=5, theta=[0.7, 0.3, -0.4])
        >>> policy = bl.policy("ldp-linucb", arms=5, features=3, epsilon=1.0)
        >>> policy.report(0.3) in (0.0, 1.0)
        True
        >>> results = bl.simulate(policy, world, horizon=5_000, repetitions=10, seed=1)
        >>> round(float(results.final_regret("ldp-linucb").mean()))
        50
    """

    name = "ldp-linucb"
    reference = "after Abbasi-Yadkori, Pal, Szepesvari 2011 and Ren, Zhou, Liu, Shroff 2020"
    see_also = "ldp-kernel-ucb, ldp-ucb-bernoulli, linucb"
    assumptions = (linear_context.CONTEXT_IS_PUBLIC, REPORTED)
    report_kernel = staticmethod(unit_bit_report)
    learn_report = staticmethod(learn_report)
    reports = (0.0, 1.0)
    examples = ({"outstanding": 512},)
    kernels = Kernels(begin_regression, choose, learn, forget_note)
    epsilon: Epsilon

    def constants(self) -> Params:
        spread = linear_context.REWARD_SPREAD / math.tanh(0.5 * self.epsilon)
        return self.fill(Params, spread=spread, proved=False)
