"""Any bandit made private by noise on the mean loss of batches (Asi et al. 2025, Algorithm 1).

Proof: `conversion.proof.md` beside this file.
"""

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from balaclava._core.declared import MOST_ROUNDS, Epsilon, Horizon, Range
from balaclava._core.kernels import kernel
from balaclava._core.states import MOST_PLANNED, range_faults, stored_as
from balaclava.errors import ParameterError
from balaclava.frames.pools import UNLEARNED
from balaclava.policies import loss_policies
from balaclava.policies.base import (
    POLICIES,
    Kernels,
    Policy,
    nothing_to_forget,
    register,
    unchanged_reward,
)
from balaclava.policies.pooled_policies import HoldoutPolicy
from balaclava.privacy.mechanisms.laplace import laplace_release

PolicyClass = TypeVar("PolicyClass", bound=type[Any])
Batch = Annotated[int, Range(1, MOST_ROUNDS, "rounds in a row in which one arm is played")]


class Conversion(NamedTuple):
    epsilon: float
    batch: int
    rows: int  # open batches at once, a power of two
    arms: int
    holdout: float
    base: Any  # parameters of the base's kernels


@stored_as(awaited="left", remaining="rest", held_out="held")
class Converted(NamedTuple):
    """State of the base, and the open batches: batch m is in row m mod rows."""

    base: Any
    numbers: np.ndarray  # [row]: number of the batch, 0 for none
    arms: np.ndarray  # [row]: arm that the base chose for the batch
    phases: np.ndarray  # [row]: the base's own phase of that choice
    awaited: np.ndarray  # [row]: decisions without a loss that were not given up
    lost: np.ndarray  # [row]: decisions that were given up
    sums: np.ndarray  # [row]: sum of the losses, raw: read only to be released
    number: np.ndarray  # one element: number of the newest batch, from 1
    remaining: np.ndarray  # one element: decisions that the newest batch still takes
    opened: np.ndarray  # one element: whether the last decision opened the newest batch
    held_out: np.ndarray  # one element: whether the last decision was held out

    def faults(self, decisions: int) -> Iterator[str]:
        yield from range_faults(
            0, decisions, numbers=self.numbers, lost=self.lost, number=self.number
        )
        yield from range_faults(
            0, MOST_PLANNED, awaited=self.awaited, remaining=self.remaining, arms=self.arms
        )


@kernel(borrows=True)
def batch_arm(state: Converted) -> int:
    """The arm that the base chose for the newest batch."""
    return int(state.arms[state.number[0] & (state.arms.size - 1)])


@functools.cache
def converted(
    begin: Callable[..., Any],
    choose: Callable[..., Any],
    learn: Callable[..., Any],
    forget: Callable[..., Any] = nothing_to_forget,
    prepare: Callable[..., Any] = unchanged_reward,
) -> Kernels:
    """Wrap the kernels of a base. Cached, so that they are compiled once."""

    @kernel
    def begin_batches(params: Any) -> Converted:
        return Converted(
            base=begin(params.base),
            numbers=np.zeros(params.rows, np.int64),
            arms=np.zeros(params.rows, np.int64),
            phases=np.zeros(params.rows, np.int64),
            awaited=np.zeros(params.rows, np.int64),
            lost=np.zeros(params.rows, np.int64),
            sums=np.zeros(params.rows),
            number=np.zeros(1, np.int64),
            remaining=np.zeros(1, np.int64),
            opened=np.zeros(1, np.bool_),
            held_out=np.zeros(1, np.bool_),
        )

    @kernel(borrows=True)
    def choose_in_batch(
        params: Any, state: Converted, t: int, context: Any, rng: Any
    ) -> tuple[int, int]:
        row = (state.number[0] + 1) & (params.rows - 1)
        state.opened[0] = state.remaining[0] == 0 and state.numbers[row] == 0
        if state.opened[0]:
            number = state.number[0] + 1
            arm, phase = choose(params.base, state.base, number, None, rng)
            state.arms[row], state.phases[row] = arm, phase
            state.number[0], state.numbers[row] = number, number
            state.awaited[row], state.remaining[0] = params.batch, params.batch
        state.held_out[0] = params.holdout > 0.0 and rng.random() < params.holdout
        if state.held_out[0]:
            return int(rng.random() * params.arms), UNLEARNED
        if state.remaining[0] == 0:  # no free row for the next batch
            return batch_arm(state), UNLEARNED
        state.remaining[0] -= 1
        return batch_arm(state), state.number[0]

    @kernel(borrows=True)
    def settle(params: Any, state: Converted, row: int, rng: Any) -> None:
        """Let the base learn the noisy mean of the losses received, if at least half were."""
        state.awaited[row] -= 1
        if state.awaited[row] > 0:
            return
        received = params.batch - state.lost[row]
        number, arm, phase = state.numbers[row], state.arms[row], state.phases[row]
        if 2 * received >= params.batch:
            released = laplace_release(rng, state.sums[row], 1.0, params.epsilon)
            loss = prepare(params.base, released / received)
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
    """ceil(1/epsilon); the float error of a whole quotient does not add 1."""
    return max(1, math.ceil(min(1.0 / epsilon, MOST_ROUNDS) - 1e-9))


class ConvertedPolicy(HoldoutPolicy, loss_policies.PrivateLossPolicy):
    """A base policy that learns from noisy means of batches; subclasses define `base_policy`.

    Unlike `PooledPolicy` it has no `explore` parameter. A batch is one choice of the base, which
    divides the loss by the probability of that choice. A round with another arm would put another
    arm's loss into the mean. Use the base's share of uniform draws instead (`gamma` of exp3), which
    is part of that probability.

    Parameters:
        epsilon: privacy loss. Above 1 there is no bound on the regret.
        batch: tau; ceil(1/epsilon) by default.
        outstanding: decisions that can await their losses at once; beyond it a decision is served
            but not learned from.
    """

    model = "central"
    scope = "trajectory"
    lost_reward = loss_policies.LOST_LOSS
    epsilon: Epsilon
    batch: Batch | None = None
    outstanding: loss_policies.Outstanding = 4096

    def base_policy(self) -> Policy:
        """The policy that chooses an arm for each batch."""
        raise NotImplementedError

    def require_one_batch(self, horizon: int | None) -> None:
        """Refuse a horizon that ends within the first batch."""
        if horizon is not None and self.batch_length > horizon:
            raise self.refuse(
                "epsilon" if self.batch is None else "batch",
                f"gives batches of {self.batch_length} rounds, longer than the horizon of "
                f"{horizon}, so that the policy would never learn; raise epsilon to at least "
                f"1/horizon = {1 / horizon:.3g}, shorten the batch or lengthen the horizon",
            )

    @property
    def batch_length(self) -> int:
        """tau, in rounds."""
        return self.batch or least_batch(self.epsilon)

    @property
    def noise(self) -> float:
        """Scale of the noise in the mean loss of a batch, 1 / (tau epsilon)."""
        return 1.0 / (self.batch_length * self.epsilon)

    @functools.cached_property
    def kernels(self) -> Kernels:  # type: ignore[override]
        base = self.base_policy()
        return converted(*base.kernels, base.prepare())

    def constants(self) -> Conversion:
        base = self.base_policy().constants()
        return self.fill(Conversion, batch=self.batch_length, base=base)

    @property
    def rows(self) -> int:
        """Open batches at most: as many as `outstanding` decisions may spread over."""
        return int(2 ** math.ceil(math.log2(self.outstanding / self.batch_length + 2.0)))

    def propensity(self, state: Any, arm: int) -> float | None:
        """The base's probability of the arm; within a batch the arm is known."""
        if not state.opened[0]:
            return self.with_holdout(float(arm == batch_arm(state)))
        return self.with_holdout(self.base_policy().propensity(state.base, arm))

    def proved_bound(self, environment: Any, horizon: int) -> float | None:
        """Theorem 3.1: tau R(n) + T - tau n, with n = floor(T / tau) batches.

        R(n) is the base's bound for n rounds of losses with noise of scale 1 / (tau epsilon). The
        theorem is for epsilon up to 1; above, there is no bound.
        """
        base, tau = self.base_policy(), self.batch_length
        allowed = base.loss_noise * (1.0 + 1e-9)
        if self.epsilon > 1.0 or allowed < self.noise:
            return None
        n = horizon // tau
        bound = base.proved_bound(environment, n) if n else 0.0
        return None if bound is None else tau * bound + (horizon - tau * n)


_CONVERSION_SECTIONS = {
    "rule": """In each batch of tau rounds {base} chooses an arm and plays it throughout. It then
    learns from the mean of the batch's losses + Lap(lambda), lambda = 1 / (tau epsilon).""",
    "example": """Example:
        >>> policy = bl.policy("{name}", arms=3, horizon=10_000, epsilon=0.5)
        >>> world = bl.environment("stochastic-losses", means=[0.5, 0.5, 0.2])
        >>> results = bl.simulate(policy, world, horizon=10_000, repetitions=20, seed=1)
        >>> round(float(results.final_regret("{name}").mean()))""",
}


def documented(cls: PolicyClass) -> PolicyClass:
    """Write the shared passages of a conversion's docstring: `{rule}` and `{example}`."""
    sections = {**cls.docstring_sections, "base": cls.base_name(), "name": cls.name}
    for name, text in sections.items():
        cls.__doc__ = cls.__doc__ and cls.__doc__.replace("{" + name + "}", text)
    return cls


class TunedPolicy(ConvertedPolicy):
    """A conversion whose base is tuned to the number of batches and to their noise.

    Privacy:
        epsilon-differential privacy of the whole trajectory: each loss enters one batch, whose sum
        is released once with noise of scale 1/epsilon. See `balaclava.policies.adversarial
        .conversion`. A batch that the horizon cuts off releases nothing.

    Parameters:
        horizon: number of rounds, at least tau.
    """

    reference = "Asi, Raman, Talwar 2025"
    docstring_sections: ClassVar[Mapping[str, str]] = _CONVERSION_SECTIONS
    base_class: ClassVar[type[loss_policies.LossPolicy]]
    horizon: Horizon
    learning_rate_scale: loss_policies.LearningRateScale = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_one_batch(self.horizon)

    @classmethod
    def base_name(cls) -> str:
        return cls.base_class.name

    def base_policy(self) -> Policy:
        tuning: dict[str, Any] = {
            "arms": self.arms,
            "loss_noise": self.noise,
            "learning_rate_scale": self.learning_rate_scale,
            "outstanding": self.rows,
        }
        if "horizon" in self.base_class.annotations:
            tuning["horizon"] = self.batches
        return self.base_class(**tuning)

    @property
    def batches(self) -> int:
        """n, the number of whole batches within the horizon."""
        return self.horizon // self.batch_length


@register
class Privatised(ConvertedPolicy):
    r"""Make any policy for losses private: it decides once a batch and learns from noisy means.

    For your own base, or a built-in one with your own parameters. dp-htinf, dp-exp3 and dp-ftpl are
    the same conversion with the parameters of the theory. The base must take losses of any size:
    noise makes them negative, or larger than 1.

    In batch j the base chooses an arm, which is played for tau rounds. Then the base learns from

    .. math:: y = (l_1 + \cdots + l_\tau + \mathrm{Lap}(1/\varepsilon)) / \tau

    as the loss of its arm, l_i the losses of the batch. After the last whole batch one more choice
    of the base fills the horizon, without learning. If losses are late, the next batch opens
    meanwhile. When a batch is settled, the base learns from the mean of the losses received, if at
    least half were. Otherwise it skips the batch: a missing loss must not count as 0, the best
    loss. Longer batches have less noise, but there are fewer of them. At tau = ceil(1/epsilon) the
    noise is about as large as a loss.

    Privacy:
        epsilon-differential privacy of the whole trajectory for every base: it sees only the noisy
        means, and each loss enters one of them. Audits by games find far less than epsilon, since
        a base that learns slowly reveals less than epsilon allows.

    Parameters:
        base: a policy that learns from losses, or a mapping with its `name` and parameters.
            Tune it to floor(horizon / tau) rounds of losses with noise of scale 1/(tau epsilon).
        horizon: if given, one that ends within the first batch is refused.

    Example:
        >>> base = bl.policy("exp3", arms=2, eta=0.1, gamma=0.1)
        >>> agent = bl.privatise(base, epsilon=0.5).agent(seed=1)
        >>> pulls = [0, 0]
        >>> for _ in range(1000):
        ...     decision = agent.ask()
        ...     agent.tell(decision, reward=(0.9, 0.1)[decision.arm])
        ...     pulls[decision.arm] += 1
        >>> pulls
        [62, 938]
    """

    name = "privatised"
    reference = "Asi, Raman, Talwar 2025"
    see_also = "dp-htinf, dp-exp3, dp-ftpl, ldp-exp3"
    examples = ({"base": {"name": "exp3", "arms": 3, "eta": 0.2, "gamma": 0.1}, "epsilon": 0.5},)
    base: Annotated[Policy, Range(meaning="the policy for losses that is made private")]
    horizon: Horizon | None = None

    def __post_init__(self) -> None:
        base: Any = self.base
        if isinstance(base, Mapping):
            object.__setattr__(self, "base", POLICIES.from_mapping(self._label("base"), base))
        super().__post_init__()
        if self.arms != self.base.arms:
            raise self.refuse("arms", f"differs from the base; give its number, {self.base.arms}")
        if self.base.rewards != "loss":
            raise self._refuse_base("learns from rewards; give one that learns from losses")
        if any(math.isfinite(end) for end in self.base.accepts):
            raise self._refuse_base("takes only losses in a range; give one for losses of any size")
        if self.base.practice_context is not None:
            raise self._refuse_base("decides by a context, which changes in a batch; give another")
        self.require_one_batch(self.horizon)

    def _refuse_base(self, why: str) -> ParameterError:
        return ParameterError(f"{self._label('base')}: {self.base.name} {why}")

    def base_policy(self) -> Policy:
        return self.base
