"""Additive secret shares: two servers add up rewards that neither of them can read.

A device splits its reward, a whole number of grid steps, into two shares modulo 2^bits and sends
one to each server. Each server adds up the shares of a batch and adds the full noise for epsilon.
Only these noisy sums are exchanged; together they are the sum of the rewards with both noises.

    device       a, b = split(reward_steps(0.7), bits)        a to one server, b to the other
    each server  noisy = noisy_sum(shares, GRID_STEPS, epsilon, bits)
    anyone       steps = combine(noisy_a, noisy_b, bits)      steps / GRID_STEPS rewards

All of it is integer arithmetic: nothing is rounded after `reward_steps`, and noise is never
clamped, so that it keeps its law modulo 2^bits.

Proof: `secret_shares.proof.md` beside this file.
"""

import math
import secrets
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

from balaclava.errors import ParameterError
from balaclava.privacy.exact_noise import GRID_BITS, bernoulli_exp

# Steps of the grid in the range of a reward: the sensitivity of a sum.
GRID_STEPS = 2**GRID_BITS
# Far beyond any batch: more bits point to a mistake. JavaScript numbers hold shares of 53 bits.
MOST_BITS = 128

_BITS_PER_DIGIT = 4  # as text a share is hexadecimal

RandomBits = Callable[[int], int]  # a uniform number of that many bits


def modulus_bits(rewards: int, grid_steps: int, epsilon: float, failure: float) -> int:
    """The least bits with which a released sum wraps with probability at most `failure`.

    Args:
        rewards: most rewards in a batch.
        grid_steps: steps of the grid in the range of a reward, the sensitivity of the sum.
        epsilon: privacy loss of each server's noise.
        failure: chance that one release wraps, above 0 and below 1.

    Raises:
        ParameterError: if a value is out of range, or more than MOST_BITS bits are needed.
    """
    _whole("rewards", rewards, 1)
    _, most = possible_sums(rewards, grid_steps, epsilon, failure)
    bits = most.bit_length() + 1
    if bits > MOST_BITS:
        raise ParameterError(
            f"a sum of {rewards} rewards at epsilon = {epsilon!r} needs {bits} bits, more than "
            f"{MOST_BITS}; use fewer rewards in a batch, a larger epsilon or a larger failure"
        )
    return bits


def possible_sums(rewards: int, grid_steps: int, epsilon: float, failure: float) -> tuple[int, int]:
    """The least and the largest sum of that many rewards with the noise of two servers.

    An honest sum is beyond them with probability at most `failure`. For the arguments and errors
    see `modulus_bits`; `rewards` may be 0.
    """
    _whole("rewards", rewards, 0)
    _whole("grid_steps", grid_steps, 1)
    rate = _epsilon(epsilon)
    if not 0.0 < failure < 1.0:
        raise ParameterError(f"failure = {failure!r} is not between 0 and 1; such as 2^-40")
    # P(a noise exceeds m) <= 2 exp(-(m + 1) epsilon / grid_steps): failure/4 on either side of
    # both noises. 2^doublings >= 4/failure, and log 2 < 7/10.
    doublings = (math.ceil(4 / Fraction(failure)) - 1).bit_length()
    furthest = math.ceil(Fraction(7 * doublings * grid_steps, 10) / rate)
    return -2 * furthest, rewards * grid_steps + 2 * furthest


def reward_steps(reward: float, low: float = 0.0, high: float = 1.0) -> int:
    """A reward as whole grid steps above `low`: clipped to the range, rounded, ties to even.

    Raises:
        ParameterError: if the reward or the range is not finite, or the range is empty.
    """
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ParameterError(f"the range {low!r} to {high!r} is empty or infinite")
    if math.isnan(reward):
        raise ParameterError("the reward is not a number; split the default reward instead")
    inside = Fraction(min(max(reward, low), high))
    return round((inside - Fraction(low)) / (Fraction(high) - Fraction(low)) * GRID_STEPS)


def split(value: int, bits: int, random: RandomBits = secrets.randbits) -> tuple[int, int]:
    """Two shares of a value: each is uniform alone, and together they add up to the value.

    Args:
        value: from -2^(bits - 1) to 2^(bits - 1) - 1; never displayed in an error.
        bits: of the modulus.
        random: returns a uniform number of that many bits, from a secure source.

    Raises:
        ParameterError: if `bits` or the value is out of range.
    """
    modulus = _modulus(bits)
    if not -modulus <= 2 * value < modulus:
        raise ParameterError(f"the value to split is outside the {bits} bits of a share")
    share = random(bits)
    if not 0 <= share < modulus:
        raise ParameterError(f"the random source returned a number outside {bits} bits")
    return share, (value - share) % modulus


def check_share(share: int, bits: int) -> int:
    """Return a share that a server received.

    Raises:
        ParameterError: if it is not a whole number from 0 to 2^bits - 1. Errors omit its value.
    """
    modulus = _modulus(bits)
    if type(share) is not int or not 0 <= share < modulus:
        raise ParameterError(f"a share must be a whole number from 0 to 2^{bits} - 1")
    return share


def share_digits(bits: int) -> int:
    """Hexadecimal digits of a share."""
    return -(-bits // _BITS_PER_DIGIT)


def share_text(share: int, bits: int) -> str:
    """A share as text of a size that depends on `bits` alone."""
    return f"{check_share(share, bits):0{share_digits(bits)}x}"


def noisy_sum(shares: Iterable[int], grid_steps: int, epsilon: float, bits: int) -> int:
    """What one server releases of a batch: the sum of its shares and the full noise for epsilon.

    Call it once for a batch, and store the answer before it is sent: a second draw for the same
    shares costs epsilon again.

    Args:
        shares: the server's shares of the batch, one for each reward.
        grid_steps: how far one reward can move the sum.
        epsilon: privacy loss of the release.
        bits: of the modulus.

    Raises:
        ParameterError: if a share or another value is out of range.
    """
    total = sum(check_share(share, bits) for share in shares)
    return (total + discrete_laplace_noise(grid_steps, epsilon)) % _modulus(bits)


class ServerView(NamedTuple):
    """What one server of a batch holds, and what it releases."""

    shares: list[int]
    releases: list[int]  # one, if it is honest


def shared_release(
    values: Sequence[int], grid_steps: int, epsilon: float, bits: int
) -> tuple[ServerView, ServerView]:
    """Play devices and both servers for one batch, in one process: for trials and audits.

    Args:
        values: the rewards in grid steps; see `split`.
        grid_steps: see `noisy_sum`, as for the others.
        epsilon: privacy loss of each release.
        bits: of the modulus.
    """
    pairs = [split(value, bits) for value in values]
    one, other = ([pair[server] for pair in pairs] for server in (0, 1))
    return (
        ServerView(one, [noisy_sum(one, grid_steps, epsilon, bits)]),
        ServerView(other, [noisy_sum(other, grid_steps, epsilon, bits)]),
    )


def combine(sum_a: int, sum_b: int, bits: int) -> int:
    """The noisy sum of the rewards in grid steps, from -2^(bits - 1) to 2^(bits - 1) - 1.

    Raises:
        ParameterError: if a sum is not a whole number from 0 to 2^bits - 1.
    """
    half = _modulus(bits) // 2
    return (check_share(sum_a, bits) + check_share(sum_b, bits) + half) % (2 * half) - half


def discrete_laplace_noise(steps: int, epsilon: float) -> int:
    """Draw k with probability proportional to exp(-epsilon |k| / steps), exactly and unclamped.

    Canonne, Kamath, Steinke 2020, Algorithm 2, with secure randomness. OpenDP's 64-bit integers
    saturate: in arithmetic modulo 2^bits that end would show where a sum lies.
    """
    rate = _epsilon(epsilon)
    least, most = rate.numerator, rate.denominator * _whole("steps", steps, 1)
    while True:
        # |k| least is geometric with ratio exp(-1 / most): a remainder below `most`, and whole
        # multiples of it.
        remainder = secrets.randbelow(most)
        if not bernoulli_exp(remainder, most):
            continue
        multiples = 0
        while bernoulli_exp(1, 1):
            multiples += 1
        size = (remainder + most * multiples) // least
        negative = secrets.randbits(1)
        if size > 0 or not negative:  # 0 has one sign
            return -size if negative else size


def _epsilon(epsilon: float) -> Fraction:
    if not 0.0 < epsilon < math.inf:
        raise ParameterError(f"epsilon = {epsilon!r} is not a positive finite number")
    return Fraction(epsilon)


def _whole(name: str, value: int, least: int) -> int:
    if type(value) is not int or value < least:
        raise ParameterError(f"{name} = {value!r} is not a whole number of at least {least}")
    return value


def _modulus(bits: int) -> int:
    if type(bits) is not int or not 1 <= bits <= MOST_BITS:
        raise ParameterError(f"bits = {bits!r} is not a whole number from 1 to {MOST_BITS}")
    return int(2**bits)
