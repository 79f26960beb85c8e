"""Truncation bounds the sensitivity of sums of rewards (Tao et al. 2022, Wu et al. 2023).

A reward beyond the level counts as 0. The papers analyse this; clipping to the level would have a
bias of the same order.

Proof: `truncation.proof.md` beside this file.
"""

import math

from balaclava._core.kernels import kernel
from balaclava.privacy.exact_noise import to_grid


@kernel(borrows=True)
def truncated(reward: float, level: float) -> float:
    """The reward, or 0 if it is beyond the level, on a grid of 2^-20 of the level."""
    return to_grid(reward, level) if abs(reward) <= level else 0.0


@kernel(borrows=True)
def exact_step(level: float, items: float) -> float:
    """Step of the finest grid on which a sum of `items` truncated rewards is exact.

    It is a power of two. The sum is below 2^53 steps, the range in which 64-bit floats hold every
    integer. So the mean of n rewards is off by at most n level 2^-52. Noise in a mean falls as
    1/n, so that rounding becomes as large as noise at about 10^8 rewards in one sum.
    """
    _, exponent = math.frexp(items * level)
    return math.ldexp(1.0, exponent - 53)


@kernel(borrows=True)
def towards_0(x: float, step: float) -> float:
    """Round x towards 0 to a multiple of the step; |x| must be below 2^53 steps."""
    return int(x / step) * step


@kernel(borrows=True)
def truncated_onto(reward: float, level: float, step: float) -> float:
    """As `truncated`, rounded towards 0 onto the grid of that step, so within the level."""
    return towards_0(reward, step) if abs(reward) <= level else 0.0
