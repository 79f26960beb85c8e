"""Base classes and parameters of policies that learn from losses."""

import math
from collections.abc import Callable
from typing import Annotated, Any, ClassVar

from balaclava._core.declared import Outside, Range
from balaclava._core.kernels import kernel
from balaclava.policies.base import Policy, RewardKind
from balaclava.privacy.exact_noise import to_unit_grid

LearningRate = Annotated[float, Range(0, meaning="learning rate")]
LearningRateScale = Annotated[
    float, Range(0, meaning="multiplies the rate eta; never affects privacy", open_low=True)
]
# `lost_reward` of policies that learn a mean loss: a lost one must not count as 0, the best.
LOST_LOSS = (
    "does not count: its batch settles when the decision is given up, and the policy learns the "
    "mean of the losses that arrived, if at least half did"
)
Outstanding = Annotated[int, Range(1, 10**7, "most open decisions; older ones are given up")]
# Squares of a larger scale, times any number of rounds, would overflow.
LossNoise = Annotated[float, Range(0, 1e100, "scale lambda of the Laplace noise in the losses")]

# In n rounds of K arms, noise of scale b exceeds NOISE_REACH b log(K n) with chance below 1/n.
NOISE_REACH = math.sqrt(10.0)
# The share of even draws, in units of eta K b log(K n). As it is above NOISE_REACH, eta times an
# estimated loss stays above -1, as the proofs of EXP3 and EXP4 need.
EVEN_SHARE = 4.0


ARBITRARY_LOSSES = (
    "its losses may be arbitrary, and its regret is against the best of a fixed set of arms"
)


class LossPolicy(Policy):
    """A policy without privacy that learns from losses of any size, negative ones too.

    Its rates are for losses in [0, 1] plus noise of scale `loss_noise`, as the conversion into a
    private policy supplies them.
    """

    rewards: ClassVar[RewardKind] = "loss"
    fixed_arms = ARBITRARY_LOSSES
    loss_noise: LossNoise = 0.0
    learning_rate_scale: LearningRateScale = 1.0
    outstanding: Outstanding = 4096


class PrivateLossPolicy(Policy):
    """A policy that protects losses in [0, 1]."""

    rewards: ClassVar[RewardKind] = "loss"
    fixed_arms = ARBITRARY_LOSSES
    outside: Outside = "refuse"

    @property
    def accepts(self) -> tuple[float, float]:
        return (0.0, 1.0)

    def prepare(self) -> Callable[..., float]:
        return loss_onto_unit_grid


@kernel(borrows=True)
def loss_onto_unit_grid(params: Any, loss: float) -> float:
    """Clip to [0, 1], and round onto a grid on which sums are exact."""
    return to_unit_grid(min(max(loss, 0.0), 1.0))


def rivals_are_arms(environment: Any) -> bool:
    """Whether regret is against the best arm, for losses in [0, 1], as in the theorems."""
    return gives_unit_losses(environment) and environment.experts is None


def gives_unit_losses(environment: Any) -> bool:
    """Whether the environment gives losses in [0, 1], of any law or adversary."""
    low, high = environment.reward_range
    return bool(environment.feedback == "loss" and low >= 0.0 and high <= 1.0)


def second_moment(loss_noise: float) -> float:
    """Bound on the mean square of a loss in [0, 1] with Laplace noise."""
    return 1.0 + 2.0 * loss_noise**2
