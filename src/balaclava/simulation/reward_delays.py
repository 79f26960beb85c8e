"""How late rewards come: the law of delays, declared once and drawn by every driver alike.

A delay is counted in rounds: a reward with delay d comes after d further decisions were made.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from balaclava._core.declared import Declared, Range, brief
from balaclava._core.kernels import kernel
from balaclava.errors import ParameterError

LOST = -1  # in place of a delay: the reward never comes
GEOMETRIC_REACH = 20  # times the mean: one in 500 million is later, and counts as lost
FIXED, _GEOMETRIC, _UNIFORM, _VALUES = range(4)
_LONGEST = 10**8  # rounds: what is open is kept in memory

LawName = Literal["geometric", "fixed", "uniform"]
Rounds = Annotated[float, Range(0, _LONGEST, "mean delay of a reward, in rounds")]
Share = Annotated[float, Range(0, 1, "share of rewards that never come")]


class Delay(Declared):
    """How many rounds late a reward comes, and how many never come.

    Give a mean and a law, or `values` from which each delay is drawn evenly, such as the delays of
    a log. Laws:

    - "geometric" (the default): in each round the same chance that it comes;
    - "fixed": always `mean` rounds;
    - "uniform": 0 to 2 `mean`, each alike.

    A geometric delay has no largest value. One beyond 20 times the mean (one in 500 million)
    counts as lost, so that memory stays bounded.

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
    values: Annotated[tuple[int, ...] | None, Range(0, _LONGEST, "delays to draw from")] = None
    lost: Share = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.mean is None) == (self.values is None):
            raise ParameterError(
                "delay: give either mean, in rounds, or values to draw from; "
                f"there are mean = {brief(self.mean)} and values = {brief(self.values)}"
            )
        if self.values is not None and self.law != "geometric":
            raise self.refuse("law", "goes with a mean; values are drawn evenly, leave law out")
        least = {"fixed": 1, "uniform": 2}.get(self.law)
        if self.mean is not None and least and (least * self.mean) % 1:
            whole = "a whole number" if least == 1 else "half of a whole number"
            raise self.refuse("mean", f"is not allowed; with law {self.law!r} give {whole}")

    @property
    def longest(self) -> int:
        """The longest delay that can come, in rounds."""
        if self.values is not None:
            return max(self.values)
        mean = self.mean or 0.0
        reach = {"fixed": 1.0, "uniform": 2.0, "geometric": float(GEOMETRIC_REACH)}[self.law]
        return math.ceil(reach * mean)

    def constants(self) -> DelayLaw:
        """What the kernel draws from."""
        if self.values is not None:
            return DelayLaw(_VALUES, 0.0, self.longest, self.lost, np.array(self.values, np.int64))
        mean = self.mean or 0.0
        kind = {"fixed": FIXED, "uniform": _UNIFORM, "geometric": _GEOMETRIC}[self.law]
        if mean == 0.0:
            kind = FIXED
        # The whole part of an exponential variable of this scale is geometric with that mean.
        scale = 1.0 / math.log1p(1.0 / mean) if kind == _GEOMETRIC else 0.0
        return DelayLaw(kind, scale, self.longest, self.lost, np.zeros(1, np.int64))

    def __str__(self) -> str:
        if self.values is not None:
            often = "once" if len(self.values) == 1 else f"from {len(self.values)} values"
            words = f"delays drawn {often}, at most {self.longest:,}"
            words = f"delay of {self.longest:,}" if len(self.values) == 1 else words
        elif self.longest == 0:
            words = "no delay"
        elif self.law == "fixed":
            words = f"fixed delay of {self.mean:,.0f}"
        else:
            words = f"{self.law} delay of mean {self.mean:,g}"
        return words + (f", {100 * self.lost:g} % lost" if self.lost else "")


class DelayLaw(NamedTuple):
    """A law of delays as numbers."""

    kind: int
    scale: float
    longest: int
    lost: float
    values: np.ndarray


@kernel(borrows=True)
def draw_delay(law: DelayLaw, rng: Any) -> int:
    """The delay of one reward, or LOST."""
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
