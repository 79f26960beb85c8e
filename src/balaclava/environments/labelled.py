"""A classification data set as a bandit: the arms are its labels."""

from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np

from balaclava._core.declared import Range
from balaclava._core.kernels import kernel
from balaclava.environments.base import Scene, register
from balaclava.environments.contextual_environment import (
    ContextualEnvironment,
    FeatureTable,
    Order,
    Stage,
    gap_of_round,
    row_of_round,
)

Scaling = Annotated[Literal["standard", "none"], Range(meaning="scaling of the features")]


class World(NamedTuple):
    features: np.ndarray  # [person, feature]
    labels: np.ndarray  # [person]
    arms: int
    listed: bool


@kernel
def open_stage(world: World) -> Stage:
    features = np.zeros((1, world.features.shape[1]))
    return Stage(world, features, np.zeros(world.arms), np.ones(1))


@kernel(borrows=True)
def meet_person(stage: Stage, t: int, rng: Any) -> None:
    """Copy the features of a person; the arm of the person's label has mean 1, others 0."""
    world = stage.world
    person = row_of_round(world.labels.size, world.listed, t, rng)
    for i in range(world.features.shape[1]):
        stage.features[0, i] = world.features[person, i]
    for arm in range(stage.means.size):
        stage.means[arm] = 0.0
    stage.means[world.labels[person]] = 1.0


@kernel(borrows=True)
def draw(stage: Stage, t: int, arm: int, rng: Any) -> float:
    return stage.means[arm]


def standardised(features: np.ndarray) -> np.ndarray:
    """Centre and scale columns, scale rows to length 1, and prepend an intercept.

    A row becomes (1, u) / sqrt 2 with u of length 1. Features are public, so this costs no privacy.

    >>> standardised(np.array([[1.0, 5.0], [3.0, 5.0]])).round(2).tolist()
    [[0.71, -0.71, 0.0], [0.71, 0.71, 0.0]]
    """
    spread = features.std(axis=0)
    columns = (features - features.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    lengths = np.linalg.norm(columns, axis=1, keepdims=True)
    rows = columns / np.where(lengths > 0, lengths, 1.0)
    return np.hstack([np.ones((len(rows), 1)), rows]) / np.sqrt(2.0)


@register
class Labelled(ContextualEnvironment):
    """Real people: their features are the context, their label is the arm with reward 1.

    The usual test of contextual policies on real data. In each round the features of a row are the
    context of all arms ("disjoint": each arm has its own coefficients). The reward is 1 for the arm
    of the row's label and 0 for all others, so that regret counts mistakes.

    Parameters:
        features: features[n, m], one row per person.
        labels: n labels, numbers or strings. The arms are the different labels, sorted.
        scaling: "standard" (the default) centres and scales columns, scales rows to length 1 and
            prepends an intercept; "none" keeps rows, of length at most 1.
        order: "random", or "listed": in order, repeatedly.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> flowers = load_iris()
        >>> world = bl.environment("labelled", features=flowers.data, labels=flowers.target)
        >>> world.arms, world.dimension, world.means.round(3).tolist()
        (3, 5, [0.333, 0.333, 0.333])
    """

    name = "labelled"
    see_also = "linear, empirical"
    draw = staticmethod(draw)
    holds_data = True
    examples = (
        {"features": [[0.1, 0.9], [0.4, 0.2], [0.8, 0.3], [0.2, 0.7]], "labels": [0, 2, 1, 0]},
    )
    disjoint: ClassVar[bool] = True
    features: FeatureTable
    labels: object
    scaling: Scaling = "standard"
    order: Order = "random"

    def __post_init__(self) -> None:
        super().__post_init__()
        labels = np.asarray(self.labels)
        rows = len(self.features)
        if labels.shape != (rows,) or labels.dtype.kind not in "iubfU":
            why = f"must be one number or string for each of the {rows} rows of features"
            raise self.refuse_data("labels", why)
        if labels.dtype.kind == "f" and not np.isfinite(labels).all():
            raise self.refuse_data("labels", "has a label that is not finite; remove that row")
        object.__setattr__(self, "labels", tuple(labels.tolist()))
        if self.scaling == "none" and np.linalg.norm(self.features, axis=1).max() > 1 + 1e-9:
            why = "has a row of length above 1; rescale it, or leave scaling at 'standard'"
            raise self.refuse_data("features", why)

    def __repr__(self) -> str:
        return f"Labelled(rows={len(self.features)}, arms={self.arms}, dimension={self.dimension})"

    @cached_property
    def arm_labels(self) -> tuple[Any, ...]:
        labels: Any = self.labels
        return tuple(np.unique(np.array(labels)).tolist())

    @cached_property
    def _world(self) -> World:
        rows = self.features if self.scaling == "none" else standardised(self.features)
        labels: Any = self.labels
        _, numbers = np.unique(np.array(labels), return_inverse=True)
        listed = self.order == "listed"
        return World(np.ascontiguousarray(rows), numbers.astype(np.int64), self.arms, listed)

    def constants(self) -> World:
        return self._world

    @property
    def arms(self) -> int:
        return len(self.arm_labels)

    @property
    def dimension(self) -> int:
        return int(self.features.shape[1]) + (self.scaling == "standard")

    @property
    def means(self) -> np.ndarray:
        return np.bincount(self._world.labels, minlength=self.arms) / len(self.features)

    @property
    def public_parameters(self) -> dict[str, Any]:
        withheld = f"withheld: {len(self.features)} rows"
        return {**self.parameters, "features": withheld, "labels": withheld}

    @property
    def scene(self) -> Scene:
        return Scene(open_stage, meet_person, gap_of_round)
