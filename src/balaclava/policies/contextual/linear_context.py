"""The base of linear contextual policies: features as contexts, checked and kept with decisions.

The kernels see a context as an array of two dimensions. It has one row per arm, or a single row,
the participant's, if each arm has its own coefficients ("disjoint"). The features of a decision are
kept with it until its reward arrives.
"""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np

from balaclava._core.declared import FailureProbability, RadiusScale, Range
from balaclava._core.kernels import kernel
from balaclava.errors import ContextError, EstimateError
from balaclava.estimators import kernel_rows
from balaclava.frames.ridge import Ridge, dots, squared_widths
from balaclava.policies.base import BoundedPolicy, CoefficientEstimate, Estimation
from balaclava.policies.loss_policies import Outstanding

FeatureCount = Annotated[int, Range(1, 10_000, "number of features, or their names")]
FeatureBound = Annotated[float, Range(1e-100, 1e100, "largest Euclidean norm of a context row")]
ParameterBound = Annotated[
    float, Range(0, 1e100, "largest Euclidean norm of the coefficients", open_low=True)
]
RidgeWeight = Annotated[float, Range(1e-9, 1e12, "lambda of the ridge regression")]
Disjoint = Annotated[
    bool,
    Range(
        meaning="whether the features are a participant's, and each arm has its own coefficients"
    ),
]
LongFeatures = Annotated[
    Literal["refuse", "clip"], Range(meaning="refuse or clip a row beyond feature_bound")
]

Catalogue = Annotated[
    np.ndarray | None,
    Range(meaning="row of each arm, public and fixed; then a decision takes no context"),
]

# Rewards in [0, 1] are 1/2-sub-Gaussian (Hoeffding's lemma).
REWARD_SPREAD = 0.5
CONTEXT_IS_PUBLIC = (
    "contexts count as public: they are not protected, and do not depend on any reward except "
    "through released values and decisions"
)
# Relative float error that a norm may have above feature_bound; `copy_features` removes it.
_NORM_TOLERANCE = 1e-9


@kernel(borrows=True)
def coefficient_block(blocks: int, arm: int) -> int:
    """Index of the arm's coefficients: its own block, or the shared one."""
    return min(arm, blocks - 1)


@kernel(borrows=True)
def context_row(context: np.ndarray, arm: int) -> int:
    return min(arm, context.shape[0] - 1)


def highest_of(indices: np.ndarray, asked: np.ndarray) -> int:
    """The arm with the highest index, in Python; of several the one with the fewest decisions."""
    ties = np.flatnonzero(indices == indices.max())
    return int(ties[np.argmin(asked[np.minimum(ties, asked.size - 1)])])


def upper_means(theta: np.ndarray, ridge: Ridge, radii: np.ndarray, x: np.ndarray) -> np.ndarray:
    """<theta, x> + beta |x| in the norm of V^-1, of each arm, in Python."""
    if len(theta) == 1:
        return dots(x, theta[0]) + radii[0] * np.sqrt(squared_widths(ridge, 0, x))
    products = kernel_rows.products_of_rows(x, ridge.inverse)
    squares = np.maximum(kernel_rows.dots_of_rows(products, x), 0.0)
    return kernel_rows.dots_of_rows(theta, x) + radii * np.sqrt(squares)


@kernel(borrows=True)
def copy_features(params: Any, row: np.ndarray, note: np.ndarray) -> None:
    """Copy the features of a decision, scaled down to the bound if they are longer."""
    square = 0.0
    for i in range(row.size):
        square += row[i] * row[i]
    limit = params.feature_bound * params.feature_bound
    scale = 1.0 if square <= limit else params.feature_bound / math.sqrt(square)
    for i in range(row.size):
        note[i] = scale * row[i]


class Rule(NamedTuple):
    """Kernels of a policy whose chances are known: how it decides, and how it notes a decision.

    - `weigh(params, state, context, chances)`: writes the chance of each arm.
    - `note(params, state, arm, context) -> phase`: keeps the features of a decision for an arm.
    """

    weigh: Callable[..., None]
    note: Callable[..., int]


@functools.cache
def sure(best_arm: Callable[..., int]) -> Callable[..., None]:
    """`weigh` of a rule without chance, from the kernel `best_arm(params, state, context)`."""

    @kernel(borrows=True)
    def weigh(params: Any, state: Any, context: np.ndarray, chances: np.ndarray) -> None:
        for arm in range(chances.size):
            chances[arm] = 0.0
        chances[best_arm(params, state, context)] = 1.0

    return weigh


class ContextualPolicy(BoundedPolicy):
    """A policy that decides by features, for rewards in a known range.

    The mean of a reward, rescaled to [0, 1], is <theta, x>. By default x is the arm's row and theta
    the same for all arms. With `disjoint`, x is the participant's row and theta the arm's own.
    Features are used unchanged: add a constant feature if the means need an intercept.

    If the arms' rows are the same in each decision, give them once, as `catalogue`.
    """

    fixed_arms = "its contexts have the features of a fixed set of arms"
    features: FeatureCount
    disjoint: Disjoint = False
    feature_bound: FeatureBound = 1.0
    long_features: LongFeatures = "refuse"
    outstanding: Outstanding = 4096
    catalogue: Catalogue = None
    rule: ClassVar[Rule | None] = None  # if the chances of arms are known

    def __post_init__(self) -> None:
        if isinstance(self.features, list | tuple):
            names = tuple(self.features)
            if not all(isinstance(name, str) and name.strip() for name in names):
                raise self.refuse("features", "must contain only non-empty strings")
            if not names or len(set(names)) < len(names):
                raise self.refuse("features", "must name at least one feature, each once")
            object.__setattr__(self, "feature_names", names)
            object.__setattr__(self, "features", len(names))
        super().__post_init__()
        if self.catalogue is None:
            return
        if self.disjoint:
            raise self.refuse("catalogue", "has rows of arms, but disjoint features are of people")
        try:
            rows = self._checked_rows(self.catalogue, f"give one of {self.features} numbers an arm")
        except ContextError as error:
            raise self.refuse("catalogue", f"is not allowed: {error}") from None
        rows.flags.writeable = False
        object.__setattr__(self, "catalogue", rows)

    @property
    def parameters(self) -> dict[str, Any]:
        parameters = super().parameters
        if self.feature_names is not None:
            parameters["features"] = list(self.feature_names)
        return parameters

    @property
    def blocks(self) -> int:
        """Number of coefficient vectors: one per arm if disjoint, otherwise one."""
        return self.arms if self.disjoint else 1

    def checked_context(self, context: Any) -> np.ndarray:
        """Return the features as an array for the kernels.

        Args:
            context: an array of features, or a mapping from feature names.

        Raises:
            ContextError: if they do not fit the policy or are longer than `feature_bound`.
        """
        if self.catalogue is not None:
            if context is not None and context is not self.catalogue:
                raise ContextError(
                    f"the features of the arms are those of the catalogue of {self.name}; "
                    "leave them out"
                )
            return self.catalogue
        shape = (self.features,) if self.disjoint else (self.arms, self.features)
        needed = f"give {self.name} features of shape {shape}"
        if self.feature_names is not None:
            needed += ", or a mapping from " + ", ".join(self.feature_names)
        if context is None:
            raise ContextError(f"features are missing; {needed}")
        if isinstance(context, Mapping):
            context = self._from_mapping(context, needed)
        return self._checked_rows(context, needed)

    def _checked_rows(self, context: Any, needed: str) -> np.ndarray:
        """Rows of finite real numbers, each within the bound."""
        try:
            if np.iscomplexobj(context) or np.ma.is_masked(context):
                raise TypeError  # the conversion would drop imaginary parts, or read masked values
            rows = np.array(context, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            kind = type(context).__name__
            raise ContextError(f"features must be real numbers, not a {kind}; {needed}") from None
        if self.disjoint and rows.ndim == 1:
            rows = rows[None, :]
        if rows.shape != (1 if self.disjoint else self.arms, self.features):
            raise ContextError(f"the features have shape {np.shape(context)}; {needed}")
        if not np.isfinite(rows).all():
            raise ContextError(f"a feature is not a finite number; {needed}")
        return self._within_bound(rows)

    def _from_mapping(self, context: Mapping[Any, Any], needed: str) -> Any:
        if self.feature_names is None:
            raise ContextError(
                f"{self.name} has no feature names but got a mapping; construct it with "
                f"features=[names], or {needed}"
            )
        missing = [name for name in self.feature_names if name not in context]
        unknown = [str(name) for name in context if name not in self.feature_names]
        if missing or unknown:
            parts = [f"lacks {', '.join(missing)}"] * bool(missing)
            parts += [f"has the unknown features {', '.join(unknown)}"] * bool(unknown)
            raise ContextError(f"the mapping {' and '.join(parts)}; {needed}")
        columns = [context[name] for name in self.feature_names]
        if self.disjoint:
            return columns
        if any(np.shape(column) != (self.arms,) for column in columns):
            raise ContextError(
                f"each feature of the mapping must have {self.arms} numbers, one per arm; {needed}"
            )
        return np.transpose(columns)

    def _within_bound(self, rows: np.ndarray) -> np.ndarray:
        largest = np.maximum(np.abs(rows).max(axis=1, keepdims=True), 1e-300)
        directions = rows / largest  # squares of these are finite
        lengths = np.linalg.norm(directions, axis=1, keepdims=True)
        long = lengths > self.feature_bound * (1.0 + _NORM_TOLERANCE) / largest
        if not long.any():
            return np.ascontiguousarray(rows)
        if self.long_features == "refuse":
            raise ContextError(
                f"a row of the features is longer than feature_bound = {self.feature_bound:g}; "
                'rescale the features, raise the bound, or set long_features="clip"'
            )
        clipped = directions * (self.feature_bound / np.maximum(lengths, 1e-300))
        return np.ascontiguousarray(np.where(long, clipped, rows))

    def require_estimates(self, failure: float) -> Estimation:
        raise EstimateError(
            f"{self.name} has no means of arms: a mean depends on the features. To compare the "
            "rule with fixed arms, use with-values around dp-kernel-ucb or dp-linucb"
        )

    def coefficient_estimates(
        self, theta: np.ndarray, reach: np.ndarray
    ) -> list[CoefficientEstimate]:
        """One entry for each value of theta[block, feature], plus or minus its reach."""
        names = self.feature_names or [str(number) for number in range(self.features)]
        return [
            CoefficientEstimate(
                self.arm_label(block) if self.disjoint else None,
                names[i],
                float(theta[block, i]),
                (
                    float(theta[block, i] - reach[block, i]),
                    float(theta[block, i] + reach[block, i]),
                ),
            )
            for block in range(self.blocks)
            for i in range(self.features)
        ]

    @property
    def practice_context(self) -> np.ndarray:
        """Rows of full length in which all features have the same size and varying signs."""
        if self.catalogue is not None:
            return self.catalogue
        return practice_rows(1 if self.disjoint else self.arms, self.features, self.feature_bound)


class RidgePolicy(ContextualPolicy):
    """A contextual policy with the parameters of a ridge regression and its intervals."""

    parameter_bound: ParameterBound = 1.0
    ridge: RidgeWeight = 1.0
    radius_scale: RadiusScale = 1.0
    failure_probability: FailureProbability = 0.01


class PrivateContextualPolicy(RidgePolicy):
    """A policy that protects rewards in a known range, not the contexts."""

    assumptions: ClassVar[tuple[str, ...]] = (CONTEXT_IS_PUBLIC,)


@functools.cache
def practice_rows(rows: int, features: int, bound: float) -> np.ndarray:
    """Rows of norm `bound` with entries of one size; sign i of row a is the i-th bit of a.

    One reward then moves a sum as far as possible, both in the L1 and in the L2 norm.
    """
    signs = [[1.0 - 2.0 * ((row >> (i % 16)) & 1) for i in range(features)] for row in range(rows)]
    table = np.array(signs) * (bound / math.sqrt(features))
    table.flags.writeable = False
    return table
