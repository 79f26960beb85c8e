"""Rewards that are linear in the features of a round."""

import math
from collections.abc import Callable
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from balaclava._core.declared import Arms, Range
from balaclava._core.kernels import kernel
from balaclava.environments.base import Scene, register
from balaclava.environments.contextual_environment import (
    ContextualEnvironment,
    Order,
    Stage,
    gap_of_round,
    row_of_round,
    store_best,
)

Theta = Annotated[np.ndarray, Range(meaning="coefficients of the features"), 1]
Kind = Annotated[Literal["sphere", "ball", "list", "disjoint"], Range(meaning="source of contexts")]
Noise = Annotated[Literal["bernoulli", "uniform"], Range(meaning="law of a reward given its mean")]
Beyond = Annotated[Literal["refuse", "clip"], Range(meaning="treatment of means outside [0, 1]")]
_NORM_TOLERANCE = 1e-9  # of norms and means, far above rounding and far below what matters


class World(NamedTuple):
    theta: np.ndarray  # [block, feature]: one block, or one per arm
    table: np.ndarray  # contexts[context, row, feature]; empty if contexts are drawn
    arms: int
    ball: bool
    listed: bool


@kernel
def open_stage(world: World) -> Stage:
    rows = 1 if world.theta.shape[0] > 1 else world.arms
    features = np.zeros((rows, world.theta.shape[1]))
    return Stage(world, features, np.zeros(world.arms), np.zeros(1))


@kernel(borrows=True)
def store_means(stage: Stage) -> None:
    """Store the means of the round, and the best of them."""
    theta, features = stage.world.theta, stage.features
    for arm in range(stage.means.size):
        block, row = min(arm, theta.shape[0] - 1), min(arm, features.shape[0] - 1)
        mean = 0.0
        for i in range(theta.shape[1]):
            mean += theta[block, i] * features[row, i]
        stage.means[arm] = min(max(mean, 0.0), 1.0)
    store_best(stage)


@kernel(borrows=True)
def draw_features(stage: Stage, t: int, rng: Any) -> None:
    """Draw the row (1, u) / sqrt 2 of each arm, with u on the unit sphere or in the unit ball."""
    features, half = stage.features, math.sqrt(0.5)
    parts = features.shape[1] - 1
    for arm in range(features.shape[0]):
        square = 0.0
        for i in range(1, parts + 1):
            part = rng.standard_normal()
            features[arm, i] = part
            square += part * part
        length = half / math.sqrt(square)
        if stage.world.ball:
            length *= math.pow(rng.random(), 1.0 / parts)
        features[arm, 0] = half
        for i in range(1, parts + 1):
            features[arm, i] *= length
    store_means(stage)


@kernel(borrows=True)
def take_features(stage: Stage, t: int, rng: Any) -> None:
    """Copy a context from the table."""
    table = stage.world.table
    context = row_of_round(table.shape[0], stage.world.listed, t, rng)
    for row in range(table.shape[1]):
        for i in range(table.shape[2]):
            stage.features[row, i] = table[context, row, i]
    store_means(stage)


@kernel(borrows=True)
def draw_coin(stage: Stage, t: int, arm: int, rng: Any) -> float:
    return 1.0 if rng.random() < stage.means[arm] else 0.0


@kernel(borrows=True)
def draw_evenly(stage: Stage, t: int, arm: int, rng: Any) -> float:
    """Uniform around the mean, as wide as [0, 1] allows."""
    mean = stage.means[arm]
    return mean + min(mean, 1.0 - mean) * (2.0 * rng.random() - 1.0)


@register
class Linear(ContextualEnvironment):
    """Rewards in [0, 1] whose mean is linear in the features of the round.

    The mean of arm a is <theta, x_a>, x_a the a-th row of the context. Contexts:

    - "sphere" and "ball": x_a = (1, u_a) / sqrt 2, with u_a uniform on the unit sphere or in the
      unit ball, for each arm and round; the first feature is an intercept;
    - "list": one of the given contexts, at random or in their order;
    - "disjoint": one of the given persons z; arm a has its own coefficients theta_a, and its mean
      is <theta_a, z>.

    Contexts have a separate random stream: in the same repetition all policies get the same ones.
    Rows have length at most 1, and every mean must lie in [0, 1] or is clipped to it.

    Parameters:
        theta: the coefficients; for "disjoint" those of all arms, arm by arm.
        arms: the number of arms; for "list" it follows from the contexts.
        contexts: "sphere" (the default), "ball", "list" or "disjoint".
        table: for "list" contexts[n, arm, feature], for "disjoint" persons[n, feature].
        order: "random", or "listed": in order, repeatedly.
        noise: "bernoulli", or "uniform" around the mean, as wide as [0, 1] allows.
        outside: "refuse" (the default) means outside [0, 1], or "clip" them, for fitted
            coefficients with contexts from a table.

    Example:
        >>> world = bl.environment("linear", arms=3, theta=[0.7, 0.3, -0.4])
        >>> world.dimension, world.means.round(3).tolist()
        (3, [0.495, 0.495, 0.495])
    """

    name = "linear"
    reference = "Abbasi-Yadkori, Pal, Szepesvari 2011"
    see_also = "labelled, bernoulli"
    examples = (
        {"theta": [0.7, 0.3, -0.4], "arms": 3},
        {
            "theta": [0.2, 0.6, 0.7, -0.1],
            "arms": 2,
            "contexts": "disjoint",
            "table": [[0.6, 0.8], [0.8, 0.1], [0.5, 0.0]],
            "order": "listed",
            "noise": "uniform",
        },
    )
    theta: Theta
    arms: Arms | None = None  # type: ignore[assignment]
    contexts: Kind = "sphere"
    table: object = None
    order: Order = "random"
    noise: Noise = "bernoulli"
    outside: Beyond = "refuse"

    def __post_init__(self) -> None:
        super().__post_init__()
        drawn = self.contexts in ("sphere", "ball")
        if drawn != (self.table is None):
            why = "is only for" if drawn else "is missing; give it for"
            raise self.refuse_data("table", f"{why} contexts 'list' and 'disjoint'")
        if drawn and self.outside == "clip":
            raise self.refuse("outside", "is only for contexts 'list' and 'disjoint'")
        if not drawn:
            object.__setattr__(self, "table", self._checked_table())
        elif self.arms is None:
            raise self.refuse_data("arms", "is missing; give the number of arms")
        elif self.theta.size < 2:
            raise self.refuse("theta", "has only an intercept; give two or more coefficients")
        means = (0.0, 1.0) if self.outside == "clip" else self._extreme_means
        if not (means[0] >= -_NORM_TOLERANCE and means[1] <= 1 + _NORM_TOLERANCE):
            span = f"{means[0]:.3g} to {means[1]:.3g}"
            raise self.refuse("theta", f"gives means from {span}; they must lie in [0, 1]")

    def _checked_table(self) -> np.ndarray:
        rank = 3 if self.contexts == "list" else 2
        try:
            contexts: Any = self.table
            if np.iscomplexobj(contexts):
                raise TypeError
            table = np.array(contexts, dtype=np.float64)
        except (TypeError, ValueError):
            table = np.empty(0)
        if table.ndim != rank or table.size == 0 or not np.isfinite(table).all():
            shape = "contexts[n, arm, feature]" if rank == 3 else "persons[n, feature]"
            raise self.refuse_data("table", f"is not an array of finite numbers; give {shape}")
        if rank == 3 and self.arms is None:
            object.__setattr__(self, "arms", int(table.shape[1]))
        if self.arms is None or (rank == 3 and self.arms != table.shape[1]):
            raise self.refuse("arms", f"does not fit the table of shape {table.shape}")
        needed = table.shape[-1] * (1 if rank == 3 else self.arms)
        if self.theta.size != needed:
            raise self.refuse("theta", f"has {self.theta.size} coefficients; give {needed}")
        if np.linalg.norm(table, axis=-1).max() > 1 + _NORM_TOLERANCE:
            raise self.refuse_data("table", "has a row of length above 1; rescale it")
        table.flags.writeable = False
        return table

    @property
    def disjoint(self) -> bool:  # type: ignore[override]
        return self.contexts == "disjoint"

    @property
    def dimension(self) -> int:
        return self.theta.size // (self.arms or 1) if self.disjoint else self.theta.size

    @cached_property
    def _table(self) -> np.ndarray:
        """contexts[context, row, feature]; empty if contexts are drawn."""
        if self.table is None:
            return np.empty((0, 0, self.dimension))
        table: Any = self.table
        return np.ascontiguousarray(table if table.ndim == 3 else table[:, None, :])

    @cached_property
    def means_of_contexts(self) -> np.ndarray:
        """means[context, arm], if contexts come from a table."""
        theta = self.constants().theta
        means = self._table[:, 0, :] @ theta.T if self.disjoint else self._table @ theta[0]
        return np.asarray(means if self.outside == "refuse" else np.clip(means, 0.0, 1.0))

    @property
    def _extreme_means(self) -> tuple[float, float]:
        if self.table is None:
            middle, reach = self.theta[0], np.linalg.norm(self.theta[1:])
            return (middle - reach) / math.sqrt(2.0), (middle + reach) / math.sqrt(2.0)
        return float(self.means_of_contexts.min()), float(self.means_of_contexts.max())

    def constants(self) -> World:
        blocks = self.arms if self.disjoint and self.arms else 1
        theta = np.ascontiguousarray(self.theta.reshape(blocks, -1))
        listed = self.order == "listed"
        return World(theta, self._table, self.arms or 1, self.contexts == "ball", listed)

    @property
    def parameters(self) -> dict[str, Any]:
        table: Any = self.table
        return {**super().parameters, "table": None if table is None else table.tolist()}

    @property
    def means(self) -> np.ndarray:
        if self.table is None:
            return np.full(self.arms or 1, self.theta[0] / math.sqrt(2.0))
        return np.asarray(self.means_of_contexts.mean(axis=0))

    @property
    def scene(self) -> Scene:
        renew = draw_features if self.table is None else take_features
        return Scene(open_stage, renew, gap_of_round)

    @property
    def draw(self) -> Callable[..., float]:
        return draw_coin if self.noise == "bernoulli" else draw_evenly
