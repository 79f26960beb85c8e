"""Normal rewards."""

import math
from typing import Annotated, Any

import numpy as np

from balaclava._core.declared import Means, Range
from balaclava._core.extras import import_extra
from balaclava._core.kernels import kernel
from balaclava.environments.base import Environment, checked_order, register

Scales = Annotated[
    np.ndarray,
    Range(0, meaning="standard deviation: one number, or one for each arm", open_low=True),
    1,
]


@kernel(borrows=True)
def draw(world: Any, t: int, arm: int, rng: Any) -> float:
    return float(world.means[arm] + world.scales[arm] * rng.standard_normal())


@register
class Gaussian(Environment):
    """Normal rewards: unbounded, with light tails.

    The moments are the closed form with Kummer's function:
    E|X|^k = s^k 2^{k/2} Gamma((k+1)/2) / sqrt(pi) * 1F1(-k/2; 1/2; -mean^2 / (2 s^2)).

    Example:
        >>> round(bl.environment("gaussian", means=[0, 1], scales=2).moment(4, central=True), 9)
        48.0
    """

    name = "gaussian"
    see_also = "student-t"
    reward_range = (-math.inf, math.inf)
    draw = staticmethod(draw)
    examples = ({}, {"scales": [1.0, 2.0, 0.5]})
    means: Means
    scales: Scales = 1.0  # type: ignore[assignment]  # one number stands for all arms

    def __post_init__(self) -> None:
        if np.ndim(self.scales) == 0:
            object.__setattr__(self, "scales", [self.scales] * max(np.size(self.means), 1))
        super().__post_init__()
        if self.scales.size != self.means.size:
            raise self.refuse(
                "scales", f"does not fit {self.means.size} means; give one number, or one per arm"
            )

    def moments(self, order: float, *, central: bool = False) -> np.ndarray:
        special = import_extra("scipy.special", "a moment")
        order, s = checked_order(order), self.scales
        with np.errstate(over="ignore"):  # a moment beyond the largest float is inf
            gamma = special.gamma((order + 1) / 2)
            moments: np.ndarray = (s * math.sqrt(2)) ** order * gamma / math.sqrt(math.pi)
            if not central:
                moments = moments * special.hyp1f1(-order / 2, 0.5, -((self.means / s) ** 2) / 2)
        return moments
