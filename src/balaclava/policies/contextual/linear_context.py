"""What the policies that decide by features share: the context they are given and how it is kept.

The kernels see a context as an array of two dimensions: a row an arm, or one row, the person's,
where each arm has coefficients of its own ("disjoint"). The features of a decision are noted with
it, so that a reward, however late, finds what it belongs to.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from balaclava._core.declared import FailureProbability, RadiusScale, Range
from balaclava._core.kernels import kernel
from balaclava.errors import ContextError
from balaclava.policies.base import BoundedPolicy
from balaclava.policies.loss_policies import Outstanding

FeatureCount = Annotated[int, Range(1, 10_000, "features of an arm, or of a person if disjoint")]
FeatureBound = Annotated[
    float, Range(1e-100, 1e100, "no row of a context is longer, in the Euclidean norm")
]
ParameterBound = Annotated[
    float, Range(0, 1e100, "the coefficients of the features are at most so long", open_low=True)
]
RidgeWeight = Annotated[float, Range(1e-9, 1e12, "lambda of the ridge regression")]
Disjoint = Annotated[bool, Range(meaning="whether each arm has coefficients of its own")]
LongFeatures = Annotated[
    Literal["refuse", "clip"], Range(meaning="what happens to a row beyond feature_bound")
]

SPREAD = 0.5  # rewards in [0, 1] are 1/2-sub-Gaussian
CONTEXT_IS_PUBLIC = "contexts count as public: they are not protected"
_SLACK = 1e-9  # of a floating-point norm


@kernel(borrows=True)
def block_of(blocks: int, arm: int) -> int:
    """Whose coefficients are the arm's: everybody's, or its own."""
    return min(arm, blocks - 1)


@kernel(borrows=True)
def row_of(context: np.ndarray, arm: int) -> int:
    """Which row of the context is the arm's."""
    return min(arm, context.shape[0] - 1)


@kernel(borrows=True)
def keep_row(params: Any, row: np.ndarray, note: np.ndarray) -> None:
    """Note the features of a decision; no longer than the bound, whatever comes in."""
    square = 0.0
    for i in range(row.size):
        square += row[i] * row[i]
    limit = params.feature_bound * params.feature_bound
    scale = 1.0 if square <= limit else params.feature_bound / math.sqrt(square)
    for i in range(row.size):
        note[i] = scale * row[i]


class ContextualPolicy(BoundedPolicy):
    """A policy that is given features with each decision, for rewards in a known range.

    The mean of a reward, rescaled to [0, 1], is <theta, x>: x the row of the arm, and theta the
    same for all arms; or x the person's features and theta the arm's own, with `disjoint`. Neither
    is changed on the way: add an intercept, a feature that is always the same, if means need one.
    """

    features: FeatureCount
    disjoint: Disjoint = False
    feature_bound: FeatureBound = 1.0
    long_features: LongFeatures = "refuse"
    parameter_bound: ParameterBound = 1.0
    ridge: RidgeWeight = 1.0
    radius_scale: RadiusScale = 1.0
    failure_probability: FailureProbability = 0.01
    outstanding: Outstanding = 4096
    feature_names: ClassVar[tuple[str, ...] | None] = None  # an object's own, where named

    def __post_init__(self) -> None:
        if isinstance(self.features, list | tuple):
            names = tuple(self.features)
            if not all(isinstance(name, str) and name.strip() for name in names):
                raise self.refuse("features", "holds something else than names; give texts")
            if not names or len(set(names)) < len(names):
                raise self.refuse("features", "names no feature, or one twice")
            object.__setattr__(self, "feature_names", names)
            object.__setattr__(self, "features", len(names))
        super().__post_init__()

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters as plain, JSON-able values; named features by their names."""
        parameters = super().parameters
        if self.feature_names is not None:
            parameters["features"] = list(self.feature_names)
        return parameters

    @property
    def blocks(self) -> int:
        """How many sets of coefficients there are."""
        return self.arms if self.disjoint else 1

    def checked_context(self, context: Any) -> np.ndarray:
        """The features as the kernels take them, or an error that says what is wrong."""
        shape = (self.features,) if self.disjoint else (self.arms, self.features)
        needed = f"give {self.name} features of shape {shape}: ask(features)"
        if self.feature_names is not None:
            needed += ", or a mapping from " + ", ".join(self.feature_names)
        if context is None:
            raise ContextError(f"no features were given; {needed}")
        if isinstance(context, Mapping):
            context = self._from_mapping(context, needed)
        try:
            rows = np.array(context, dtype=np.float64)
        except (TypeError, ValueError):
            raise ContextError(f"a {type(context).__name__} is not numbers; {needed}") from None
        if self.disjoint and rows.ndim == 1:
            rows = rows[None, :]
        if rows.shape != (1 if self.disjoint else self.arms, self.features):
            raise ContextError(f"the features have shape {np.shape(context)}; {needed}")
        if not np.isfinite(rows).all():
            raise ContextError(f"a feature is not a finite number; {needed}")
        return self._within_bound(rows)

    def _from_mapping(self, context: Mapping[Any, Any], needed: str) -> Any:
        """Named features in the order of the policy's."""
        if self.feature_names is None:
            raise ContextError(
                f"{self.name} was made without names of features, but got a mapping; make it with "
                f"features=[names], or {needed}"
            )
        missing = [name for name in self.feature_names if name not in context]
        unknown = [str(name) for name in context if name not in self.feature_names]
        if missing or unknown:
            parts = [f"lacks {', '.join(missing)}"] * bool(missing)
            parts += [f"has {', '.join(unknown)}, which the policy does not know"] * bool(unknown)
            raise ContextError(f"the mapping {' and '.join(parts)}; {needed}")
        columns = [context[name] for name in self.feature_names]
        if self.disjoint:
            return columns
        if any(np.shape(column) != (self.arms,) for column in columns):
            raise ContextError(
                f"a feature of the mapping is not one number for each of {self.arms} arms; {needed}"
            )
        return np.transpose(columns)

    def _within_bound(self, rows: np.ndarray) -> np.ndarray:
        largest = np.maximum(np.abs(rows).max(axis=1, keepdims=True), 1e-300)
        directions = rows / largest  # squares of these are finite
        lengths = np.linalg.norm(directions, axis=1, keepdims=True)
        long = lengths > self.feature_bound * (1.0 + _SLACK) / largest
        if not long.any():
            return np.ascontiguousarray(rows)
        if self.long_features == "refuse":
            raise ContextError(
                f"a row of the features is longer than feature_bound = {self.feature_bound:g}; "
                'rescale the features, raise the bound, or set long_features="clip"'
            )
        clipped = directions * (self.feature_bound / np.maximum(lengths, 1e-300))
        return np.ascontiguousarray(np.where(long, clipped, rows))

    @property
    def practice_context(self) -> np.ndarray:
        """Rows of full length in which every feature counts alike, with signs of their own."""
        return practice_rows(1 if self.disjoint else self.arms, self.features, self.feature_bound)


class PrivateContextualPolicy(ContextualPolicy):
    """A policy that protects rewards in a known range, not the contexts."""

    assumptions: ClassVar[tuple[str, ...]] = (CONTEXT_IS_PUBLIC,)


@functools.cache
def practice_rows(rows: int, features: int, bound: float) -> np.ndarray:
    """Rows of length `bound` with entries of one size: sign i of row a is the i-th bit of a.

    One reward then moves a sum as far as it can, in the L1 norm as in the L2 norm.
    """
    signs = [[1.0 - 2.0 * ((row >> (i % 16)) & 1) for i in range(features)] for row in range(rows)]
    table = np.array(signs) * (bound / math.sqrt(features))
    table.flags.writeable = False
    return table
