"""`bl.Policy`: parameters, kernels and a privacy guarantee; and the registry of policies."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, NewType, Self

import numpy as np

from balaclava._core.declared import Horizon, Outside, RewardRange, check, check_claim, summary_line
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

RewardKind = Literal["bounded", "real", "loss", "any"]  # any: the policy ignores rewards
BEST_ARM = "the best arm"  # what most policies look for
LARGEST_REWARD = 1e150  # its square is below the largest 64-bit float, 1.8e308


@kernel(borrows=True)
def nothing_to_forget(params: Any, state: Any, t: int, arm: int, phase: int, rng: Any) -> None:
    """`forget` of policies that only count rewards: a lost reward has no effect."""


class ArmRelease(NamedTuple):
    """The releases of an arm so far."""

    arm: int
    rewards: int  # in the released mean
    mean: float  # with noise, in the policy's own unit
    draws: int  # draws of noise in the mean
    batches: int  # settled batches in it


class CoefficientEstimate(NamedTuple):
    """The estimate of one coefficient, for rewards rescaled to [0, 1]."""

    arm: str | None  # None if all arms share the coefficients
    feature: str
    value: float
    interval: tuple[float, float]


class Estimation(NamedTuple):
    """Kernels: the mean of an arm in a state, its interval, and the law of its noise.

    - `read(params, state, arm) -> (rewards, mean, noise)`: the number of rewards in the releases,
      their mean in the policy's own unit, and its noise: draws, or a proved radius. It must read
      released values only.
    - `limits(params, rewards, mean, noise, failure) -> (low, high)`: an interval for the mean that
      fails in any round with probability at most `failure`.
    - `law(params, mean, noise) -> (mean, draws, scale)`: the released mean on the scale of [0, 1],
      with its draws of Laplace noise and their scale. It allows two arms to be compared directly
      (`theory.confidence_sequences`). Without it, an arm wins if its interval is above all others.
    - `joint`: the weight p of that comparison; by default 1/arms, with which no arm is named later
      than by intervals.
    - `in_order`: whether `read` counts the rewards of an arm in the order of its decisions, and the
      interval holds for every such prefix. Then arrivals may depend on rewards, unless one is lost.
    - `from_tally`: for a policy that counts each reward when it comes, `read` on a tally of what
      its `learn`, or `learn_report`, is given. An agent keeps one in the order of decisions.
    - `winner(params, released, joint, failure) -> arm`: the policy's own test for the best arm,
      which is ever wrong with probability at most `failure`; -1 if there is none. `released` has a
      row of rewards, mean and noise for each arm. With it, `winner` and `limits` are interpreted.
    - `difference(params, released, a, b, failure) -> (low, high)`: the policy's own interval for
      the mean of arm a minus that of b; all pairs fail with probability at most `failure`. None if
      there is none. Without it, it is that of their two intervals.
    """

    read: Callable[..., tuple[int, float, float]]
    limits: Callable[..., tuple[float, float]]
    law: Callable[..., tuple[float, int, float]] | None = None
    joint: float | None = None
    in_order: bool = False
    from_tally: Callable[..., tuple[int, float, float]] | None = None
    winner: Callable[..., int] | None = None
    difference: Callable[..., tuple[float, float] | None] | None = None

    def joint_weight(self, arms: int) -> float:
        """p, for so many arms."""
        return self.joint or 1.0 / arms


class WinnerOutlook(NamedTuple):
    """Whether a policy can be expected to name the best arm, and why; true if it can."""

    expected: bool
    reason: str

    def __bool__(self) -> bool:
        return self.expected

    def __str__(self) -> str:
        return f"{'yes' if self.expected else 'no'}: {self.reason}"


class Kernels(NamedTuple):
    """The functions of a policy.

    - `begin(params) -> state`: a `NamedTuple` of arrays, allocated once.
    - `choose(params, state, t, context, rng) -> (arm, phase)`: the decision of round t = 1, 2, ...
    - `learn(params, state, t, arm, reward, phase, rng)`: the reward of round t; it may be late.
    - `forget(params, state, t, arm, phase, rng)`: the decision of round t was given up. By default
      it does nothing.

    All but `begin` may change the arrays of the state. All are marked `@kernel` and use only what
    numba compiles: numbers, arrays, named tuples and other kernels. `choose`, `learn` and `forget`
    must not allocate.
    """

    begin: Callable[..., Any]
    choose: Callable[..., Any]
    learn: Callable[..., Any]
    forget: Callable[..., Any] = nothing_to_forget


class NamedArms(int):
    """A number of arms that keeps their names, also through `dataclasses.replace`."""

    labels: tuple[str, ...]

    def __new__(cls, labels: Sequence[str]) -> Self:
        number = super().__new__(cls, len(labels))
        number.labels = tuple(labels)
        return number

    def __getnewargs__(self) -> tuple[Any]:
        return (self.labels,)


class Policy(PolicyAttributes):
    """A rule for choosing arms: immutable parameters and kernels.

    Subclass it to write a policy; `bl.register` makes it usable by its name everywhere
    (simulation, audit, command line):

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

    - `choose` returns the phase of a decision with its arm, such as the number of its batch: 0
      without phases, -1 if the policy does not learn from the decision. The order of decisions
      determines the phase; the order of rewards must not.
    - Decisions never wait. A batch settles when each of its decisions has its reward (`learn`) or
      was given up (`forget`); meanwhile decisions continue.
    - Noise comes from the named mechanisms of `balaclava.privacy`, never directly from `rng`.
    - Ties go to the lowest arm or to chance, never to the data.

    Attributes that a policy may override, such as `horizon` or `lost_reward`, are in
    `balaclava.policies.attributes`.
    """

    kind: ClassVar[str] = "policy"
    rewards: ClassVar[RewardKind] = "real"
    model: ClassVar[Model] = "none"
    scope: ClassVar[Scope] = "none"
    assumptions: ClassVar[tuple[str, ...]] = ()  # of the guarantee
    kernels: ClassVar[Kernels]
    estimation: ClassVar[Estimation | None] = None  # if an interval is proved

    arm_labels: ClassVar[tuple[str, ...] | None] = None  # set on an object whose arms have names

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
        known: set[str] = set()
        for name in names:
            if not isinstance(name, str) or not name.strip():
                raise self.refuse("arms", "must contain only strings; give each arm a name")
            if name in known:
                raise self.refuse("arms", f"contains {name!r} twice; give each arm its own name")
            known.add(name)
        if not names:
            raise self.refuse("arms", "is empty; give at least one name")
        return tuple(names)

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters as JSON-able values; named arms by their names."""
        parameters = super().parameters
        if self.arm_labels is not None:
            parameters["arms"] = list(self.arm_labels)
        return parameters

    def arm_label(self, arm: int) -> str:
        """The name of an arm.

        Args:
            arm: Its number, from 0.

        Returns:
            Its name; its number if arms have no names.
        """
        return str(arm) if self.arm_labels is None else self.arm_labels[arm]

    @property
    def guarantee(self) -> Guarantee:
        """The privacy guarantee."""
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
        """The smallest and the largest reward; `clips` says what happens to others."""
        return (-math.inf, math.inf)

    @property
    def clips(self) -> bool:
        """Whether a reward outside `accepts` is clipped instead of refused."""
        return self.outside == "clip"

    def _about_outside(self) -> tuple[str, ...]:
        """The guarantee's assumption about rewards outside a finite range."""
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
        """Check the context of a decision.

        Args:
            context: What the caller gave to `agent.ask`.

        Returns:
            The context as `choose` takes it.

        Raises:
            ContextError: If it does not fit the policy.
        """
        if context is not None:
            raise ContextError(
                f"{self.name} takes no context, but got a {type(context).__name__}; call ask() "
                "without one"
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
        """A context for checks and audits."""
        return None

    def prepare(self) -> Callable[..., float]:
        """The kernel that prepares a reward for `learn`: it rescales, clips or rounds."""
        return limited_reward

    def propensity(self, state: Any, arm: int) -> float | None:
        """The chance of `arm` in the last decision, given the values public before it.

        Args:
            state: The policy's state.
            arm: The arm of the last decision.

        Returns:
            The chance. None if it is unknown, or if the scope is "decision": there it would be a
            function of rewards without noise.
        """
        chances = self.chances(state)
        return None if chances is None else float(chances[arm])

    def chances(self, state: Any) -> np.ndarray | None:
        """The chances of all arms in the last decision; None if unknown."""
        return None

    def released(self, state: Any) -> Sequence[ArmRelease] | None:
        """The releases of each arm; None if the policy releases decisions only."""
        return None

    def changed_arms(self, state: Any) -> Sequence[int] | None:
        """The arms, by their place in the state, whose releases show that their means changed.

        An arm whose mean does not change is ever named with probability at most 1 %
        (`theory.change_test`). None if the policy cannot tell.
        """
        return None

    def restarts(self, state: Any) -> int | None:
        """How often the policy forgot everything; None if it never does."""
        return None

    def faults(self, state: Any, decisions: int) -> Iterator[str]:
        """Invariants that the state violates after so many decisions.

        A save is restored only if neither this nor the state's own `faults(decisions)` yields any.
        """
        yield from ()

    def fill_added(self, state: Any) -> None:
        """Fill the fields `added_later` of a state that an earlier version saved."""

    def with_arms(self, params: Any, claims: Sequence[float], added_after: Sequence[int]) -> Any:
        """The constants once arms came or left.

        `claims` has, by place in the state, the inverse of the weight of an arm's comparisons with
        earlier arms: the weights of all pairs of arms that will ever be are 1 in all. It is
        infinite for an arm that was retired. `added_after` has the decisions before each
        arm came.
        """
        if "added_after" in params._fields:
            params = params._replace(added_after=np.array(added_after))
        return params._replace(arms=len(claims))

    @property
    def added_after(self) -> np.ndarray:
        """The decisions before each arm came, for a policy that has it among its constants."""
        return np.zeros(int(self.arms), np.int64)

    def renew_answer(self, params: Any, state: Any) -> None:
        """Decide again which arm is the best, after arms came or left."""

    def require_estimates(self, failure: float) -> Estimation:
        """The kernels for intervals that fail with probability at most `failure` an arm.

        Raises:
            EstimateError: If there are none; the message says why.
        """
        if self.estimation is not None:
            return self.estimation
        if self.rewards == "loss":
            why = "its losses may be arbitrary, so arms have no means to estimate"
        elif self.scope == "decision":
            why = "it releases decisions only; a mean of its rewards would cost further epsilon"
        else:
            why = "no interval is proved for its releases"
        raise EstimateError(
            f"{self.name} offers no estimates: {why}. Use dp-imed, dp-klucb or dpr-batch-ucb; or "
            "kl-ucb or imed without privacy"
        )

    @property
    def doubt(self) -> Estimation | None:
        """The kernels by which releases contradict a prior, which steers choices only."""
        return self.estimation

    @property
    def names_winners(self) -> WinnerOutlook:
        """Whether `agent.winner()` can be expected to name an arm, with the reason.

        Example:
            >>> import balaclava as bl
            >>> bool(bl.policy("dp-top-two", arms=3, epsilon=1.0).names_winners)
            True
            >>> print(bl.policy("dp-imed", arms=3, epsilon=1.0).names_winners)
            no: it plays poor arms only as often as low regret allows, too seldom to compare them
        """
        if self.estimation is None:
            return WinnerOutlook(False, "it offers no estimates")
        if self.winner_reason:
            return WinnerOutlook(True, self.winner_reason)
        return WinnerOutlook(
            False,
            "it plays poor arms only as often as low regret allows, too seldom to compare them",
        )

    def named_arm(self, state: Any, confidence: float) -> int | None:
        """The arm that the policy itself has named as the best at this confidence; None if none."""
        return None

    def named_set(self, state: Any, confidence: float) -> tuple[int, ...] | None:
        """The set of arms that a policy with another goal has named; None if none."""
        return None

    @property
    def answer_claim(self) -> str:
        """What the policy looks for: the best arm, or a set of arms."""
        return BEST_ARM

    def recommended_arm(self, state: Any) -> int | None:
        """The arm to choose if the trial ends now, sure or not; None if the policy has no rule."""
        return None

    def closing_decisions(self, state: Any, rng: Any) -> Iterator[tuple[int, int]]:
        """Arms and phases of decisions to be given up so that unfinished batches settle."""
        yield from ()

    def in_units(self, value: float) -> float:
        """Convert a mean from the policy's own unit to that of the rewards."""
        return value

    def regret_bound(self, environment: Any, horizon: int) -> float | None:
        """The proved bound on the expected regret, constants included.

        It holds if each reward arrives before the next decision.

        Args:
            environment: Where the policy plays; None for adversarial losses in [0, 1].
            horizon: The number of rounds.

        Returns:
            The bound, at most `horizon` rounds at the largest gap. None if none is proved.
        """
        if environment is not None and environment.arms != self.arms:
            return None
        bound = self.proved_bound(environment, horizon)
        if bound is None:
            return None
        largest = 1.0 if environment is None else environment.largest_gap  # losses in [0, 1]
        return min(float(bound), horizon * largest)

    def proved_bound(self, environment: Any, horizon: int) -> float | None:
        """The theorem's bound, possibly above `horizon` times the largest gap; None without one."""
        return None

    def tail_bound(self, environment: Any, horizon: int, x: float) -> float | None:
        """The proved bound on the probability that the regret exceeds x, constants included.

        It holds if each reward arrives before the next decision.

        Args:
            environment: Where the policy plays.
            horizon: The number of rounds.
            x: A regret, in the units of the rewards.

        Returns:
            The bound, in [0, 1]. None if none is proved.
        """
        if environment is None or environment.arms != self.arms:
            return None
        bound = self.proved_tail(environment, horizon, x)
        if bound is None:
            return None
        return 0.0 if x >= horizon * environment.largest_gap else min(float(bound), 1.0)

    def proved_tail(self, environment: Any, horizon: int, x: float) -> float | None:
        """The theorem's bound on that probability; None without one."""
        return None

    def agent(
        self,
        *,
        seed: int | None = None,
        patience: int | None = None,
        settle: Settle = "arrival",
        missing: float | None = None,
        shares: Mapping[int | str, float] | None = None,
        prior: Any = None,
        same_means: bool = False,
    ) -> Agent:
        """Make an agent that runs this policy.

        Args:
            seed: A whole number for tests. By default the randomness is secure.
            patience: Timeout of a reward, in further decisions; estimated by default.
            settle: "arrival" or "window": when a reward counts; see `bl.Agent`.
            missing: The value that counts if no reward arrived in its window.
            shares: Least chances of arms, as {"control": 0.1}; see `bl.Agent.set_shares`.
            prior: What is known of the arms' means, for a warm start; see `bl.Agent`.
            same_means: Whether estimates count the prior, because the means are the same.

        Returns:
            The agent.

        Raises:
            ParameterError: If an argument is not allowed, or does not fit the others.
        """
        from balaclava.agents.agent import Agent

        how = {"seed": seed, "patience": patience, "settle": settle, "missing": missing}
        warm: Any = {"prior": prior, "same_means": same_means}
        return Agent(self, **how, shares=shares, **warm)  # type: ignore[arg-type]


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
    """A policy that protects rewards in a known range; the guarantee covers the trajectory."""

    model: ClassVar[Model] = "central"
    scope: ClassVar[Scope] = "trajectory"

    def prepare(self) -> Callable[..., float]:
        return onto_unit_grid


class PrivateRealPolicy(Policy):
    """A policy that protects rewards of any size; the guarantee covers the trajectory.

    Assumptions about tails matter for regret only: privacy holds for all rewards.
    """

    rewards: ClassVar[RewardKind] = "real"
    model: ClassVar[Model] = "central"
    scope: ClassVar[Scope] = "trajectory"
    assumptions: ClassVar[tuple[str, ...]] = ("a reward beyond the truncation level counts as 0",)


def failure_or_inverse_horizon(policy: Any) -> float:
    """`failure_probability`, or 1/horizon if it is None."""
    if policy.failure_probability is not None:
        return float(policy.failure_probability)
    if policy.horizon is None:
        raise ParameterError(
            f"{policy.name}: horizon and failure_probability are both None; give "
            "failure_probability in (0, 1), or a horizon for 1/horizon"
        )
    return 1.0 / float(policy.horizon)


@kernel(borrows=True)
def unchanged_reward(params: Any, reward: float) -> float:
    return reward


@kernel(borrows=True)
def limited_reward(params: Any, reward: float) -> float:
    """Clip to 1e150 in size, so that no sum or square overflows."""
    return min(max(reward, -LARGEST_REWARD), LARGEST_REWARD)


@kernel(borrows=True)
def into_unit_interval(params: Any, reward: float) -> float:
    """Rescale `reward_range` to [0, 1] and clip, so that sensitivities hold for any input."""
    low, high = params.reward_range
    inverse = 1.0 / (high - low)  # hoisted out of the loop by the compiler
    return min(max((reward - low) * inverse, 0.0), 1.0)


@kernel(borrows=True)
def onto_unit_grid(params: Any, reward: float) -> float:
    """Rescale, clip, and round onto a grid on which sums are exact."""
    return to_unit_grid(into_unit_interval(params, reward))


# The type of a name known only at run time; `bl.policy` accepts it with any parameters.
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
    """Make a policy by its registered name: `bl.policy("ucb1", arms=9)`.

    Args:
        name: A name of `bl.list_policies()`.
        **parameters: Its parameters. Every policy accepts `horizon`; those without one ignore it.

    Returns:
        The policy.

    Raises:
        UnknownNameError: If no policy has that name.
        ParameterError: If a parameter is missing, unknown or out of its range.
    """
    cls = POLICIES.get(name)
    if "horizon" in parameters and "horizon" not in cls.annotations:
        check(f"{name}: horizon", parameters["horizon"], Horizon | None)
        parameters = {key: value for key, value in parameters.items() if key != "horizon"}
    return cls.create(parameters)


def list_policies() -> list[PolicyEntry]:
    """List every registered policy.

    Returns:
        One entry a policy: name, class, title, reference, guarantee and kind of rewards.
    """
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
    """The policy, or one among its parameters, that is not registered; None if all are."""
    parts = (policy, *(getattr(policy, name) for name in policy.annotations))
    for part in parts:
        if isinstance(part, Policy) and POLICIES.classes().get(part.name) is not type(part):
            return part
    return None
