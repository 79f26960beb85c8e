"""What an environment is: arms, their clean means, and a kernel that draws rewards."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, NewType

import numpy as np

from balaclava._core.declared import Declared, overridable, summary_line
from balaclava._core.kernels import kernel
from balaclava._core.registry import Registry
from balaclava.errors import IncompatibleError


@kernel(borrows=True)
def no_advice(world: Any, t: int) -> None:
    """The context of environments that have none."""
    return None


@kernel
def same_world(world: Any) -> Any:
    """The scene of environments that look the same in every game."""
    return world


@kernel(borrows=True)
def nothing_new(scene: Any, t: int, rng: Any) -> None:
    """Rounds that do not differ, or differ by their number alone."""


@kernel(borrows=True)
def reward_itself(scene: Any, t: int, arm: int, reward: float) -> float:
    """What a game sums up for `regret`, where it is the rewards."""
    return reward


class Scene(NamedTuple):
    """How an environment's rounds differ, where chance brings a context with each.

    - `open(world) -> scene`: the world with arrays of the game's own, allocated once; `advise`,
      `draw` and these kernels are handed the scene in place of the world.
    - `renew(scene, t, rng)`: write the context of round t into the scene, from a stream that
      serves nothing else, so that all policies meet the same contexts.
    - `score(scene, t, arm, reward) -> float`: what a game sums up as the `totals` of `regret`.
    """

    open: Callable[..., Any] = same_world
    renew: Callable[..., None] = nothing_new
    score: Callable[..., float] = reward_itself


STILL = Scene()


class Environment(Declared):
    """A source of rewards, or of losses: parameters and a kernel.

    Subclass it to add one of your own; `register_environment` makes it usable by its name
    everywhere (simulation, experiment files, command line):

    >>> import math, balaclava as bl
    >>> from balaclava.authoring import Environment, PositiveMeans, kernel, register_environment
    >>> @register_environment
    ... class Waiting(Environment):
    ...     "Waiting times: exponential rewards."
    ...     name = "waiting"
    ...     means: PositiveMeans
    ...     reward_range = (0.0, math.inf)
    ...
    ...     @staticmethod
    ...     @kernel(borrows=True)
    ...     def draw(world, t, arm, rng):
    ...         return rng.exponential(world.means[arm])
    >>> world = bl.environment("waiting", means=[1.0, 2.0])
    >>> played = bl.simulate(bl.policy("ucb1", arms=2), world, horizon=1000, repetitions=3, seed=1)
    >>> played.pulls("ucb1").sum(axis=1).tolist()
    [1000, 1000, 1000]
    >>> bl.testing.check_environment(world)

    Rules that make comparisons fair:

    - `draw(world, t, arm, rng) -> reward` is a kernel; `world` holds the parameters, under their
      names. It keeps to what numba compiles: numbers, arrays, named tuples and other kernels.
    - Each draw takes the same random numbers whichever arm is pulled, so that two policies that
      pull the same arm in the same round of the same repetition see the same reward.
    - `means` are the clean means, of which regret is counted: a parameter, or a property.
    - `moments`, where they are known, are exact: policies for heavy tails are checked against them.
    - `independent` is False where the round or earlier rewards change what is drawn: no theorem for
      random rewards is taken to hold there.
    """

    kind: ClassVar[str] = "environment"
    reference: ClassVar[str] = ""
    feedback: ClassVar[Literal["reward", "loss"]] = "reward"  # what `draw` gives
    disjoint: ClassVar[bool] = False  # with contexts: whether each arm has its own coefficients
    feature_bound: ClassVar[float] = 1.0  # with contexts: no feature vector is longer

    @overridable
    def family(self) -> str:
        """The registered name, also of an environment that a results file describes."""
        return self.name

    @property
    def arm_labels(self) -> tuple[Any, ...] | None:
        """The names of the arms; None if they have none."""
        return None

    @property
    def experts(self) -> int | None:
        """How many experts give advice, where there are any."""
        return None

    @property
    def dimension(self) -> int | None:
        """How many numbers describe an arm of a round, or its person, where there are contexts."""
        return None

    @property
    def scene(self) -> Scene:
        """The kernels that renew the contexts."""
        return STILL

    @property
    def advise(self) -> Callable[..., Any]:
        """The kernel `advise(world, t)`: the context of round t, or None.

        Advice[expert, arm]; or features[arm, feature], with one row for all arms if they are a
        person's.
        """
        return no_advice

    @property
    def holds_data(self) -> bool:
        """Whether it holds somebody's rewards, which no message and no file repeats."""
        return False

    @property
    def public_parameters(self) -> dict[str, Any]:
        """The parameters, less the rewards that it holds."""
        return self.parameters

    @property
    def draw(self) -> Callable[..., float]:
        """The kernel that draws a reward."""
        raise NotImplementedError

    if TYPE_CHECKING:  # a parameter of some families, computed by the others

        @property
        def means(self) -> np.ndarray:
            """The clean mean of each arm."""

    @property
    def reward_range(self) -> tuple[float, float]:
        """The smallest and the largest reward that can be drawn, infinite if unbounded."""
        raise NotImplementedError

    @property
    def arms(self) -> int:
        """The number of arms."""
        return int(self.means.size)

    @property
    def gaps(self) -> np.ndarray:
        """How far each arm's clean mean is below the best."""
        gaps: np.ndarray = self.means.max() - self.means
        return gaps

    @property
    def largest_gap(self) -> float:
        """The most that one round can add to the regret."""
        return float(self.gaps.max())

    def regret(self, rounds: np.ndarray, pulls: np.ndarray, totals: np.ndarray) -> np.ndarray:
        """The regret after each of `rounds`.

        `pulls[i, arm]` counts the pulls by then and `totals[i]` is the sum of what they gave. For
        random rewards regret is the sum of the gaps of what was pulled; `totals` are not used.
        """
        return sum_over_arms(pulls, self.gaps)

    @property
    def independent(self) -> bool:
        """Whether an arm's rewards, outliers aside, are independent draws of one law.

        Then regret is counted by the means of these laws, and what is proved for random rewards
        applies. Not so for losses, for rewards that are given, and where rounds have contexts.
        """
        alike = self.rounds is None and self.advise is no_advice and self.scene == STILL
        return self.feedback == "reward" and alike

    @property
    def share_of_outliers(self) -> float:
        """The chance that a reward is an outlier, not a draw from its arm's clean law."""
        return 0.0

    @property
    def rounds(self) -> int | None:
        """How many rounds there are, where the environment is finite."""
        return None

    def moments(self, order: float, *, central: bool = False) -> np.ndarray:
        """The exact moment of each arm: E|X|^order, or E|X - mean|^order if `central`."""
        raise IncompatibleError(f"the moments of {self.name} are not known")

    def moment(self, order: float, *, central: bool = False) -> float:
        """The largest moment over the arms: what a policy calls `moment_bound`."""
        return float(self.moments(order, central=central).max())


def sum_over_arms(pulls: np.ndarray, values: np.ndarray) -> np.ndarray:
    """What each row of `pulls` comes to, one pull of an arm being worth its value.

    A product of matrices would round a row by its place among the others.
    """
    sums: np.ndarray = np.ascontiguousarray(pulls * values).sum(axis=1)
    return sums


# A name that is only known when a program runs; `bl.environment` takes it with any parameters.
EnvironmentName = NewType("EnvironmentName", str)


class EnvironmentEntry(NamedTuple):
    """A line of `bl.list_environments()`."""

    name: EnvironmentName
    environment: type[Environment]
    title: str
    parameters: str


REGISTRY: Registry[Environment] = Registry(Environment, "balaclava.environments")
register = REGISTRY.register


def environment(name: str, /, **parameters: Any) -> Environment:
    """The environment of that name: `bl.environment("bernoulli", means=[0.4, 0.6])`."""
    return REGISTRY.create(name, parameters)


def list_environments() -> list[EnvironmentEntry]:
    """Every registered environment."""
    return [
        EnvironmentEntry(EnvironmentName(name), cls, summary_line(cls), ", ".join(cls.annotations))
        for name, cls in REGISTRY.classes().items()
    ]
