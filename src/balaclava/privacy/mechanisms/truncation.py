"""Truncation: what makes the sum of rewards of any size private (Tao et al. 2022, Wu et al. 2023).

A reward beyond the level counts as 0. It is not clipped to the level: the bias of both is of the
same order, and zeroing is what the papers analyse.

Proof.
    Whatever two rewards are, their truncations lie in [-level, level], at most 2 level apart, so
    a sum of truncated rewards has sensitivity 2 level. The level must not depend on the rewards
    that it truncates, other than through what was released.
"""

from __future__ import annotations

import math

from balaclava._core.kernels import kernel
from balaclava.privacy.exact_noise import to_grid


@kernel(borrows=True)
def truncated(reward: float, level: float) -> float:
    """The reward, or 0 if it is beyond the level; on a grid of 2^-20 of the level."""
    return to_grid(reward, level) if abs(reward) <= level else 0.0


@kernel(borrows=True)
def exact_step(level: float, items: float) -> float:
    """The step of the finest grid on which a sum of so many truncated rewards is exact.

    A power of two: the sum is below 2^53 of them, which is what a 64-bit float counts to. So the
    mean of n rewards is off by n level 2^-52 at most. The share of noise and chance in a mean
    falls as 1/n, so that rounding weighs as much from some 10^8 rewards in one sum on.
    """
    _, exponent = math.frexp(items * level)
    return math.ldexp(1.0, exponent - 53)


@kernel(borrows=True)
def towards_0(x: float, step: float) -> float:
    """The multiple of the step next to x on the side of 0; |x| must be below 2^53 steps."""
    return int(x / step) * step


@kernel(borrows=True)
def truncated_onto(reward: float, level: float, step: float) -> float:
    """As `truncated`, on the grid of that step; rounded towards 0, so that it stays in reach."""
    return towards_0(reward, step) if abs(reward) <= level else 0.0
