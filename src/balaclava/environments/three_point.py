"""Rewards that are one of two values or 0 (the lower bounds of Tao, Wu, Zhao, Wang 2022)."""

from typing import Any

import numpy as np

from balaclava._core.kernels import kernel
from balaclava.environments.base import register
from balaclava.environments.two_point import Probabilities, TwoPoint, Values


@kernel(borrows=True)
def draw(world: Any, t: int, arm: int, rng: Any) -> float:
    u = rng.random()
    if u < world.probabilities[arm]:
        return float(world.values[arm])
    if u < world.probabilities[arm] + world.other_probabilities[arm]:
        return float(world.other_values[arm])
    return 0.0


@register
class ThreePoint(TwoPoint):
    """One of two values, each with its probability, otherwise 0.

    The alternatives of the central lower bound, Theorem 5: a second, rarer and larger value lifts
    an arm (see `balaclava.environments.hard_instances.hard_arms`).

    Parameters:
        values: the first value of each arm.
        probabilities: its probability, for each arm.
        other_values: the second value of each arm.
        other_probabilities: its probability; both together at most 1.

    Example:
        >>> world = bl.environment("three-point", values=[2.0], probabilities=[0.25],
        ...                        other_values=[10.0], other_probabilities=[0.01])
        >>> world.means.round(6).tolist(), world.moments(2).round(6).tolist()
        ([0.6], [2.0])
    """

    name = "three-point"
    see_also = "two-point"
    draw = staticmethod(draw)
    examples = (
        {
            "values": [2.0, -1.0, 5.0],
            "probabilities": [0.5, 1.0, 0.1],
            "other_values": [10.0, 3.0, -4.0],
            "other_probabilities": [0.01, 0.0, 0.2],
        },
    )
    other_values: Values
    other_probabilities: Probabilities

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("other_values", "other_probabilities"):
            if getattr(self, name).size != self.values.size:
                raise self.refuse(name, f"does not fit {self.values.size} values; give one each")
        if (self.probabilities + self.other_probabilities > 1 + 1e-12).any():
            raise self.refuse("other_probabilities", "plus probabilities is more than 1; lower one")

    @property
    def atoms(self) -> list[tuple[np.ndarray, np.ndarray]]:
        rest = np.maximum(1 - self.probabilities - self.other_probabilities, 0.0)
        return [
            (self.values, self.probabilities),
            (self.other_values, self.other_probabilities),
            (np.zeros_like(rest), rest),
        ]
