"""What a policy is: parameters, three kernels, and a claim about privacy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, NewType, Self

import numpy as np

from balaclava._core.declared import (
    Horizon,
    Outside,
    RewardRange,
    check,
    check_claim,
    summary_line,
)
from balaclava._core.kernels import kernel
from balaclava._core.registry import Registry
from balaclava._core.text_tables import html_table
from balaclava.errors import ContextError, EstimateError, ParameterError
from balaclava.policies.attributes import PolicyAttributes
from balaclava.privacy.device_report import checked_number
from balaclava.privacy.exact_noise import to_unit_grid
from balaclava.privacy.guarantee import Guarantee, Model, Scope, not_private

if TYPE_CHECKING:
    from balaclava.agents.agent import Agent
    from balaclava.agents.settling import Settle

RewardKind = Literal["bounded", "real", "loss", "any"]  # any: it learns from none
LARGEST_REWARD = 1e150


@kernel(borrows=True)
def nothing_to_forget(params: Any, state: Any, t: int, arm: int, phase: int, rng: Any) -> None:
    """`forget` of policies that count rewards alone: one that never comes leaves no trace."""


class ArmRelease(NamedTuple):
    """What was released of an arm's rewards so far."""

    arm: int
    rewards: int  # that came and are behind it
    mean: float  # with noise, in the policy's own unit
    draws: int  # of noise in it
    batches: int  # settled, of which it was released


class Estimation(NamedTuple):
    """How the mean of an arm is read off a state, and how well it is known.

    - `read(params, state, arm) -> (rewards, mean, noise)`: of what was released, how many rewards
      are in it, the mean in the policy's own unit, and how noisy that is: the draws of noise, or
      a proved radius. It reads nothing else.
    - `limits(params, rewards, mean, noise, failure) -> (low, high)`: an interval for the mean of
      the rewards that ever fails, at any round, with probability `failure` at most.

    Both are kernels.
    """

    read: Callable[..., tuple[int, float, float]]
    limits: Callable[..., tuple[float, float]]


class Kernels(NamedTuple):
    """The functions of a policy.

    - `begin(params) -> state`: a `NamedTuple` of arrays, allocated once.
    - `choose(params, state, t, context, rng) -> (arm, phase)`: round t = 1, 2, ...; may note in
      the state what was asked.
    - `learn(params, state, t, arm, reward, phase, rng)`: the reward of the decision of round t,
      however late; may change the state.

    - `forget(params, state, t, arm, phase, rng)`: the decision of round t was given up, its reward
      will not come. By default there is nothing to forget.

    All are marked `@kernel` and keep to what numba compiles: numbers, arrays, named tuples and
    other kernels, and no allocation in `choose`, `learn` and `forget`.
    """

    begin: Callable[..., Any]
    choose: Callable[..., Any]
    learn: Callable[..., Any]
    forget: Callable[..., Any] = nothing_to_forget


class NamedArms(int):
    """A number of arms that remembers their names, also through `dataclasses.replace`."""

    labels: tuple[str, ...]

    def __new__(cls, labels: Sequence[str]) -> Self:
        number = super().__new__(cls, len(labels))
        number.labels = tuple(labels)
        return number

    def __getnewargs__(self) -> tuple[Any]:
        return (self.labels,)


class Policy(PolicyAttributes):
    """A rule for choosing arms: immutable parameters and three kernels.

    Subclass it to add a policy of your own; `bl.register` makes it usable by its name
    everywhere (simulation, audit, command line):

    >>> import balaclava as bl, numpy as np
    >>> from balaclava.authoring import begin_tally, learn_tally
    >>> @bl.kernel
    ... def choose(params, state, t, context, rng):
    ...     if t <= params.arms or rng.random() < params.exploration:
    ...         return rng.integers(0, params.arms), 0
    ...     return np.argmax(state.sums / (state.pulls + 1)), 0
    >>> @bl.register
    ... class Greedy(bl.Policy):
    ...     "Explore with probability `exploration`, otherwise play the best mean so far."
    ...     name = "greedy"
    ...     exploration: float = 0.1
    ...     kernels = bl.Kernels(begin_tally, choose, learn_tally)
    >>> world = bl.environment("bernoulli", means=[0.4, 0.6])
    >>> played = bl.simulate(bl.policy("greedy", arms=2), world,
    ...                      horizon=1000, repetitions=3, seed=1)
    >>> played.pulls("greedy").sum(axis=1).tolist()
    [1000, 1000, 1000]

    Rules that make late feedback and privacy work:

    - `choose` returns with each arm the phase it belongs to, such as the number of its batch (0
      where there is none, -1 where nothing is to be learned). Which phase that is follows from the
      order of decisions, never from that of rewards.
    - Nothing waits: a batch settles when each of its decisions has its reward (`learn`) or was
      given up (`forget`), and meanwhile decisions go on.
    - Noise comes from the named mechanisms of `balaclava.privacy`, never straight from `rng`.
    - Ties go to the lowest arm or to chance, never to the data.
    """

    kind: ClassVar[str] = "policy"
    reference: ClassVar[str] = ""
    rewards: ClassVar[RewardKind] = "real"
    model: ClassVar[Model] = "none"
    scope: ClassVar[Scope] = "none"
    assumptions: ClassVar[tuple[str, ...]] = ()  # what the guarantee takes for granted
    kernels: ClassVar[Kernels]
    estimation: ClassVar[Estimation | None] = None  # where an interval is proved

    arm_labels: ClassVar[tuple[str, ...] | None] = None  # an object's own, where arms were named

    def __post_init__(self) -> None:
        arms: Any = self.arms
        if isinstance(arms, list | tuple):
            arms = NamedArms(self._checked_labels(arms))
            object.__setattr__(self, "arms", int(arms))
        super().__post_init__()
        if isinstance(arms, NamedArms):
            object.__setattr__(self, "arm_labels", arms.labels)
            object.__setattr__(self, "arms", arms)

    def _repr_html_(self) -> str:
        title = f"{self.name}: {self.guarantee}"
        return html_table(title, ("parameter", "value"), self.parameters.items())

    def _checked_labels(self, names: Sequence[Any]) -> tuple[str, ...]:
        for name in names:
            if not isinstance(name, str) or not name.strip():
                raise self.refuse("arms", "holds something else than names; give texts")
            if list(names).count(name) > 1:
                raise self.refuse("arms", f"names {name!r} twice; give each arm its own name")
        if not names:
            raise self.refuse("arms", "names no arm; give at least one")
        return tuple(names)

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters as plain, JSON-able values; named arms by their names."""
        parameters = super().parameters
        if self.arm_labels is not None:
            parameters["arms"] = list(self.arm_labels)
        return parameters

    def arm_label(self, arm: int) -> str:
        """The name of an arm; its number where arms have no names."""
        return str(arm) if self.arm_labels is None else self.arm_labels[arm]

    @property
    def guarantee(self) -> Guarantee:
        """What is promised about the privacy of each reward."""
        if self.model == "none":
            return not_private(f"{self.name} uses rewards without noise", self.reference)
        epsilon, delta = check_claim(self.epsilon, self.delta)
        return Guarantee(
            epsilon=epsilon,
            delta=delta,
            model=self.model,
            scope=self.scope,
            assumptions=(*self.assumptions, *self._about_outside()),
            reference=self.reference,
        )

    @property
    def accepts(self) -> tuple[float, float]:
        """The smallest and the largest reward that it learns from; see `clips` for all others."""
        return (-math.inf, math.inf)

    @property
    def clips(self) -> bool:
        """Whether a reward outside `accepts` is clipped to it; it is refused otherwise."""
        return self.outside == "clip"

    def _about_outside(self) -> tuple[str, ...]:
        """What the guarantee takes for granted of rewards outside the range, where there is one."""
        low, high = self.accepts
        if not (math.isfinite(low) and math.isfinite(high)):
            return ()
        what = "losses" if self.rewards == "loss" else "rewards"
        if self.clips:
            return (f"{what} outside [{low:g}, {high:g}] are clipped to it",)
        one = "loss" if self.rewards == "loss" else "reward"
        return (
            f"all {what} are in [{low:g}, {high:g}]: a {one} outside is refused, and that it was "
            "refused is not hidden",
        )

    def checked_context(self, context: Any) -> Any:
        """The context of a decision as `choose` takes it, or an error."""
        if context is not None:
            raise ContextError(
                f"{self.name} takes no context, but got a {type(context).__name__}; ask without one"
            )
        return None

    def checked_reward(self, reward: Any) -> float:
        """Check a reward before the policy learns from it.

        Args:
            reward: A number in `accepts`; any finite number if the policy clips.

        Returns:
            The reward as a float, not yet clipped.

        Raises:
            RewardError: If it is not such a number. The message does not repeat it.
        """
        limits = (-math.inf, math.inf) if self.clips else self.accepts
        return checked_number(self.name, "reward", reward, *limits)

    @property
    def practice_context(self) -> Any:
        """A context for every round of games that nobody gives one for: checks and audits."""
        return None

    def prepare(self) -> Callable[..., float]:
        """The kernel that every reward passes through before `learn` sees it."""
        return limited_reward

    def propensity(self, state: Any, arm: int) -> float | None:
        """The chance that `arm` had in the last decision, given what was public before it.

        None where it is not known, and for policies that protect single decisions only: there it
        would be a function of rewards without noise.
        """
        chances = self.chances(state)
        return None if chances is None else float(chances[arm])

    def chances(self, state: Any) -> np.ndarray | None:
        """The chances that the arms had in the last decision, where all of them are known."""
        return None

    def released(self, state: Any) -> Sequence[ArmRelease] | None:
        """What was released of each arm; None for policies that release decisions only."""
        return None

    def faults(self, state: Any, decisions: int) -> Iterator[str]:
        """What the state cannot hold after so many decisions, beside what its parts say."""
        yield from ()

    def require_estimates(self, failure: float) -> Estimation:
        """What gives intervals that fail with probability `failure` an arm, or why nothing does."""
        if self.estimation is not None:
            return self.estimation
        if self.rewards == "loss":
            why = "its losses need not be drawn from any law, so arms have no means to estimate"
        elif self.scope == "decision":
            why = "it releases decisions only; a mean of its rewards would cost privacy on top"
        else:
            why = "no interval is proved for what it releases"
        raise EstimateError(
            f"{self.name} offers no estimates: {why}. dp-imed, dp-klucb and dpr-batch-ucb do, as "
            "do kl-ucb and imed without privacy"
        )

    def in_units(self, value: float) -> float:
        """A mean in the policy's own unit, in that of the rewards."""
        return value

    def regret_bound(self, environment: Any, horizon: int) -> float | None:
        """The proved bound on the expected regret, constants included; None where there is none.

        Never more than `horizon` rounds at the largest gap, whatever the theorem says. It is for
        rewards that come at once.
        """
        if environment is not None and environment.arms != self.arms:
            return None
        bound = self.proved_bound(environment, horizon)
        if bound is None:
            return None
        largest = 1.0 if environment is None else environment.largest_gap  # losses in [0, 1]
        return min(float(bound), horizon * largest)

    def proved_bound(self, environment: Any, horizon: int) -> float | None:
        """What the theorem says, which may be more than any policy can lose; None without one."""
        return None

    def agent(
        self,
        *,
        seed: int | None = None,
        patience: int | None = None,
        settle: Settle = "arrival",
        missing: float | None = None,
    ) -> Agent:
        """Start making decisions. Without a seed the randomness is fit for release.

        `patience`, `settle` and `missing` say how long rewards are waited for and when they count:
        see `bl.Agent`.
        """
        from balaclava.agents.agent import Agent

        return Agent(self, seed=seed, patience=patience, settle=settle, missing=missing)


class BoundedPolicy(Policy):
    """A policy for rewards in [0, 1], or in a known range that is rescaled to it."""

    rewards: ClassVar[RewardKind] = "bounded"
    reward_range: RewardRange = (0.0, 1.0)
    outside: Outside = "refuse"

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = self.reward_range
        if not low < high:
            raise self.refuse("reward_range", "is empty; give (smallest, largest)")
        if not math.isfinite(high - low):
            raise self.refuse("reward_range", "is too wide for 64-bit floats; rescale the rewards")
        if not math.isfinite(1.0 / (high - low)):  # by which rewards are rescaled
            raise self.refuse(
                "reward_range", "is too narrow for 64-bit floats; rescale the rewards"
            )

    @property
    def accepts(self) -> tuple[float, float]:
        return self.reward_range

    def prepare(self) -> Callable[..., float]:
        return into_unit_interval

    def in_units(self, value: float) -> float:
        low, high = self.reward_range
        return low + (high - low) * value


class PrivateBoundedPolicy(BoundedPolicy):
    """A policy that protects rewards in a known range, all decisions of a run together."""

    model: ClassVar[Model] = "central"
    scope: ClassVar[Scope] = "trajectory"

    def prepare(self) -> Callable[..., float]:
        return onto_unit_grid


class PrivateRealPolicy(Policy):
    """A policy that protects rewards of any size, all decisions of a run together.

    What it knows of their tails serves its regret only: its privacy holds for all rewards.
    """

    rewards: ClassVar[RewardKind] = "real"
    model: ClassVar[Model] = "central"
    scope: ClassVar[Scope] = "trajectory"
    assumptions: ClassVar[tuple[str, ...]] = ("a reward beyond the truncation level counts as 0",)


def failure_or_inverse_horizon(policy: Any) -> float:
    """`failure_probability`, or 1/horizon; an error that names both if neither is given."""
    if policy.failure_probability is not None:
        return float(policy.failure_probability)
    if policy.horizon is None:
        raise ParameterError(
            f"{policy.name}: horizon and failure_probability are both None; give "
            "failure_probability in (0, 1), or a horizon, of which 1/horizon is taken"
        )
    return 1.0 / float(policy.horizon)


@kernel(borrows=True)
def unchanged_reward(params: Any, reward: float) -> float:
    """Rewards that need no preparation."""
    return reward


@kernel(borrows=True)
def limited_reward(params: Any, reward: float) -> float:
    """Rewards of any size; one beyond 1e150 counts as that, so that no sum or square overflows."""
    return min(max(reward, -LARGEST_REWARD), LARGEST_REWARD)


@kernel(borrows=True)
def into_unit_interval(params: Any, reward: float) -> float:
    """Rescale `reward_range` to [0, 1] and clip: whatever comes in, sensitivities hold."""
    low, high = params.reward_range
    inverse = 1.0 / (high - low)  # worked out once a game, where a division takes long
    return min(max((reward - low) * inverse, 0.0), 1.0)


@kernel(borrows=True)
def onto_unit_grid(params: Any, reward: float) -> float:
    """Rescaled, clipped, and rounded once onto a fine grid, on which sums are exact."""
    return to_unit_grid(into_unit_interval(params, reward))


# A name that is only known when a program runs; `bl.policy` takes it with any parameters.
PolicyName = NewType("PolicyName", str)


class PolicyEntry(NamedTuple):
    """A line of `bl.list_policies()`."""

    name: PolicyName
    policy: type[Policy]
    title: str
    reference: str
    guarantee: str  # "none", or model and scope: "central, trajectory"
    rewards: RewardKind


POLICIES: Registry[Policy] = Registry(Policy, "balaclava.policies")
register = POLICIES.register


def policy(name: str, /, **parameters: Any) -> Policy:
    """The policy of that name: `bl.policy("ucb1", arms=9)`.

    Every policy may be given a `horizon`, so that one call makes any of them: those that need to
    know none ignore it.
    """
    cls = POLICIES.get(name)
    if "horizon" in parameters and "horizon" not in cls.annotations:
        check(f"{name}: horizon", parameters["horizon"], Horizon | None)
        parameters = {key: value for key, value in parameters.items() if key != "horizon"}
    return cls.create(parameters)


def list_policies() -> list[PolicyEntry]:
    """Every registered policy."""
    return [
        PolicyEntry(
            name=PolicyName(name),
            policy=cls,
            title=summary_line(cls),
            reference=cls.reference,
            guarantee="none" if cls.model == "none" else f"{cls.model}, {cls.scope}",
            rewards=cls.rewards,
        )
        for name, cls in POLICIES.classes().items()
    ]


def unregistered_part(policy: Policy) -> Policy | None:
    """The policy, or one among its parameters, that is not registered: no save can name it."""
    parts = (policy, *(getattr(policy, name) for name in policy.annotations))
    for part in parts:
        if isinstance(part, Policy) and POLICIES.classes().get(part.name) is not type(part):
            return part
    return None
