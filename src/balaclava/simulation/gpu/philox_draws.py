"""Random draws on a GPU, from the counter-based generator Philox.

Philox 4x32-10 (Salmon, Moraes, Dror, Shaw 2011) maps a counter of 128 bits to 128 random bits. The
seed gives the key. The repetition, the stream and the number of the draw give the counter. So the
number of games, the launches and the GPU do not change a game's numbers.

A stream is a key, a place (repetition and stream number) and a state. All draws are kernels, so
that tests can compile the same functions for the CPU.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.kernels import kernel

_UNIT = 2.0**-53  # spacing of uniform draws: a float has 53 significant bits
_HALF = np.uint64(32)  # bits of half a word
_LOW = np.uint64(0xFFFFFFFF)  # mask of a word's lower half
_ONE = np.uint64(1)
_SPARE_BITS = np.uint64(11)  # 64 - 53
# The multipliers and Weyl constants of Philox 4x32 (Salmon et al. 2011).
_MULTIPLIER_0, _MULTIPLIER_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL_0, _WEYL_1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)


class PhiloxState(NamedTuple):
    """The state of a stream, in arrays of one element."""

    words: np.ndarray  # number of words drawn
    word: np.ndarray  # the next word if `words` is odd: each counter gives two
    spare: np.ndarray  # the next normal draw, or NaN: they are drawn in pairs


def new_stream() -> PhiloxState:
    """The state of a stream before its first draw."""
    return PhiloxState(np.zeros(1, np.uint64), np.zeros(1, np.uint64), np.full(1, np.nan))


@kernel(borrows=True)
def philox(key: Any, low: Any, high: Any) -> tuple[int, int]:
    """Map a counter of two words of 64 bits to two random words."""
    a, b, c, d = low & _LOW, low >> _HALF, high & _LOW, high >> _HALF
    k, w = key & _LOW, key >> _HALF
    for _ in range(10):
        first, second = a * _MULTIPLIER_0, c * _MULTIPLIER_1
        a, b = (second >> _HALF) ^ b ^ k, second & _LOW
        c, d = (first >> _HALF) ^ d ^ w, first & _LOW
        k, w = (k + _WEYL_0) & _LOW, (w + _WEYL_1) & _LOW
    return a | (b << _HALF), c | (d << _HALF)


@kernel(borrows=True)
def next_word(key: Any, place: Any, memory: PhiloxState) -> int:
    """The next 64 random bits of a stream."""
    count = memory.words[0]
    memory.words[0] = count + _ONE
    if count & _ONE:
        return memory.word[0]
    word, memory.word[0] = philox(key, count >> _ONE, place)
    return word


@kernel(borrows=True)
def uniform(key: Any, place: Any, memory: PhiloxState) -> float:
    """A uniform draw on [0, 1): a multiple of 2^-53, as in numpy."""
    return float(np.int64(next_word(key, place, memory) >> _SPARE_BITS)) * _UNIT


@kernel(borrows=True)
def open_uniform(word: Any) -> float:
    """Map a word to the midpoint of one of 2^53 cells of (0, 1); its logarithm is finite."""
    return (float(np.int64(word >> _SPARE_BITS)) + 0.5) * _UNIT


@kernel(borrows=True)
def integer(key: Any, place: Any, memory: PhiloxState, low: int, high: int) -> int:
    """A draw from low, ..., high - 1; uniform up to (high - low) 2^-53."""
    return low + int(uniform(key, place, memory) * (high - low))


@kernel(borrows=True)
def exponential(key: Any, place: Any, memory: PhiloxState) -> float:
    """An exponential draw of mean 1."""
    return -math.log(open_uniform(next_word(key, place, memory)))


@kernel(borrows=True)
def laplace(key: Any, place: Any, memory: PhiloxState, centre: float, scale: float) -> float:
    """A Laplace draw: an exponential size, and the word's unused last bit as its sign."""
    word = next_word(key, place, memory)
    size = -scale * math.log(open_uniform(word))
    return centre - size if word & _ONE else centre + size


@kernel(borrows=True)
def normal(key: Any, place: Any, memory: PhiloxState) -> float:
    """A standard normal draw (Box and Muller 1958), two at a time."""
    spare = memory.spare[0]
    if not math.isnan(spare):
        memory.spare[0] = math.nan
        return float(spare)
    radius = math.sqrt(2.0 * exponential(key, place, memory))
    angle = 2.0 * math.pi * uniform(key, place, memory)
    memory.spare[0] = radius * math.sin(angle)
    return radius * math.cos(angle)


@kernel(borrows=True)
def gamma(key: Any, place: Any, memory: PhiloxState, shape: float) -> float:
    """A gamma draw (Marsaglia and Tsang 2000), boosted by a uniform power if shape < 1."""
    boost = 1.0
    if shape < 1.0:
        boost = math.exp(-exponential(key, place, memory) / shape)
        shape += 1.0
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x = normal(key, place, memory)
        v = 1.0 + c * x
        v = v * v * v
        if v > 0.0:
            room = 0.5 * x * x + d - d * v + d * math.log(v)
            if -exponential(key, place, memory) < room:
                return boost * d * v


@kernel(borrows=True)
def beta(key: Any, place: Any, memory: PhiloxState, a: float, b: float) -> float:
    """A beta draw: the share of the first of two gamma draws."""
    x = gamma(key, place, memory, a)
    y = gamma(key, place, memory, b)
    return x / (x + y) if x + y > 0.0 else 0.5


@kernel(borrows=True)
def student_t(key: Any, place: Any, memory: PhiloxState, degrees: float) -> float:
    """A draw from Student's t: normal over the root of a chi-square one."""
    x = normal(key, place, memory)
    return x * math.sqrt(0.5 * degrees / gamma(key, place, memory, 0.5 * degrees))


@kernel(borrows=True)
def cauchy(key: Any, place: Any, memory: PhiloxState) -> float:
    """A standard Cauchy draw."""
    return math.tan(math.pi * (open_uniform(next_word(key, place, memory)) - 0.5))
