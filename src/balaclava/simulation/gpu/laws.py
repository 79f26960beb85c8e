"""The laws that kernels draw from, written for a counter: how random numbers are made on a GPU.

Philox 4x32-10 (Salmon, Moraes, Dror, Shaw 2011) turns a counter of 128 bits into as many random
ones. The key is made from the seed, the counter from the repetition, the stream and the number of
the draw: a game's numbers depend on nothing else, neither on the number of games at once nor on
the shape of a launch nor on the GPU.

A stream is a key, a place (the repetition and the stream's number) and a state of two words: how
many words were drawn, and the next one where that is ready. All are kernels, so that the tests
draw from the same functions, compiled for the CPU.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from balaclava._core.kernels import kernel

WORDS = 2  # in the state of a stream
_UNIT = 2.0**-53
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_ONE = np.uint64(1)
_SPARE_BITS = np.uint64(11)  # a float has 53
_MULTIPLIER_0, _MULTIPLIER_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL_0, _WEYL_1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)


@kernel(borrows=True)
def philox(key: Any, low: Any, high: Any) -> tuple[int, int]:
    """Two words of 64 bits for a counter of two."""
    a, b, c, d = low & _LOW, low >> _HALF, high & _LOW, high >> _HALF
    k, w = key & _LOW, key >> _HALF
    for _ in range(10):
        first, second = a * _MULTIPLIER_0, c * _MULTIPLIER_1
        a, b = (second >> _HALF) ^ b ^ k, second & _LOW
        c, d = (first >> _HALF) ^ d ^ w, first & _LOW
        k, w = (k + _WEYL_0) & _LOW, (w + _WEYL_1) & _LOW
    return a | (b << _HALF), c | (d << _HALF)


@kernel(borrows=True)
def next_word(key: Any, place: Any, state: Any) -> int:
    """The next 64 random bits of a stream."""
    count = state[0]
    state[0] = count + _ONE
    if count & _ONE:
        return state[1]
    word, state[1] = philox(key, count >> _ONE, place)
    return word


@kernel(borrows=True)
def uniform(key: Any, place: Any, state: Any) -> float:
    """On [0, 1): a multiple of 2^-53, as numpy's."""
    return float(np.int64(next_word(key, place, state) >> _SPARE_BITS)) * _UNIT


@kernel(borrows=True)
def open_uniform(word: Any) -> float:
    """A word as the middle of one of 2^53 equal parts of (0, 1): its logarithm is finite."""
    return (float(np.int64(word >> _SPARE_BITS)) + 0.5) * _UNIT


@kernel(borrows=True)
def integer(key: Any, place: Any, state: Any, low: int, high: int) -> int:
    """Of low, ..., high - 1. Not exactly even: by less than (high - low) 2^-53."""
    return low + int(uniform(key, place, state) * (high - low))


@kernel(borrows=True)
def exponential(key: Any, place: Any, state: Any) -> float:
    """Of mean 1."""
    return -math.log(open_uniform(next_word(key, place, state)))


@kernel(borrows=True)
def laplace(key: Any, place: Any, state: Any, centre: float, scale: float) -> float:
    """An exponential size with a sign: the word's last bit, which the size does not use."""
    word = next_word(key, place, state)
    size = -scale * math.log(open_uniform(word))
    return centre - size if word & _ONE else centre + size


@kernel(borrows=True)
def normal(key: Any, place: Any, state: Any) -> float:
    """Box and Muller 1958."""
    radius = math.sqrt(2.0 * exponential(key, place, state))
    return radius * math.cos(2.0 * math.pi * uniform(key, place, state))


@kernel(borrows=True)
def gamma(key: Any, place: Any, state: Any, shape: float) -> float:
    """Marsaglia and Tsang 2000; for shapes below 1 times a power of a uniform number."""
    boost = 1.0
    if shape < 1.0:
        boost = math.exp(-exponential(key, place, state) / shape)
        shape += 1.0
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x = normal(key, place, state)
        v = 1.0 + c * x
        v = v * v * v
        if v > 0.0:
            room = 0.5 * x * x + d - d * v + d * math.log(v)
            if -exponential(key, place, state) < room:
                return boost * d * v


@kernel(borrows=True)
def beta(key: Any, place: Any, state: Any, a: float, b: float) -> float:
    """The share of one of two gamma variables."""
    x = gamma(key, place, state, a)
    y = gamma(key, place, state, b)
    return x / (x + y) if x + y > 0.0 else 0.5


@kernel(borrows=True)
def student_t(key: Any, place: Any, state: Any, degrees: float) -> float:
    """A normal variable over the root of a chi-square one."""
    x = normal(key, place, state)
    return x * math.sqrt(0.5 * degrees / gamma(key, place, state, 0.5 * degrees))


@kernel(borrows=True)
def cauchy(key: Any, place: Any, state: Any) -> float:
    """The standard law."""
    return math.tan(math.pi * (open_uniform(next_word(key, place, state)) - 0.5))
