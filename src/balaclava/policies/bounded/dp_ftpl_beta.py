"""DP-FTPL-Beta: the leader under Beta perturbation (Wang and Zhu 2024, Algorithm 2)."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

from balaclava._core.declared import Delta, EpsilonOrZero
from balaclava._core.kernels import kernel
from balaclava.frames.start_phase import count_reward, starting_arm
from balaclava.frames.tally import Tally, begin_tally
from balaclava.policies.base import Kernels, PrivateBoundedPolicy, register
from balaclava.privacy.guarantee import Scope
from balaclava.privacy.perturbation import (
    BetaLaw,
    IndexLaw,
    beta_index,
    beta_shape,
    beta_threshold,
    whole_pulls,
)


class Params(NamedTuple):
    """What the kernels see."""

    arms: int
    reward_range: tuple[float, float]
    epsilon: float
    delta: float
    start: int


@kernel(borrows=True)
def choose(params: Params, state: Tally, t: int, context: Any, rng: Any) -> tuple[int, int]:
    best = starting_arm(state, params.start)
    if best < 0:
        best, highest = 0, -math.inf
        for arm in range(params.arms):
            step = 1.0 / state.pulls[arm]  # one reward moves the mean by this much
            theta = beta_index(rng, state.sums[arm] * step, step, params.epsilon, params.delta)
            if theta > highest:
                best, highest = arm, theta
    state.asked[best] += 1
    return best, 0


@kernel(borrows=True)
def learn(
    params: Params, state: Tally, t: int, arm: int, reward: float, phase: int, rng: Any
) -> None:
    # The proof is for rewards 0 and 1: any other becomes a coin with that chance of 1.
    success = 1.0 if rng.random() < reward else 0.0
    count_reward(state, arm, success, params.start)


@register
class DPFTPLBeta(PrivateBoundedPolicy):
    """Pull each arm often enough, then play the highest Beta draw: each decision is private.

    dp-ftpl-gauss with the Beta law of Thompson sampling. Its start phase is a hundred times
    longer, for a proof that is far from tight; it is here for comparison. Prefer dp-ftpl-gauss or
    dp-ftpl-new.

    Pull each arm, in turn, until it has at least

        N = max{min{40e/(9 pi delta^2), 8000 log(e/(2 pi delta^2)) / (81 epsilon^2)}, 1000e/(9 pi)}

    rewards. Then, in each round and for each arm with n rewards of sum R, draw
    theta ~ Beta(R + 1 + k, n - R + 1 + k), k = floor(n/8) + 1, and play the highest. A reward x
    strictly between 0 and 1 is first replaced by a coin that shows 1 with probability x.

    Privacy:
        (epsilon, delta)-differential privacy of each decision (Theorem 13; its proof has a gap for
        epsilon above 1.1, which `balaclava.privacy.perturbation` closes; an epsilon above 20
        counts as 20 in N). A reward between 0 and 1 becomes a coin, over which the guarantee then
        averages. Decisions add up: the run as a whole is not protected.

    Parameters:
        epsilon: privacy loss of a decision; 0 is allowed.
        delta: probability outside it, above 0.
        reward_range: rewards are rescaled from it to [0, 1].

    A horizon that ends in the start phase is allowed: then the arms are just pulled in turn.

    Example:
        >>> import balaclava as bl
        >>> bl.policy("dp-ftpl-beta", arms=9, epsilon=1.0, delta=0.01).start_phase
        827

    References:
        Wang, Zhu. Optimal learning policies for differential privacy in multi-armed bandits.
        JMLR 2024.

    See Also:
        dp-ftpl-gauss, dp-ftpl-new, thompson-beta
    """

    name = "dp-ftpl-beta"
    reference = "Wang, Zhu 2024"
    scope: ClassVar[Scope] = "decision"
    kernels: ClassVar[Kernels] = Kernels(begin_tally, choose, learn)
    epsilon: EpsilonOrZero
    delta: Delta
    examples = (
        {"arms": 2, "epsilon": 5.0, "delta": 0.1},
        {"arms": 2, "epsilon": 5.0, "delta": 0.1, "reward_range": (-1.0, 3.0)},
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.delta == 0.0:
            raise self.refuse("delta", "is too small; give one above 0, or take dp-ftpl-new")

    def constants(self) -> Params:
        return Params(self.arms, self.reward_range, self.epsilon, self.delta, self.start_phase)

    @property
    def start_phase(self) -> int:
        """Pulls of each arm before any index is drawn."""
        return whole_pulls(beta_threshold(self.epsilon, self.delta))

    def index_law(self, pulls: int, total: float) -> IndexLaw:
        """The law of the index of an arm with so many rewards and such a sum of them."""
        return BetaLaw(*beta_shape(total / pulls, 1.0 / pulls))
