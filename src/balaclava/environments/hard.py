"""Hard instances: arms that no private policy tells apart soon (Tao, Wu, Zhao, Wang 2022).

Each function returns an environment, or an environment and its alternative, in which an arm that
is not the best is lifted above all others by a change that few rewards show. A policy that does
well on both must pull that arm often: that is how the lower bounds of `balaclava.theory.bounds` are
proved.

>>> from balaclava.environments.hard import hard_pair
>>> here, there = hard_pair(gap=0.1, moment_order=2.0)
>>> here.means.round(4).tolist(), there.means.round(4).tolist()
([0.25, 0.15], [0.25, 0.35])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np

from balaclava._core.declared import Range, check
from balaclava._core.kernels import kernel
from balaclava.environments._moments import checked_order
from balaclava.environments.base import Environment, register
from balaclava.environments.two_point import Probabilities, TwoPoint, Values
from balaclava.errors import ParameterError

PairGap = Annotated[float, Range(0, 0.2, "gap between the two arms", open_low=True)]
TailOrder = Annotated[float, Range(1, 2, "order 1 + v of the known moment", open_low=True)]


@kernel(borrows=True)
def draw(world: Any, t: int, arm: int, rng: Any) -> float:
    u = rng.random()
    if u < world.probabilities[arm]:
        return float(world.values[arm])
    if u < world.probabilities[arm] + world.other_probabilities[arm]:
        return float(world.other_values[arm])
    return 0.0


@register
class ThreePoint(Environment):
    """One of two values, each with some probability, otherwise 0.

    The alternatives of the central lower bound: a second, rarer and larger value lifts an arm.
    See `hard_arms`.

    Parameters:
        values: the first value of each arm.
        probabilities: the chance of it, for each arm.
        other_values: the second value of each arm.
        other_probabilities: the chance of it; both together at most 1.

    Example:
        >>> import balaclava as bl
        >>> world = bl.environment("three-point", values=[2.0], probabilities=[0.25],
        ...                        other_values=[10.0], other_probabilities=[0.01])
        >>> world.means.round(6).tolist(), world.moments(2).round(6).tolist()
        ([0.6], [2.0])

    References:
        Tao, Wu, Zhao, Wang. Optimal rates of (locally) differentially private heavy-tailed
        multi-armed bandits. AISTATS 2022, Theorem 5.

    See Also:
        two-point
    """

    name = "three-point"
    reference = "Tao, Wu, Zhao, Wang 2022"
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {
            "values": [2.0, -1.0, 5.0],
            "probabilities": [0.5, 1.0, 0.1],
            "other_values": [10.0, 3.0, -4.0],
            "other_probabilities": [0.01, 0.0, 0.2],
        },
    )
    values: Values
    probabilities: Probabilities
    other_values: Values
    other_probabilities: Probabilities

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("probabilities", "other_values", "other_probabilities"):
            if getattr(self, name).size != self.values.size:
                raise self.refuse(name, f"does not fit {self.values.size} values; give one each")
        if (self.probabilities + self.other_probabilities > 1 + 1e-12).any():
            raise self.refuse(
                "other_probabilities", "and probabilities add up to more than 1; lower one"
            )

    @property
    def _atoms(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Values and their probabilities, by arm."""
        rest = np.maximum(1 - self.probabilities - self.other_probabilities, 0.0)
        return [
            (self.values, self.probabilities),
            (self.other_values, self.other_probabilities),
            (np.zeros_like(rest), rest),
        ]

    @cached_property
    def means(self) -> np.ndarray:
        return np.sum([value * p for value, p in self._atoms], axis=0)

    @property
    def draw(self) -> Callable[..., float]:
        return draw

    @property
    def reward_range(self) -> tuple[float, float]:
        possible = np.concatenate([value[p > 0] for value, p in self._atoms])
        return (float(possible.min()), float(possible.max()))

    def moments(self, order: float, *, central: bool = False) -> np.ndarray:
        order = checked_order(order)
        centre = self.means if central else np.zeros_like(self.means)
        terms = [p * np.abs(value - centre) ** order for value, p in self._atoms]
        return np.sum(terms, axis=0)


def hard_pair(
    gap: float, moment_order: float, *, others: int = 1, lifted: int = 1
) -> tuple[TwoPoint, TwoPoint]:
    """The hard instance of Theorems 10 and 11, of Theorem 9 for more arms, and its alternative.

    With g = (5 gap)^(1/v) all rewards are 1/g or 0. Arm 0 pays with probability g^(1+v)/2 (mean
    5/2 gap, moment 1/2), the others with g^(1+v)/2 - gap g (mean 3/2 gap, moment 3/10). In the
    alternative arm `lifted` pays with g^(1+v)/2 + gap g (mean 7/2 gap, moment 7/10).

    Args:
        gap: above 0, at most 1/5.
        moment_order: 1 + v, above 1 and at most 2.
        others: how many arms below the best.
        lifted: the arm that is the best in the alternative.
    """
    gap = check("gap", gap, PairGap)
    order = check("moment_order", moment_order, TailOrder)
    others = check("others", others, Annotated[int, Range(1)])
    lifted = check("lifted", lifted, Annotated[int, Range(1, others)])
    g = (5 * gap) ** (1 / (order - 1))
    if g < 1e-150:
        raise _too_rare("gap", gap)
    values = np.full(others + 1, 1 / g)
    chances = np.full(others + 1, g**order / 2 - gap * g)
    chances[0] = g**order / 2
    elsewhere = chances.copy()
    elsewhere[lifted] = g**order / 2 + gap * g
    return (
        TwoPoint(values=values, probabilities=chances),
        TwoPoint(values=values, probabilities=elsewhere),
    )


def hard_arms(
    means: Sequence[float], moment_order: float, *, lifted: int
) -> tuple[TwoPoint, ThreePoint]:
    """The hard instance of Theorem 5 (central privacy), and the alternative that lifts an arm.

    Arm a pays 1/s with probability s^(1+v)/2, s = (2 mean)^(1/v) (moment 1/2). In the alternative
    arm `lifted`, D below the best, also pays 1/g with probability 2 D g, g = (4 D)^(1/v): its mean
    is 2 D larger and its moment 1.

    Args:
        means: above 0, at most 1/6, with gaps of at most 1/12.
        moment_order: 1 + v, above 1 and at most 2.
        lifted: an arm below the best.
    """
    base, gap, order = _base(means, moment_order, lifted, 1 / 6)
    if gap > 1 / 12:
        raise ParameterError(f"means: arm {lifted} is {gap:g} below the best; at most 1/12")
    g = (4 * gap) ** (1 / (order - 1))
    if g < 1e-150:
        raise _too_rare("gap", gap)
    other_values, other_chances = np.ones(base.arms), np.zeros(base.arms)
    other_values[lifted], other_chances[lifted] = 1 / g, 2 * gap * g
    return base, ThreePoint(
        values=base.values,
        probabilities=base.probabilities,
        other_values=other_values,
        other_probabilities=other_chances,
    )


def hard_local_arms(
    means: Sequence[float], moment_order: float, *, lifted: int
) -> tuple[TwoPoint, TwoPoint]:
    """The hard instance of Theorem 8 (local privacy), and the alternative that lifts an arm.

    As `hard_arms`, but arm `lifted`, D below the best, pays its own 1/s more often, by 2 D s: its
    mean is 2 D larger and its moment 1/2 + D / mean.

    Args:
        means: above 0, at most 1/2; the gap of the lifted arm from 1/5 to 1/2 of its mean.
        moment_order: 1 + v, above 1 and at most 2.
        lifted: an arm below the best.
    """
    base, gap, _ = _base(means, moment_order, lifted, 1 / 2)
    mean = float(base.means[lifted])
    if not mean / 5 * (1 - 1e-9) <= gap <= mean / 2 * (1 + 1e-9):
        raise ParameterError(
            f"means: arm {lifted} is {gap:g} below the best; give from 1/5 to 1/2 of its mean"
        )
    chances = base.probabilities.copy()
    chances[lifted] += 2 * gap / base.values[lifted]
    return base, TwoPoint(values=base.values, probabilities=chances)


def _base(
    means: Sequence[float], moment_order: float, lifted: int, most: float
) -> tuple[TwoPoint, float, float]:
    """The instance both share, the gap of the lifted arm, and the order."""
    inside = Annotated[np.ndarray, Range(0, most, "mean of each arm", open_low=True), 1]
    base_means: np.ndarray = check("means", means, inside)
    order = check("moment_order", moment_order, TailOrder)
    lifted = check("lifted", lifted, Annotated[int, Range(0, base_means.size - 1)])
    gap = float(base_means.max() - base_means[lifted])
    if gap == 0:
        raise ParameterError(f"lifted = {lifted} is a best arm; give one below the best")
    s = (2 * base_means) ** (1 / (order - 1))
    if s.min() < 1e-150:
        raise _too_rare("means", float(base_means.min()))
    return TwoPoint(values=1 / s, probabilities=s**order / 2), gap, order


def _too_rare(name: str, value: float) -> ParameterError:
    return ParameterError(
        f"{name} = {value:g} with this moment_order gives rewards that are too rare and too large "
        "for 64-bit floats; give larger ones"
    )
