"""What the policies that learn from losses share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, ClassVar

from balaclava._core.declared import Outside, Range
from balaclava._core.kernels import kernel
from balaclava.policies.base import Policy, RewardKind
from balaclava.privacy.exact_noise import to_unit_grid

LearningRate = Annotated[float, Range(0, meaning="learning rate")]
LearningRateScale = Annotated[
    float, Range(0, meaning="multiplies the learning rate; never touches privacy", open_low=True)
]
# `lost_reward` of those that learn a batch's mean loss: one that counted as 0 would be the best.
LOST_LOSS = (
    "counts nowhere: its batch settles without it when the decision is given up, and teaches the "
    "mean of the losses that came, if at least half did; otherwise nothing"
)
Outstanding = Annotated[int, Range(1, 10**7, "decisions that may wait for their losses at once")]
# Squares of what is larger would not be numbers any more.
LossNoise = Annotated[float, Range(0, 1e100, "scale of Laplace noise in the losses it is told")]

# In n rounds of K arms, noise of scale lam exceeds REACH lam log(K n) with chance below 1/n.
NOISE_REACH = math.sqrt(10.0)
# The share of even draws, in units of eta K lam log(K n): as REACH / MIXING < 1, eta times an
# estimated loss stays above -1, which is all that the proofs of EXP3 and EXP4 need.
EVEN_SHARE = 4.0


class LossPolicy(Policy):
    """A policy that learns from losses of any size, negative ones too, and hides none of them.

    Its rates are right for losses in [0, 1] to which noise of scale `loss_noise` was added, which
    is what the conversion into a private policy feeds it.
    """

    rewards: ClassVar[RewardKind] = "loss"
    loss_noise: LossNoise = 0.0
    learning_rate_scale: LearningRateScale = 1.0
    outstanding: Outstanding = 4096


class PrivateLossPolicy(Policy):
    """A policy that protects losses in [0, 1]."""

    rewards: ClassVar[RewardKind] = "loss"
    outside: Outside = "refuse"

    @property
    def accepts(self) -> tuple[float, float]:
        return (0.0, 1.0)

    def prepare(self) -> Callable[..., float]:
        return loss_onto_unit_grid


@kernel(borrows=True)
def loss_onto_unit_grid(params: Any, loss: float) -> float:
    """Clipped to [0, 1], whatever comes in, and rounded onto a grid on which sums are exact."""
    return to_unit_grid(min(max(loss, 0.0), 1.0))


def rivals_are_arms(environment: Any) -> bool:
    """Whether regret is against the best arm for losses in [0, 1]: what the theorems bound."""
    return gives_unit_losses(environment) and environment.experts is None


def gives_unit_losses(environment: Any) -> bool:
    """Whether losses are in [0, 1], by whatever law or adversary."""
    low, high = environment.reward_range
    return bool(environment.feedback == "loss" and low >= 0.0 and high <= 1.0)


def second_moment(loss_noise: float) -> float:
    """The most that the square of a loss in [0, 1] with Laplace noise can be on average."""
    return 1.0 + 2.0 * loss_noise**2
