"""Exact arithmetic for what is released: integers on a grid, and noise without rounding.

Floating-point noise gives its input away through its last bits (Mironov 2012). Here a value is
turned into a whole number of grid steps, integer noise is added, and the result is scaled back.
The step is a power of two, between 2^-21 and 2^-20 of the sensitivity, so that scaling is exact.

Proof that rounding costs no privacy.
    Let |x - x'| <= s, let g be the step and m = ceil(s / g). The map k(x) = floor(x / g + 1/2) is
    computed in rational arithmetic. It is monotone and k(x + m g) = k(x) + m, hence
    |k(x) - k(x')| <= m. The noise is drawn for m + 1 steps, which costs a millionth of its scale.
    The spare step pays for the one thing left out: x and x' are themselves floats, and if each is
    within g / 2 of a number that keeps the sensitivity, then |x - x'| <= s + g. Sums of rewards
    that `to_grid` rounded are exact below 2^53 steps, which 2^32 rewards in one sum, 4 x 10^9,
    stay below; beyond that nothing is proved. A mean of them, rounded once, is within
    g / 2 as long as it is below 2^31 sensitivities. Scaling back is post-processing.
"""

from __future__ import annotations

import functools
import math
import os
import secrets
from fractions import Fraction
from typing import Any

import numpy as np

from balaclava._core.kernels import kernel
from balaclava.errors import PrivacyError

GRID_BITS = 20
_UNIT_ROUNDING = 2.0 ** (52 - GRID_BITS)
_LARGEST = 2**62  # OpenDP answers in 64 bits; clamping to less moves no two values apart


@kernel(borrows=True)
def grid_step(width: float) -> float:
    """The step of the grid for numbers that are at most `width` apart: a power of two."""
    _, exponent = math.frexp(width)
    return math.ldexp(1.0, exponent - 1 - GRID_BITS)


@kernel(borrows=True)
def to_grid(x: float, width: float) -> float:
    """The multiple of `grid_step(width)` nearest to x, clipped to [-width, width].

    Applied to each reward once, so that sums are exact. What was in [-width, width], or in
    [0, width], stays there: the sensitivity of a sum does not grow.
    """
    step = grid_step(width)
    limit = math.floor(width / step) * step
    nearest = math.floor(min(max(x, -width), width) / step + 0.5) * step
    return min(max(nearest, -limit), limit)


@kernel(borrows=True)
def to_unit_grid(x: float) -> float:
    """`to_grid(x, 1)` for x in [0, 1], a tie to the even step, where every nanosecond counts.

    Floats as large as the summand lie one step apart, so that adding it rounds; taking it away
    again is exact.
    """
    return (x + _UNIT_ROUNDING) - _UNIT_ROUNDING


def to_steps(value: float, sensitivity: float) -> tuple[int, int, Fraction]:
    """A value and its sensitivity as whole numbers of steps, and the step."""
    if math.isnan(value):
        raise PrivacyError("the value to be released is not a number; the policy has a fault")
    if not 1e-280 < sensitivity < 1e280:
        raise PrivacyError(
            f"sensitivity = {sensitivity!r} leaves no room for a grid in 64-bit floats; rescale "
            "the rewards"
        )
    step = Fraction(grid_step(sensitivity))
    steps = math.ceil(Fraction(sensitivity) / step) + 1
    furthest = float(_LARGEST * step)
    position = math.floor(Fraction(min(max(value, -furthest), furthest)) / step + Fraction(1, 2))
    return position, steps, step


def vector_to_steps(value: Any, sensitivity: float, norm: float) -> tuple[list[int], int, Fraction]:
    """As `to_steps`, for an array whose sensitivity is in the norm of that order, 1 or 2.

    Each part is rounded by half a step at most, so that the distance of two arrays of d parts
    grows by at most d steps in the L1 norm and by sqrt(d) in the L2 norm.
    """
    parts = [to_steps(part, sensitivity) for part in value]
    if not parts:
        raise PrivacyError("an array without parts was to be released; the policy has a fault")
    _, steps, step = parts[0]
    spare = len(parts) if norm == 1.0 else math.isqrt(len(parts) - 1) + 1
    return [position for position, _, _ in parts], steps + spare, step


@functools.cache
def opendp() -> Any:
    """OpenDP, loaded on first use: it takes long and much memory."""
    import opendp.prelude as library

    library.enable_features("contrib")
    return library


@functools.lru_cache(maxsize=4096)
def discrete_laplace(steps: int, epsilon: float) -> Any:
    """OpenDP's discrete Laplace on lists of integers, epsilon-private when one moves by `steps`.

    OpenDP's own privacy map has the last word: the scale grows until the map agrees.
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
        "above 0 where the policy takes one"
    )


@functools.lru_cache(maxsize=4096)
def discrete_gaussian(scale: float) -> Any:
    """OpenDP's discrete Gaussian on lists of integers."""
    library = opendp()
    space = library.vector_domain(library.atom_domain(T="i64")), library.l2_distance(T="i64")
    return library.m.make_gaussian(*space, scale=scale)


@functools.lru_cache(maxsize=256)
def randomized_bit(epsilon: float) -> Any:
    """OpenDP's randomized response on one bit, truthful as often as its privacy map allows."""
    truthful = 1.0 / (1.0 + math.exp(-epsilon))
    while True:
        measurement = opendp().m.make_randomized_response_bool(prob=truthful)
        if measurement.map(1) <= epsilon:
            return measurement
        truthful = math.nextafter(truthful, 0.5)  # towards a fair coin, which leaks nothing


def bernoulli(numerator: int, denominator: int) -> bool:
    """True with probability numerator / denominator, exactly."""
    return secrets.randbelow(denominator) < numerator


def bernoulli_exp(numerator: int, denominator: int) -> bool:
    """True with probability exp(-r), r = numerator / denominator, exactly.

    Canonne, Kamath, Steinke 2020, Algorithm 1. For r <= 1, stop at the first k whose coin of
    probability r / k fails. Reaching k has probability r^(k-1) / (k-1)!, so that k is odd with
    probability 1 - r + r^2/2 - ... For larger r, exp(-1) is taken out as often as it goes.
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
