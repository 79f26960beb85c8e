"""Any bandit made private: batches, and noise on their means (Asi et al. 2025, Algorithm 1).

Proof.
    Each loss enters the sum of one batch, by the order of decisions. Whatever came of the others,
    the sum has sensitivity 1; it is released once, with noise of scale 1/epsilon, or not at all.
    Arms follow from what was released, and so do batches, whose length is fixed. Hence
    epsilon-differential privacy of the whole trajectory, for every base, every length of a batch
    and every epsilon. Which decisions are held out depends on no loss, and of those that are none
    is ever read.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from balaclava._core.declared import MOST_ROUNDS, Epsilon, Horizon, Range
from balaclava._core.kernels import kernel
from balaclava._core.states import MOST_PLANNED, range_faults
from balaclava.errors import ParameterError
from balaclava.frames.pools import UNLEARNED
from balaclava.policies.base import (
    REGISTRY,
    Kernels,
    Policy,
    as_it_is,
    nothing_to_forget,
    register,
)
from balaclava.policies.holdout import HoldoutPolicy
from balaclava.policies.losses import LOST_LOSS, LearningRateScale, Outstanding, PrivateLossPolicy
from balaclava.privacy.guarantee import Model, Scope
from balaclava.privacy.mechanisms.laplace import laplace_release

Batch = Annotated[int, Range(1, MOST_ROUNDS, "rounds in a row in which one arm is played")]


class Conversion(NamedTuple):
    """What the kernels need."""

    epsilon: float
    batch: int
    rows: int  # batches under way at once, a power of two
    arms: int
    holdout: float
    base: Any  # what the kernels of the base need


class Converted(NamedTuple):
    """The base, and the batches under way: number m is in row m mod rows."""

    base: Any
    numbers: np.ndarray  # [row]: of the batch there, 0 for none
    arms: np.ndarray  # [row]: what the base chose for it,
    phases: np.ndarray  # [row]: and in which phase of its own
    left: np.ndarray  # [row]: its decisions that have no loss and were not given up
    lost: np.ndarray  # [row]: those that were given up
    sums: np.ndarray  # [row]: of its losses: raw, and never read but to be released
    number: np.ndarray  # one element: of the newest batch, from 1
    rest: np.ndarray  # one element: decisions that it still has
    opened: np.ndarray  # one element: whether the last decision opened it,
    held: np.ndarray  # one element: and whether that was held out

    def faults(self, decisions: int) -> Iterator[str]:
        """What cannot be after so many decisions."""
        yield from range_faults(
            0, decisions, numbers=self.numbers, lost=self.lost, number=self.number
        )
        yield from range_faults(0, MOST_PLANNED, left=self.left, rest=self.rest, arms=self.arms)


@kernel(borrows=True)
def arm_of_batch(state: Converted) -> int:
    """What the base chose for the newest batch."""
    return int(state.arms[state.number[0] & (state.arms.size - 1)])


@functools.cache
def converted(
    begin: Callable[..., Any],
    choose: Callable[..., Any],
    learn: Callable[..., Any],
    forget: Callable[..., Any] = nothing_to_forget,
    prepare: Callable[..., Any] = as_it_is,
) -> Kernels:
    """The kernels around those of a base; the same each time, so they are compiled once."""

    @kernel
    def begin_batches(params: Any) -> Converted:
        return Converted(
            base=begin(params.base),
            numbers=np.zeros(params.rows, np.int64),
            arms=np.zeros(params.rows, np.int64),
            phases=np.zeros(params.rows, np.int64),
            left=np.zeros(params.rows, np.int64),
            lost=np.zeros(params.rows, np.int64),
            sums=np.zeros(params.rows),
            number=np.zeros(1, np.int64),
            rest=np.zeros(1, np.int64),
            opened=np.zeros(1, np.bool_),
            held=np.zeros(1, np.bool_),
        )

    @kernel(borrows=True)
    def choose_in_batch(
        params: Any, state: Converted, t: int, context: Any, rng: Any
    ) -> tuple[int, int]:
        row = (state.number[0] + 1) & (params.rows - 1)
        state.opened[0] = state.rest[0] == 0 and state.numbers[row] == 0
        if state.opened[0]:
            number = state.number[0] + 1
            arm, phase = choose(params.base, state.base, number, None, rng)
            state.arms[row], state.phases[row] = arm, phase
            state.number[0], state.numbers[row] = number, number
            state.left[row], state.rest[0] = params.batch, params.batch
        state.held[0] = params.holdout > 0.0 and rng.random() < params.holdout
        if state.held[0]:
            return int(rng.random() * params.arms), UNLEARNED
        if state.rest[0] == 0:  # no room for the next batch: served, and not learned from
            return arm_of_batch(state), UNLEARNED
        state.rest[0] -= 1
        return arm_of_batch(state), state.number[0]

    @kernel(borrows=True)
    def settle(params: Any, state: Converted, row: int, rng: Any) -> None:
        """The base learns the noisy mean of the losses that came, if at least half did."""
        state.left[row] -= 1
        if state.left[row] > 0:
            return
        came = params.batch - state.lost[row]
        number, arm, phase = state.numbers[row], state.arms[row], state.phases[row]
        if 2 * came >= params.batch:
            released = laplace_release(rng, state.sums[row], 1.0, params.epsilon)
            loss = prepare(params.base, released / came)
            learn(params.base, state.base, number, arm, loss, phase, rng)
        else:
            forget(params.base, state.base, number, arm, phase, rng)
        state.numbers[row] = 0
        state.lost[row] = 0
        state.sums[row] = 0.0

    @kernel(borrows=True)
    def learn_batch(
        params: Any, state: Converted, t: int, arm: int, reward: float, phase: int, rng: Any
    ) -> None:
        row = phase & (params.rows - 1)
        if phase > 0 and state.numbers[row] == phase:
            state.sums[row] += reward
            settle(params, state, row, rng)

    @kernel(borrows=True)
    def forget_in_batch(
        params: Any, state: Converted, t: int, arm: int, phase: int, rng: Any
    ) -> None:
        row = phase & (params.rows - 1)
        if phase > 0 and state.numbers[row] == phase:
            state.lost[row] += 1
            settle(params, state, row, rng)

    return Kernels(begin_batches, choose_in_batch, learn_batch, forget_in_batch)


def least_batch(epsilon: float) -> int:
    """1/epsilon, rounded up; a quotient that is whole but for its rounding stays."""
    return max(1, math.ceil(min(1.0 / epsilon, MOST_ROUNDS) - 1e-9))


class ConvertedPolicy(HoldoutPolicy, PrivateLossPolicy):
    """A base that is told noisy means of batches. A subclass says which: `base_policy`.

    There is no `explore` as on pools. A batch is one choice of the base, which divides what it is
    told by the chance of that choice: a round of the batch with another arm would put another
    arm's loss into its mean. Give the base its own share of even draws (`gamma` of exp3), which is
    in the chance by which it divides.
    """

    model: ClassVar[Model] = "central"
    scope: ClassVar[Scope] = "trajectory"
    lost_reward: ClassVar[str] = LOST_LOSS
    epsilon: Epsilon
    batch: Batch | None = None
    outstanding: Outstanding = 4096

    def base_policy(self) -> Policy:
        """The policy that chooses an arm for each batch."""
        raise NotImplementedError

    def require_a_batch(self, horizon: int | None) -> None:
        """Refuse a horizon that ends within the first batch."""
        if horizon is not None and self.rounds_of_a_batch > horizon:
            raise self.refuse(
                "epsilon" if self.batch is None else "batch",
                f"makes batches of {self.rounds_of_a_batch} rounds, longer than the horizon of "
                f"{horizon}: nothing would ever be learned. Give epsilon of at least 1/horizon = "
                f"{1 / horizon:.3g}, a shorter batch or a longer horizon",
            )

    @property
    def rounds_of_a_batch(self) -> int:
        """tau."""
        return self.batch or least_batch(self.epsilon)

    @property
    def noise(self) -> float:
        """The scale of the noise in what the base is told, 1 / (tau epsilon)."""
        return 1.0 / (self.rounds_of_a_batch * self.epsilon)

    @functools.cached_property
    def kernels(self) -> Kernels:  # type: ignore[override]
        base = self.base_policy()
        return converted(*base.kernels, base.prepare())

    def constants(self) -> Conversion:
        base = self.base_policy().constants()
        return Conversion(
            epsilon=self.epsilon,
            batch=self.rounds_of_a_batch,
            rows=self.rows,
            arms=self.arms,
            holdout=self.holdout,
            base=base,
        )

    @property
    def rows(self) -> int:
        """Batches under way at once: as many as `outstanding` decisions may spread over."""
        return int(2 ** math.ceil(math.log2(self.outstanding / self.rounds_of_a_batch + 2.0)))

    def propensity(self, state: Any, arm: int) -> float | None:
        """By the chance with which the base chose the arm; within a batch it is known."""
        if not state.opened[0]:
            return self.with_holdout(float(arm == arm_of_batch(state)))
        return self.with_holdout(self.base_policy().propensity(state.base, arm))

    def proved_bound(self, environment: Any, horizon: int) -> float | None:
        """Theorem 3.1: tau R(n) + T - tau n, with n = floor(T / tau) batches.

        R(n) is what the base proves for n rounds of losses with noise of scale 1 / (tau epsilon)
        in them. The theorem is for epsilon up to 1; above, there is no bound.
        """
        base, tau = self.base_policy(), self.rounds_of_a_batch
        allowed = base.loss_noise * (1.0 + 1e-9)
        if self.epsilon > 1.0 or allowed < self.noise:
            return None
        n = horizon // tau
        bound = base.proved_bound(environment, n) if n else 0.0
        return None if bound is None else tau * bound + (horizon - tau * n)


class TunedPolicy(ConvertedPolicy):
    """A conversion whose base is tuned to the number of batches and to their noise."""

    horizon: Horizon
    learning_rate_scale: LearningRateScale = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_a_batch(self.horizon)

    @property
    def tuning(self) -> dict[str, Any]:
        """What every base is told."""
        return {
            "arms": self.arms,
            "loss_noise": self.noise,
            "learning_rate_scale": self.learning_rate_scale,
            "outstanding": self.rows,
        }

    @property
    def batches(self) -> int:
        """n, how often the base decides within the horizon and learns from it."""
        return self.horizon // self.rounds_of_a_batch


@register
class Privatised(ConvertedPolicy):
    """Make any policy for losses private: it decides once a batch and is told noisy means.

    For a base of your own, or one of those here with parameters of your own. dp-htinf, dp-exp3
    and dp-ftpl are the same conversion with the parameters that the theory asks for. The base
    must take losses of any size: noise makes them negative, and larger than 1.

    In batch j the base chooses an arm, which is played for tau rounds. Then the base is told

        y = (sum of the tau losses + Lap(1/epsilon)) / tau

    as the loss of its arm. What is left of the horizon after the last whole batch is played with
    one more choice of the base, and nothing is learned from it. Where losses are late, the next
    batch opens with what the base chooses by what it knows; it is told of a batch when that is
    settled: the mean of the losses that came, if at least half did, otherwise nothing (a missing
    loss that counted as 0 would be the best of losses). Longer batches mean less noise
    and fewer of them; tau = ceil(1/epsilon) makes the noise about as large as a loss.

    Privacy:
        epsilon-differential privacy of the whole trajectory, whatever the base does: it sees
        nothing but the noisy means, and each loss enters one of them. Games find far less than
        epsilon, since a base that learns slowly hides more than it has to.

    Parameters:
        base: a policy that learns from losses, or a mapping with its `name` and parameters.
            Tune it to floor(horizon / tau) rounds of losses with noise of scale 1/(tau epsilon).
        epsilon: privacy loss. Above 1 it is as private as it says, but the theorem on the regret
            stops.
        batch: tau; ceil(1/epsilon) by default.
        outstanding: decisions that may wait for their losses at once; beyond, one is served and
            not learned from.
        horizon: if given, one that ends within the first batch is refused.
        outside: "refuse" losses outside [0, 1], or "clip" them to it.

    Example:
        >>> import balaclava as bl
        >>> base = bl.policy("exp3", arms=2, eta=0.1, gamma=0.1)
        >>> agent = bl.privatise(base, epsilon=0.5).agent(seed=1)
        >>> pulls = [0, 0]
        >>> for _ in range(1000):
        ...     decision = agent.ask()
        ...     agent.tell(decision, reward=(0.9, 0.1)[decision.arm])
        ...     pulls[decision.arm] += 1
        >>> pulls
        [62, 938]

    References:
        Asi, Raman, Talwar. Faster rates for private adversarial bandits. ICML 2025.

    See Also:
        dp-htinf, dp-exp3, dp-ftpl, ldp-exp3
    """

    name = "privatised"
    reference = "Asi, Raman, Talwar 2025"
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {"base": {"name": "exp3", "arms": 3, "eta": 0.2, "gamma": 0.1}, "epsilon": 0.5},
    )
    base: Annotated[Policy, Range(meaning="the policy for losses that is made private")]
    horizon: Horizon | None = None

    def __post_init__(self) -> None:
        base: Any = self.base
        if isinstance(base, Mapping):
            object.__setattr__(self, "base", REGISTRY.from_mapping(self._label("base"), base))
        super().__post_init__()
        if self.arms != self.base.arms:
            raise self.refuse("arms", f"does not fit the base, which has {self.base.arms} arms")
        if self.base.rewards != "loss":
            raise self._refuse_base("learns from rewards; give one that learns from losses")
        if any(math.isfinite(end) for end in self.base.accepts):
            raise self._refuse_base("refuses some losses; noise makes them of any size")
        if self.base.practice_context is not None:
            raise self._refuse_base("decides by a context, which changes within a batch")
        self.require_a_batch(self.horizon)

    def _refuse_base(self, why: str) -> ParameterError:
        return ParameterError(f"{self._label('base')}: {self.base.name} {why}")

    def base_policy(self) -> Policy:
        return self.base
