"""Delays of rewards: declared by the user, drawn by a kernel.

A delay counts rounds: a reward with delay d arrives after d further decisions.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from balaclava._core.declared import Declared, Range, brief
from balaclava._core.kernels import kernel
from balaclava.errors import ParameterError

LOST = -1  # in place of a delay: the reward never arrives
# Longest geometric delay, in means. One in e^20 = 500 million is longer and counts as lost: the
# memory for open decisions grows in proportion.
GEOMETRIC_REACH = 20
FIXED, _GEOMETRIC, _UNIFORM, _VALUES = range(4)  # values of `DelayLaw.kind`
_LONGEST_DELAY = 10**8  # rounds: open decisions are kept in memory, 32 bytes each

LawName = Literal["geometric", "fixed", "uniform"]
Rounds = Annotated[float, Range(0, _LONGEST_DELAY, "mean delay of a reward, in rounds")]
Share = Annotated[float, Range(0, 1, "share of rewards that never arrive")]


class Delay(Declared):
    """How many rounds late rewards arrive, and which share is lost.

    Args:
        mean: the mean delay in rounds; give it or `values`.
        law: "geometric" (the same chance of arrival in every round), "fixed" (always `mean`
            rounds) or "uniform" (0 to 2 `mean`). A geometric delay above 20 means counts as lost,
            one in 500 million, so that memory stays bounded.
        values: delays to draw from with equal chances, such as those of a log.
        lost: the share of rewards that never arrive.

    Raises:
        ParameterError: if a value is out of its range, or both or neither of `mean` and `values`
            are given.

    Example:
        >>> import balaclava as bl
        >>> world = bl.environment("bernoulli", means=[0.3, 0.7])
        >>> late = bl.simulate(bl.policy("ucb1", arms=2), world, horizon=1_000, repetitions=10,
        ...                    seed=1, delay=bl.Delay(mean=50, law="geometric", lost=0.02))
        >>> late.summary().title
        'bernoulli, 2 arms, horizon 1000, seed 1, geometric delay of mean 50, 2 % lost'
    """

    kind = "delay"
    name = "delay"

    mean: Rounds | None = None
    law: LawName = "geometric"
    values: Annotated[tuple[int, ...] | None, Range(0, _LONGEST_DELAY, "delays to draw from")] = (
        None
    )
    lost: Share = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.mean is None) == (self.values is None):
            raise ParameterError(
                f"delay: mean = {brief(self.mean)} and values = {brief(self.values)}; give exactly "
                "one of the two"
            )
        if self.values is not None and self.law != "geometric":
            raise self.refuse("law", "needs a mean; leave law out with values")
        least = {"fixed": 1, "uniform": 2}.get(self.law)
        if self.mean is not None and least and (least * self.mean) % 1:
            whole = "a whole number" if least == 1 else "half of a whole number"
            raise self.refuse("mean", f"is not allowed; with law {self.law!r} give {whole}")

    @property
    def longest(self) -> int:
        """The longest possible delay, in rounds."""
        if self.values is not None:
            return max(self.values)
        mean = self.mean or 0.0
        reach = {"fixed": 1.0, "uniform": 2.0, "geometric": float(GEOMETRIC_REACH)}[self.law]
        return math.ceil(reach * mean)

    def share_within(self, rounds: int) -> float:
        """The share of the rewards that are not lost whose delay is at most `rounds`.

        >>> Delay(mean=50, law="uniform").share_within(24)
        0.24752475247524752
        """
        if self.values is not None:
            return float(np.mean(np.array(self.values) <= rounds))
        if rounds >= self.longest:
            return 1.0
        if self.law == "geometric":
            return -math.expm1(-(rounds + 1.0) / self.constants().scale)
        return (rounds + 1.0) / (self.longest + 1.0) if self.law == "uniform" else 0.0

    def constants(self) -> DelayLaw:
        """The law as numbers, for the kernel."""
        if self.values is not None:
            return DelayLaw(_VALUES, 0.0, self.longest, self.lost, np.array(self.values, np.int64))
        mean = self.mean or 0.0
        kinds = {"fixed": FIXED, "uniform": _UNIFORM, "geometric": _GEOMETRIC}
        kind = FIXED if mean == 0.0 else kinds[self.law]
        # The integer part of an exponential variable of this scale is geometric with this mean.
        scale = 1.0 / math.log1p(1.0 / mean) if kind == _GEOMETRIC else 0.0
        return DelayLaw(kind, scale, self.longest, self.lost, np.zeros(1, np.int64))

    def __str__(self) -> str:
        if self.values is not None:
            words = f"delays drawn from {len(self.values)} values, at most {self.longest:,}"
            words = f"delay of {self.longest:,}" if len(self.values) == 1 else words
        elif self.longest == 0:
            words = "no delay"
        elif self.law == "fixed":
            words = f"fixed delay of {self.mean:,.0f}"
        else:
            words = f"{self.law} delay of mean {self.mean:,g}"
        return words + (f", {100 * self.lost:g} % lost" if self.lost else "")


class DelayLaw(NamedTuple):
    """The law of a delay as numbers."""

    kind: int
    scale: float
    longest: int
    lost: float
    values: np.ndarray


@kernel(borrows=True)
def draw_delay(law: DelayLaw, rng: Any) -> int:
    """Draw the delay of one reward, or LOST."""
    if law.lost > 0.0 and rng.random() < law.lost:
        return LOST
    if law.kind == FIXED:
        return law.longest
    if law.kind == _GEOMETRIC:
        delay = int(rng.standard_exponential() * law.scale)
        return delay if delay <= law.longest else LOST
    if law.kind == _UNIFORM:
        return int(rng.random() * (law.longest + 1))
    return int(law.values[int(rng.random() * law.values.size)])
