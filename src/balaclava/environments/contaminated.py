"""Huber contamination of any other environment (Wu, Zhou, Tao, Wang 2023)."""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple

import numpy as np

from balaclava._core.declared import Range, brief, check
from balaclava._core.kernels import kernel
from balaclava.environments.base import ENVIRONMENTS, Environment, attribute, register
from balaclava.errors import ParameterError, nearest

Fraction = Annotated[float, Range(0, 1, "share of outliers, alpha", open_high=True)]
Outliers = dict[str, Any]

_Number, _Scale = Annotated[float, Range()], Annotated[float, Range(0, open_low=True)]
_Each = Annotated[np.ndarray, Range(), 1]
OUTLIER_KINDS: dict[str, dict[str, Any]] = {
    "point": {"value": _Number},
    "gaussian": {"mean": _Number, "scale": _Scale},
    "cauchy": {"location": _Number, "scale": _Scale},
    "points": {"values": _Each},
}
POINT, GAUSSIAN, CAUCHY, POINTS = range(4)


class World(NamedTuple):
    inner: Any
    fraction: float
    kind: int
    location: float
    scale: float
    values: np.ndarray  # of each arm, if the outliers are points


@kernel(borrows=True)
def outlier(world: Any, arm: int, rng: Any) -> float:
    if world.kind == GAUSSIAN:
        return float(world.location + world.scale * rng.standard_normal())
    if world.kind == CAUCHY:
        return float(world.location + world.scale * rng.standard_cauchy())
    if world.kind == POINTS:
        return float(world.values[arm])
    return float(world.location)


@functools.cache
def contaminated(inner: Callable[..., float]) -> Callable[..., float]:
    """The kernel around another one; cached, so that it is compiled once."""

    @kernel(borrows=True)
    def draw(world: Any, t: int, arm: int, rng: Any) -> float:
        # All three are drawn every time, so that the random streams of policies stay aligned.
        flag = rng.random()
        clean = inner(world.inner, t, arm, rng)
        dirty = outlier(world, arm, rng)
        return dirty if flag < world.fraction else clean

    return draw


@register
class Contaminated(Environment):
    """Another environment in which a share of the rewards is replaced by outliers.

    With probability 1 - fraction the reward comes from `inner`, otherwise from the law of the
    outliers: the same for every arm or, with "points", one value per arm. Means, gaps and moments
    are those of the clean rewards, which define regret and the parameters of robust policies.

    Parameters:
        inner: an environment, or a mapping with its `name` and parameters.
        fraction: the true share of outliers, alpha, in [0, 1); a policy's `contamination` is a
            bound on it.
        outliers: {"kind": "point", "value": v}, {"kind": "gaussian", "mean": m, "scale": s},
            {"kind": "cauchy", "location": m, "scale": s}, or {"kind": "points", "values": [...]}
            with a value per arm, which can make a bad arm look good.

    Example:
        >>> clean = bl.environment("bernoulli", means=[0.2, 0.4])
        >>> world = bl.environment("contaminated", inner=clean, fraction=0.1,
        ...                        outliers={"kind": "point", "value": 100})
        >>> world.means.tolist(), world.reward_range
        ([0.2, 0.4], (0.0, 100.0))
    """

    name = "contaminated"
    reference = "Wu, Zhou, Tao, Wang 2023"
    see_also = "pareto, student-t"
    examples = (
        {
            "inner": {"name": "pareto", "means": [0.5, 0.9], "shape": 1.95},
            "fraction": 0.1,
            "outliers": {"kind": "cauchy", "location": 0.0, "scale": 5.0},
        },
        {
            "inner": {"name": "gaussian", "means": [0.0, 1.0]},
            "fraction": 0.3,
            "outliers": {"kind": "gaussian", "mean": -9.0, "scale": 2.0},
        },
    )
    inner: Environment
    fraction: Fraction
    outliers: Outliers
    means, gaps = attribute("inner.means"), attribute("inner.gaps")
    holds_data, independent = attribute("inner.holds_data"), attribute("inner.independent")
    rounds = attribute("inner.rounds")

    def __post_init__(self) -> None:
        if isinstance(self.inner, Mapping):
            inner = ENVIRONMENTS.from_mapping(self._label("inner"), self.inner)
            object.__setattr__(self, "inner", inner)
        super().__post_init__()
        if self.inner.feedback == "loss":
            raise self.refuse_data(
                "inner", f"= {self.inner.name} returns losses; give an environment of rewards"
            )
        if self.inner.dimension is not None:
            raise self.refuse_data(
                "inner", f"= {self.inner.name} has contexts; give an environment without contexts"
            )
        outliers = checked_outliers(self._label("outliers"), self.outliers, self.arms)
        object.__setattr__(self, "outliers", outliers)

    @property
    def parameters(self) -> dict[str, Any]:
        return {**super().parameters, "outliers": dict(self.outliers)}

    def constants(self) -> World:
        kind, *numbers = self.outliers.values()
        values = np.array(numbers.pop() if kind == "points" else [], float)
        location, scale = (*numbers, 0.0, 0.0)[:2]
        number = list(OUTLIER_KINDS).index(kind)
        return World(self.inner.constants(), self.fraction, number, location, scale, values)

    @property
    def draw(self) -> Callable[..., float]:
        return contaminated(self.inner.draw)

    @property
    def public_parameters(self) -> dict[str, Any]:
        inner = {"name": self.inner.name, **self.inner.public_parameters}
        return {**self.parameters, "inner": inner}

    @property
    def share_of_outliers(self) -> float:
        return 1.0 - (1.0 - self.fraction) * (1.0 - self.inner.share_of_outliers)

    @property
    def reward_range(self) -> tuple[float, float]:
        low, high = self.inner.reward_range
        if self.fraction == 0.0:
            return low, high
        if self.outliers["kind"] not in ("point", "points"):
            return (-math.inf, math.inf)
        values = self.outliers.get("values", [self.outliers.get("value")])
        return min(low, *values), max(high, *values)

    def moments(self, order: float, *, central: bool = False) -> np.ndarray:
        """The exact moment of each arm's clean rewards."""
        return self.inner.moments(order, central=central)


def checked_outliers(label: str, entries: object, arms: int) -> dict[str, Any]:
    """Check every entry, and copy them in a fixed order."""
    if not isinstance(entries, Mapping):
        raise ParameterError(f"{label} = {brief(entries)} is not a mapping; give one with a `kind`")
    kind = entries.get("kind")
    if not isinstance(kind, str) or kind not in OUTLIER_KINDS:
        known = ", ".join(map(repr, OUTLIER_KINDS))
        raise ParameterError(f"{label}: kind = {kind!r} is not allowed; give one of {known}")
    kinds = OUTLIER_KINDS[kind]
    for name in entries:
        if name != "kind" and name not in kinds:
            raise ParameterError(
                f"{label}: unknown entry {name!r} for kind {kind!r}; {nearest(str(name), kinds)}"
            )
    for name in kinds:
        if name not in entries:
            raise ParameterError(f"{label}: entry {name!r} is missing; kind {kind!r} needs it")
    values = {name: check(f"{label}[{name!r}]", entries[name], kinds[name]) for name in kinds}
    if kind == "points":
        values["values"] = values["values"].tolist()
        if len(values["values"]) != arms:
            count = len(values["values"])
            raise ParameterError(f"{label}['values'] has {count} values; give one for each arm")
    return {"kind": kind, **values}
