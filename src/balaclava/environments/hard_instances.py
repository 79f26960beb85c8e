"""Hard instances: arms that private policies need long to tell apart (Tao, Wu, Zhao, Wang 2022).

Each function returns an environment and its alternative. The alternative lifts an arm above all
others by a change that few rewards show. A policy that does well on both must pull that arm often,
which proves the lower bounds of `balaclava.theory.bounds`.

>>> from balaclava.environments.hard_instances import hard_pair
>>> here, there = hard_pair(gap=0.1, moment_order=2.0)
>>> here.means.round(4).tolist(), there.means.round(4).tolist()
([0.25, 0.15], [0.25, 0.35])
"""

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from balaclava._core.declared import Range, check
from balaclava._core.docstrings import checked
from balaclava.environments.three_point import ThreePoint
from balaclava.environments.two_point import TwoPoint
from balaclava.errors import ParameterError
from balaclava.theory.bounds import PairGap, TailOrder

Others = Annotated[int, Range(1, meaning="how many arms below the best")]


@checked
def hard_pair(
    gap: PairGap, moment_order: TailOrder, *, others: Others = 1, lifted: int = 1
) -> tuple[TwoPoint, TwoPoint]:
    """The hard instance of Theorems 10 and 11, of Theorem 9 for more arms, and its alternative.

    With g = (5 gap)^(1/v) all rewards are 1/g or 0. Arm 0 pays with probability g^(1+v)/2 (mean
    5/2 gap, moment 1/2), the others with g^(1+v)/2 - gap g (mean 3/2 gap, moment 3/10). In the
    alternative arm `lifted` pays with g^(1+v)/2 + gap g (mean 7/2 gap, moment 7/10).

    Args:
        lifted: the arm that is the best in the alternative.
    """
    lifted = check("lifted", lifted, Annotated[int, Range(1, others)])
    g = (5 * gap) ** (1 / (moment_order - 1))
    if g < 1e-150:
        raise _too_rare("gap", gap)
    values = np.full(others + 1, 1 / g)
    chances = np.full(others + 1, g**moment_order / 2 - gap * g)
    chances[0] = g**moment_order / 2
    elsewhere = chances.copy()
    elsewhere[lifted] = g**moment_order / 2 + gap * g
    here = TwoPoint(values=values, probabilities=chances)
    return here, TwoPoint(values=values, probabilities=elsewhere)


@checked
def hard_arms(
    means: Sequence[float], moment_order: TailOrder, *, lifted: int
) -> tuple[TwoPoint, ThreePoint]:
    """The hard instance of Theorem 5 (central privacy), and the alternative that lifts an arm.

    Arm a pays 1/s with probability s^(1+v)/2, s = (2 mean)^(1/v) (moment 1/2). In the alternative
    arm `lifted`, D below the best, also pays 1/g with probability 2 D g, g = (4 D)^(1/v): its mean
    is 2 D larger and its moment 1.

    Args:
        means: above 0, at most 1/6, with gaps of at most 1/12.
        lifted: an arm below the best.
    """
    base, gap = _base(means, moment_order, lifted, 1 / 6)
    if gap > 1 / 12:
        raise ParameterError(f"means: arm {lifted} is {gap:g} below the best; at most 1/12")
    g = (4 * gap) ** (1 / (moment_order - 1))
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


@checked
def hard_local_arms(
    means: Sequence[float], moment_order: TailOrder, *, lifted: int
) -> tuple[TwoPoint, TwoPoint]:
    """The hard instance of Theorem 8 (local privacy), and the alternative that lifts an arm.

    As `hard_arms`, but arm `lifted`, D below the best, pays its own 1/s more often, by 2 D s: its
    mean is 2 D larger and its moment 1/2 + D / mean.

    Args:
        means: above 0, at most 1/2; the gap of the lifted arm from 1/5 to 1/2 of its mean.
        lifted: an arm below the best.
    """
    base, gap = _base(means, moment_order, lifted, 1 / 2)
    mean = float(base.means[lifted])
    if not mean / 5 * (1 - 1e-9) <= gap <= mean / 2 * (1 + 1e-9):
        gaps = "give from 1/5 to 1/2 of its mean"
        raise ParameterError(f"means: arm {lifted} is {gap:g} below the best; {gaps}")
    chances = base.probabilities.copy()
    chances[lifted] += 2 * gap / base.values[lifted]
    return base, TwoPoint(values=base.values, probabilities=chances)


def _base(means: Sequence[float], order: float, lifted: int, most: float) -> tuple[TwoPoint, float]:
    """The instance both share, and the gap of the lifted arm."""
    inside = Annotated[np.ndarray, Range(0, most, "mean of each arm", open_low=True), 1]
    base_means: np.ndarray = check("means", means, inside)
    lifted = check("lifted", lifted, Annotated[int, Range(0, base_means.size - 1)])
    gap = float(base_means.max() - base_means[lifted])
    if gap == 0:
        raise ParameterError(f"lifted = {lifted} is a best arm; give one below the best")
    s = (2 * base_means) ** (1 / (order - 1))
    if s.min() < 1e-150:
        raise _too_rare("means", float(base_means.min()))
    return TwoPoint(values=1 / s, probabilities=s**order / 2), gap


def _too_rare(name: str, value: float) -> ParameterError:
    return ParameterError(
        f"{name} = {value:g} with this moment_order gives rewards that are too rare and too large "
        "for 64-bit floats; give larger ones"
    )
