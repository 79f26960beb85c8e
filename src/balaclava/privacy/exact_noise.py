"""Exact noise for releases: integers on a grid, and samplers without rounding.

Floating-point noise reveals its input through its last bits (Mironov 2012). Here a value is rounded
to a whole number of grid steps, integer noise is added, and the sum is scaled back. The step is a
power of two, between 2^-21 and 2^-20 of the sensitivity, so that scaling is exact.

That rounding costs no privacy is proved in `exact_noise.proof.md` beside this file.
"""

import functools
import math
import os
import secrets
from fractions import Fraction
from typing import Any

import numpy as np

from balaclava._core.kernels import kernel
from balaclava.errors import PrivacyError

# log2 of the sensitivity in grid steps. More bits shorten exact sums (2^(52 - bits) rewards), fewer
# add noise (2^-bits of its scale). Reports of devices and saved sums use this grid.
GRID_BITS = 20
# Floats of this size are one step of 2^-GRID_BITS apart.
_UNIT_ROUNDING = 2.0 ** (52 - GRID_BITS)
# Grid steps: OpenDP's integers have 64 bits, and clamping does not increase distances.
_MOST_STEPS_FROM_0 = 2**62
# Nats: math.exp overflows above 709.78. Larger arguments count as this one, or as infinite.
LARGEST_EXPONENT = 700.0


@kernel(borrows=True)
def grid_step(width: float) -> float:
    """Step of the grid for numbers that are at most `width` apart: a power of two."""
    _, exponent = math.frexp(width)
    return math.ldexp(1.0, exponent - 1 - GRID_BITS)


@kernel(borrows=True)
def to_grid(x: float, width: float) -> float:
    """Clip x to [-width, width] and round it to the nearest multiple of `grid_step(width)`.

    Applied to each reward once, so that sums are exact. Numbers in [-width, width] or [0, width]
    stay there: the sensitivity of a sum does not grow.
    """
    step = grid_step(width)
    limit = math.floor(width / step) * step
    nearest = math.floor(min(max(x, -width), width) / step + 0.5) * step
    return min(max(nearest, -limit), limit)


@kernel(borrows=True)
def to_unit_grid(x: float) -> float:
    """A fast `to_grid(x, 1)` for x in [0, 1]; ties go to the even step.

    Floats as large as the summand lie one step apart, so that adding it rounds. Subtracting it
    again is exact.
    """
    return (x + _UNIT_ROUNDING) - _UNIT_ROUNDING


def to_steps(value: float, sensitivity: float) -> tuple[int, int, Fraction]:
    """Return a value and its sensitivity as whole numbers of steps, and the step."""
    if math.isnan(value):
        raise PrivacyError("the value to release is NaN: the policy computed it wrongly")
    if not 1e-280 < sensitivity < 1e280:
        raise PrivacyError(
            f"sensitivity = {sensitivity!r} is outside 1e-280 to 1e280, the range in which 64-bit "
            "floats hold its grid; rescale the rewards"
        )
    step = Fraction(grid_step(sensitivity))
    steps = math.ceil(Fraction(sensitivity) / step) + 1
    furthest = float(_MOST_STEPS_FROM_0 * step)
    position = math.floor(Fraction(min(max(value, -furthest), furthest)) / step + Fraction(1, 2))
    return position, steps, step


def vector_to_steps(value: Any, sensitivity: float, norm: float) -> tuple[list[int], int, Fraction]:
    """As `to_steps`, for an array whose sensitivity is in the L1 or L2 norm (`norm` 1 or 2).

    Each element is rounded by at most half a step. So the distance of two arrays of d elements
    grows by at most d steps in the L1 norm, and by sqrt(d) steps in the L2 norm.
    """
    elements = [to_steps(element, sensitivity) for element in value]
    if not elements:
        raise PrivacyError("the array to release is empty: the policy computed it wrongly")
    _, steps, step = elements[0]
    spare = len(elements) if norm == 1.0 else math.isqrt(len(elements) - 1) + 1
    return [position for position, _, _ in elements], steps + spare, step


@functools.cache
def opendp() -> Any:
    """Import OpenDP on first use: it takes seconds and much memory."""
    import opendp.prelude as library

    library.enable_features("contrib")
    return library


@functools.lru_cache(maxsize=4096)
def discrete_laplace(steps: int, epsilon: float) -> Any:
    """OpenDP's discrete Laplace on lists of integers, epsilon-private for a move by `steps`.

    The scale grows until OpenDP's own privacy map confirms the epsilon.
    """
    library = opendp()
    space = library.vector_domain(library.atom_domain(T="i64")), library.l1_distance(T="i64")
    scale = steps / epsilon
    for _ in range(8):
        if not math.isfinite(scale):
            break
        measurement = library.m.make_laplace(*space, scale=scale)
        if measurement.map(steps) <= epsilon:
            return measurement
        scale *= 1 + 2.0**-50
    raise PrivacyError(
        f"epsilon = {epsilon!r} is too small for exact noise; give at least 1e-300, or a delta "
        "above 0 if the policy takes one"
    )


@functools.lru_cache(maxsize=4096)
def discrete_gaussian(scale: float) -> Any:
    """OpenDP's discrete Gaussian on lists of integers."""
    library = opendp()
    space = library.vector_domain(library.atom_domain(T="i64")), library.l2_distance(T="i64")
    return library.m.make_gaussian(*space, scale=scale)


@functools.lru_cache(maxsize=256)
def randomized_bit(epsilon: float) -> Any:
    """OpenDP's randomized response on one bit, as truthful as its privacy map allows."""
    truthful = 1.0 / (1.0 + math.exp(-epsilon))
    while True:
        measurement = opendp().m.make_randomized_response_bool(prob=truthful)
        if measurement.map(1) <= epsilon:
            return measurement
        truthful = math.nextafter(truthful, 0.5)  # towards a fair coin, which leaks nothing


def bernoulli(numerator: int, denominator: int) -> bool:
    """Return True with probability numerator / denominator, exactly."""
    return secrets.randbelow(denominator) < numerator


def bernoulli_exp(numerator: int, denominator: int) -> bool:
    """Return True with probability exp(-r), r = numerator / denominator, exactly.

    Canonne, Kamath, Steinke 2020, Algorithm 1. For r <= 1, stop at the first k whose coin of
    probability r / k fails. Reaching k has probability r^(k-1) / (k-1)!, so that k is odd with
    probability 1 - r + r^2/2 - ... For larger r, factors of exp(-1) are drawn first.
    """
    while numerator > denominator:
        if not bernoulli_exp(1, 1):
            return False
        numerator -= denominator
    k = 1
    while bernoulli(numerator, k * denominator):
        k += 1
    return k % 2 == 1


def fresh_generator() -> np.random.Generator:
    """Return a numpy generator made from fresh operating-system entropy, for a single draw."""
    entropy = np.random.SeedSequence(int.from_bytes(os.urandom(32)), pool_size=8)
    return np.random.Generator(np.random.SFC64(entropy))
