"""Shrinking truncation: the truncated mean of Bubeck, Cesa-Bianchi, Lugosi 2013.

At time t the estimate counts sample s of an arm only if |X_s| <= (u s / log t^2)^(1/p), p = 1 + v,
and divides by all n. The threshold of a stored sample shrinks as t grows. Equivalently, X_s counts
while

    level(t) = (log t^2)^(1/p)  <=  (u s)^(1/p) / |X_s|.

So the last time at which it counts is known at its arrival. Samples that count until the horizon
stay in the sum. The others are in a heap until they leave it. By Markov's inequality an arm has
at most 2 log T (1 + log T) of them on average.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from balaclava._core.kernels import kernel
from balaclava._core.states import range_faults


class ShrinkingTruncation(NamedTuple):
    """Sums of the samples that count, and a heap of those that will leave."""

    sums: np.ndarray  # sum of the samples that count, by arm
    leaving: np.ndarray  # size of the heap, by arm
    levels: np.ndarray  # [arm, place]: the last level at which the sample counts, least first
    values: np.ndarray  # [arm, place]

    def faults(self, decisions: int) -> Iterator[str]:
        yield from range_faults(0.0, math.inf, levels=self.levels)


@kernel
def begin_truncation(arms: int, horizon: int) -> ShrinkingTruncation:
    """An empty state whose heaps have four times the size that the moment bound implies."""
    room = min(64 + int(8.0 * math.log(horizon) ** 2), horizon)
    return ShrinkingTruncation(
        np.zeros(arms), np.zeros(arms, np.int64), np.zeros((arms, room)), np.zeros((arms, room))
    )


@kernel(borrows=True)
def truncation_level(log_t: float, order: float) -> float:
    """level(t) = (log t^2)^(1/p)."""
    return math.pow(2.0 * log_t, 1.0 / order)


@kernel(borrows=True)
def learn_truncation(
    state: ShrinkingTruncation,
    arm: int,
    count: int,
    value: float,
    bound: float,
    order: float,
    level: float,
    final_level: float,
) -> None:
    """Add a sample to the `count` samples of the arm; `level` is that of the next decision.

    A full heap, which occurs only if the moment bound is false, drops its first sample early.
    """
    if value == 0.0:
        return
    last_level = (bound * float(count + 1)) ** (1.0 / order) / abs(value)
    if last_level < level:
        return
    if last_level < final_level:
        if state.leaving[arm] == state.levels.shape[1]:
            if last_level <= state.levels[arm, 0]:
                return
            _leave(state, arm)
        _wait(state, arm, last_level, value)
    state.sums[arm] += value


@kernel(borrows=True)
def truncated_sum(state: ShrinkingTruncation, arm: int, level: float) -> float:
    """Sum of the samples that count at this level; levels never decrease."""
    while state.leaving[arm] > 0 and state.levels[arm, 0] < level:
        _leave(state, arm)
    return float(state.sums[arm])


@kernel(borrows=True)
def _wait(state: ShrinkingTruncation, arm: int, level: float, value: float) -> None:
    levels, values = state.levels[arm], state.values[arm]
    place = state.leaving[arm]
    state.leaving[arm] += 1
    while place > 0 and levels[(place - 1) // 2] > level:
        parent = (place - 1) // 2
        levels[place], values[place] = levels[parent], values[parent]
        place = parent
    levels[place], values[place] = level, value


@kernel(borrows=True)
def _leave(state: ShrinkingTruncation, arm: int) -> None:
    """Pop the first sample of the heap and subtract it from the sum."""
    levels, values = state.levels[arm], state.values[arm]
    # Samples in the heap are at most (u s)^(1/p) / level(2): the subtraction loses few digits.
    state.sums[arm] -= values[0]
    state.leaving[arm] -= 1
    size = state.leaving[arm]
    level, value = levels[size], values[size]
    place = 0
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and levels[child + 1] < levels[child]:
            child += 1
        if levels[child] >= level:
            break
        levels[place], values[place] = levels[child], values[child]
        place = child
    levels[place], values[place] = level, value
