"""`bl.environment`, one signature for each name; written by balaclava.testing.stubs."""

from collections.abc import Mapping
from os import PathLike
from typing import Any, Literal, overload

from numpy.typing import ArrayLike

from balaclava.environments.advice import Advice
from balaclava.environments.base import Environment, EnvironmentName
from balaclava.environments.bernoulli import Bernoulli
from balaclava.environments.contaminated import Contaminated
from balaclava.environments.empirical import Empirical
from balaclava.environments.gaussian import Gaussian
from balaclava.environments.hard import ThreePoint
from balaclava.environments.labelled import Labelled
from balaclava.environments.linear import Linear
from balaclava.environments.lognormal import LogNormal
from balaclava.environments.losses import Losses
from balaclava.environments.pareto import Pareto
from balaclava.environments.stochastic_losses import StochasticLosses
from balaclava.environments.student_t import StudentT
from balaclava.environments.switching import Switching
from balaclava.environments.table import Table
from balaclava.environments.two_point import TwoPoint

@overload
def environment(
    name: Literal["advice"],
    /,
    *,
    losses: Environment | Mapping[str, Any] | ArrayLike,
    advice: ArrayLike,
) -> Advice: ...
@overload
def environment(
    name: Literal["bernoulli"],
    /,
    *,
    means: ArrayLike,
) -> Bernoulli: ...
@overload
def environment(
    name: Literal["contaminated"],
    /,
    *,
    inner: Environment | Mapping[str, Any],
    fraction: float,
    outliers: Mapping[str, Any],
) -> Contaminated: ...
@overload
def environment(
    name: Literal["empirical"],
    /,
    *,
    samples: object = ...,
    path: PathLike[str] | str | None = ...,
    arm: str = ...,
    reward: str = ...,
    sep: str | None = ...,
    encoding: str | None = ...,
    decimal: str | None = ...,
    drop_missing: bool = ...,
) -> Empirical: ...
@overload
def environment(
    name: Literal["gaussian"],
    /,
    *,
    means: ArrayLike,
    scales: ArrayLike = ...,
) -> Gaussian: ...
@overload
def environment(
    name: Literal["labelled"],
    /,
    *,
    features: ArrayLike,
    labels: object,
    scaling: Literal["standard", "none"] = ...,
    order: Literal["random", "listed"] = ...,
) -> Labelled: ...
@overload
def environment(
    name: Literal["linear"],
    /,
    *,
    theta: ArrayLike,
    arms: int | None = ...,
    contexts: Literal["sphere", "ball", "list", "disjoint"] = ...,
    table: object = ...,
    order: Literal["random", "listed"] = ...,
    noise: Literal["bernoulli", "uniform"] = ...,
    outside: Literal["refuse", "clip"] = ...,
) -> Linear: ...
@overload
def environment(
    name: Literal["lognormal"],
    /,
    *,
    means: ArrayLike,
    sigma: float,
) -> LogNormal: ...
@overload
def environment(
    name: Literal["losses"],
    /,
    *,
    losses: ArrayLike,
) -> Losses: ...
@overload
def environment(
    name: Literal["pareto"],
    /,
    *,
    means: ArrayLike,
    shape: float,
) -> Pareto: ...
@overload
def environment(
    name: Literal["stochastic-losses"],
    /,
    *,
    means: ArrayLike,
) -> StochasticLosses: ...
@overload
def environment(
    name: Literal["student-t"],
    /,
    *,
    means: ArrayLike,
    degrees: float,
    scale: float = ...,
) -> StudentT: ...
@overload
def environment(
    name: Literal["switching"],
    /,
    *,
    horizon: int,
    switch: int,
    before: ArrayLike,
    after: ArrayLike,
) -> Switching: ...
@overload
def environment(
    name: Literal["table"],
    /,
    *,
    rewards: ArrayLike,
) -> Table: ...
@overload
def environment(
    name: Literal["three-point"],
    /,
    *,
    values: ArrayLike,
    probabilities: ArrayLike,
    other_values: ArrayLike,
    other_probabilities: ArrayLike,
) -> ThreePoint: ...
@overload
def environment(
    name: Literal["two-point"],
    /,
    *,
    values: ArrayLike,
    probabilities: ArrayLike,
) -> TwoPoint: ...
@overload
def environment(name: EnvironmentName, /, **parameters: Any) -> Environment: ...
