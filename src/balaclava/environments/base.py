"""The base class of environments: arms, their clean means, and a kernel that draws rewards."""

import operator
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, NewType

import numpy as np

from balaclava._core.declared import Declared, Range, check, overridable, summary_line
from balaclava._core.extras import import_extra
from balaclava._core.kernels import kernel
from balaclava._core.registry import Registry
from balaclava.errors import IncompatibleError, ParameterError

# Pairs of a first round and the arms on offer from then on.
Offers = Sequence[tuple[int, tuple[int, ...]]]
# Pairs of a share of the participants and the arms that they can get.
Groups = Sequence[tuple[float, tuple[int, ...]]]
Order = Annotated[float, Range(0, meaning="order of a moment", open_low=True)]


@kernel(borrows=True)
def no_advice(world: Any, t: int) -> None:
    """The context of an environment without contexts."""
    return None


@kernel
def same_world(world: Any) -> Any:
    """Open a scene that is the world itself."""
    return world


@kernel(borrows=True)
def nothing_new(scene: Any, t: int, rng: Any) -> None:
    """Change nothing between rounds."""


@kernel(borrows=True)
def reward_itself(scene: Any, t: int, arm: int, reward: float) -> float:
    return reward


class Scene(NamedTuple):
    """Kernels of an environment whose rounds have random contexts.

    - `open(world) -> scene`: the world with arrays for one game, allocated once. `advise`, `draw`
      and the kernels below get the scene instead of the world.
    - `renew(scene, t, rng)`: write the context of round t into the scene. `rng` is a stream for
      contexts only, so that all policies get the same contexts.
    - `score(scene, t, arm, reward) -> float`: what a game sums up as the `totals` of `regret`.
    """

    open: Callable[..., Any] = same_world
    renew: Callable[..., None] = nothing_new
    score: Callable[..., float] = reward_itself


FIXED_SCENE = Scene()  # of environments without random contexts


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

    - `draw(world, t, arm, rng) -> reward` is a kernel; `world` holds the parameters by name. It
      uses only what numba compiles: numbers, arrays, named tuples and other kernels.
    - Each draw consumes the same random numbers for every arm. Two policies that pull the same arm
      in the same round of the same repetition then see the same reward.
    - `means` are the clean means, which define regret: a parameter or a property.
    - `moments`, if known, are exact: policies for heavy tails are checked against them.
    - `independent` is False if the round or earlier rewards change the law of a reward. Theorems
      for random rewards are not applied then.
    """

    kind: ClassVar[str] = "environment"
    feedback: ClassVar[Literal["reward", "loss"]] = "reward"  # what `draw` returns
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
        """Number of experts that give advice; None without experts."""
        return None

    @property
    def dimension(self) -> int | None:
        """Number of features of a context; None without contexts."""
        return None

    @property
    def scene(self) -> Scene:
        """The kernels that draw the contexts."""
        return FIXED_SCENE

    @property
    def arms_on_offer(self) -> Offers | None:
        """The arms on offer, from the first round of each segment on; None: always all."""
        return None

    @property
    def groups(self) -> Groups | None:
        """Groups of participants, by the arms that they can get; None: all arms on offer."""
        return None

    @property
    def advise(self) -> Callable[..., Any]:
        """The kernel `advise(world, t)`: the context of round t, or None.

        advice[expert, arm], or features[arm, feature], with one row if all arms share it.
        """
        return no_advice

    @property
    def holds_data(self) -> bool:
        """Whether it holds real rewards, which must not appear in messages or files."""
        return False

    @property
    def public_parameters(self) -> dict[str, Any]:
        """The parameters without the rewards that it holds."""
        return self.parameters

    @property
    def draw(self) -> Callable[..., float]:
        """The kernel `draw(world, t, arm, rng)` that draws a reward."""
        raise NotImplementedError

    if TYPE_CHECKING:  # a parameter in some families, a property in others

        @property
        def means(self) -> np.ndarray:
            """The clean mean of each arm."""

    @property
    def reward_range(self) -> tuple[float, float]:
        """The smallest and the largest possible reward; infinite if unbounded."""
        raise NotImplementedError

    @property
    def arms(self) -> int:
        """The number of arms."""
        return int(self.means.size)

    @property
    def gaps(self) -> np.ndarray:
        """The gap of each arm's clean mean to the best."""
        return self.means.max() - self.means

    @property
    def largest_gap(self) -> float:
        """The largest regret of one round."""
        return float(self.gaps.max())

    def regret(self, rounds: np.ndarray, pulls: np.ndarray, totals: np.ndarray) -> np.ndarray:
        """The regret at several checkpoints of one game.

        For random rewards it is the sum of the gaps of the arms pulled, and ignores `totals`.

        Args:
            rounds: the rounds of the checkpoints, ascending.
            pulls: pulls[i, arm], the pulls of each arm up to rounds[i].
            totals: totals[i], the sum of the scores up to rounds[i].

        Returns:
            The regret after each of `rounds`.
        """
        return sum_over_arms(pulls, self.gaps)

    @property
    def independent(self) -> bool:
        """Whether an arm's rewards, outliers aside, are independent draws of one law.

        If so, regret is defined by their means, and theorems for random rewards apply. It is False
        for losses, for given tables of rewards, and with contexts.
        """
        alike = self.rounds is None and self.advise is no_advice and self.scene == FIXED_SCENE
        return self.feedback == "reward" and alike

    @property
    def share_of_outliers(self) -> float:
        """The probability that a reward is an outlier."""
        return 0.0

    @property
    def rounds(self) -> int | None:
        """The number of rounds; None if the environment is unlimited."""
        return None

    def moments(self, order: float, *, central: bool = False) -> np.ndarray:
        """The exact moment of each arm.

        Args:
            order: a positive number.
            central: E|X - mean|^order instead of E|X|^order.

        Returns:
            A moment per arm; infinite if it does not exist.

        Raises:
            IncompatibleError: the moments of this environment are not known.
            ParameterError: `order` is not positive.
        """
        raise IncompatibleError(f"the moments of {self.name} are not known")

    def moment(self, order: float, *, central: bool = False) -> float:
        """The largest of `moments` over the arms: a policy's `moment_bound`.

        Args:
            order: a positive number.
            central: E|X - mean|^order instead of E|X|^order.

        Returns:
            The largest moment; infinite if an arm's does not exist.
        """
        return float(self.moments(order, central=central).max())

    def refuse_data(self, parameter: str, why: str) -> ParameterError:
        """As `refuse`, for data: the error does not repeat the value."""
        return ParameterError(f"{self._label(parameter)} {why}")


def attribute(path: str) -> Any:
    """A property that returns an attribute of another environment, such as "inner.means"."""
    return property(operator.attrgetter(path))


def sum_over_arms(pulls: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The sum of pulls times values in each row.

    A matrix product would round a row depending on the other rows.
    """
    return np.ascontiguousarray(pulls * values).sum(axis=1)


def checked_order(order: float) -> float:
    return check("order", order, Order)


def integral(function: Callable[[float], float], edges: Sequence[float]) -> float:
    """The integral of a function that is smooth between consecutive edges."""
    quad = import_extra("scipy.integrate", "a moment").quad
    # full_output keeps quad from warning when rounding error stops it before 1e-12.
    return sum(
        float(quad(function, low, high, epsabs=0.0, epsrel=1e-12, limit=200, full_output=1)[0])
        for low, high in pairwise(sorted(set(edges)))
    )


def average_moment(rewards: np.ndarray, order: float, *, central: bool) -> float:
    """The moment of the uniform distribution on these rewards."""
    centre = rewards.mean() if central else 0.0
    return float((np.abs(rewards - centre) ** order).mean())


# A name that is known only at run time; `bl.environment` takes it with any parameters.
EnvironmentName = NewType("EnvironmentName", str)


class EnvironmentEntry(NamedTuple):
    """An entry of `bl.list_environments()`."""

    name: EnvironmentName
    environment: type[Environment]
    title: str
    parameters: str


ENVIRONMENTS: Registry[Environment] = Registry(Environment, "balaclava.environments")
register = ENVIRONMENTS.register


def environment(name: str, /, **parameters: Any) -> Environment:
    """Create an environment by its name: `bl.environment("bernoulli", means=[0.4, 0.6])`.

    Args:
        name: a registered name; `bl.list_environments()` lists them.
        **parameters: the parameters of that environment.

    Returns:
        The environment.

    Raises:
        UnknownNameError: there is no such environment.
        ParameterError: a parameter is missing, unknown or out of its range.
    """
    return ENVIRONMENTS.create(name, parameters)


def list_environments() -> list[EnvironmentEntry]:
    """List every registered environment.

    Returns:
        An entry per environment: name, class, title and names of the parameters.
    """
    return [
        EnvironmentEntry(EnvironmentName(name), cls, summary_line(cls), ", ".join(cls.annotations))
        for name, cls in ENVIRONMENTS.classes().items()
    ]
