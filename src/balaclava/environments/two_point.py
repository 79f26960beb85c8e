"""Rewards that are a value or 0 (the lower bounds of Tao, Wu, Zhao, Wang 2022)."""

from functools import cached_property
from typing import Annotated, Any

import numpy as np

from balaclava._core.declared import Range
from balaclava._core.kernels import kernel
from balaclava.environments.base import Environment, checked_order, register

Values = Annotated[np.ndarray, Range(meaning="the reward that is not 0"), 1]
Probabilities = Annotated[np.ndarray, Range(0, 1, "chance of that reward"), 1]


@kernel(borrows=True)
def draw(world: Any, t: int, arm: int, rng: Any) -> float:
    return float(world.values[arm]) if rng.random() < world.probabilities[arm] else 0.0


@register
class TwoPoint(Environment):
    """A value with some probability, otherwise 0: the hard instances of heavy-tailed bandits.

    Estimates miss a rare large value for long. With g = (5 gap)^{1/v}, arms that pay 1/g with
    probability g^{1+v}/2 and g^{1+v}/2 - gap g differ by `gap`. Their moments of order 1 + v are
    1/2 and 3/10 (Tao et al., Theorem 10).

    Example:
        >>> world = bl.environment("two-point", values=[2, 2], probabilities=[0.125, 0.075])
        >>> world.moments(2).tolist(), world.gaps.round(6).tolist()
        ([0.5, 0.3], [0.0, 0.1])
    """

    name = "two-point"
    reference = "Tao, Wu, Zhao, Wang 2022"
    see_also = "bernoulli, pareto"
    draw = staticmethod(draw)
    examples = ({"values": [2.0, -1.0, 10.0], "probabilities": [0.5, 1.0, 0.01]},)
    values: Values
    probabilities: Probabilities

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.values.size != self.probabilities.size:
            raise self.refuse(
                "probabilities", f"does not fit {self.values.size} values; give one each"
            )

    @property
    def atoms(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Values and their probabilities, by arm."""
        rest = 1 - self.probabilities
        return [(self.values, self.probabilities), (np.zeros_like(rest), rest)]

    @cached_property
    def means(self) -> np.ndarray:
        return np.sum([value * p for value, p in self.atoms], axis=0)

    @property
    def reward_range(self) -> tuple[float, float]:
        possible = np.concatenate([value[p > 0] for value, p in self.atoms])
        return (float(possible.min()), float(possible.max()))

    def moments(self, order: float, *, central: bool = False) -> np.ndarray:
        order = checked_order(order)
        centre = self.means if central else np.zeros_like(self.means)
        terms = [p * np.abs(value - centre) ** order for value, p in self.atoms]
        return np.sum(terms, axis=0)
