"""Secret shares: their law, exhaustively where it is small, and what a server's view reveals."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from balaclava.errors import ParameterError
from balaclava.privacy.secret_shares import (
    GRID_STEPS,
    MOST_BITS,
    check_share,
    combine,
    discrete_laplace_noise,
    modulus_bits,
    noisy_sum,
    possible_sums,
    reward_steps,
    split,
)

SIGNIFICANCE = 1e-6
HUGE = 1e9  # epsilon at which noise is 0


@given(st.data())
def test_shares_add_up(data: st.DataObject) -> None:
    bits = data.draw(st.integers(1, MOST_BITS))
    value = data.draw(st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1))
    assert combine(*split(value, bits), bits) == value


@given(st.lists(st.integers(0, GRID_STEPS), max_size=30))
def test_sums_of_shares_are_shares_of_the_sum(values: list[int]) -> None:
    bits = modulus_bits(30, GRID_STEPS, HUGE, 2**-40)
    shares = [split(value, bits) for value in values]
    sums = [noisy_sum(column, GRID_STEPS, HUGE, bits) for column in zip(*shares, strict=True)]
    assert not values or combine(sums[0], sums[1], bits) == sum(values)


@pytest.mark.parametrize("value", [-8, -1, 0, 5, 7])
def test_each_share_alone_is_uniform_whatever_the_value(value: int) -> None:
    """Over all draws of the source, which are equally likely."""
    pairs = [split(value, 4, lambda _, draw=draw: draw) for draw in range(16)]
    for server in (0, 1):
        assert sorted(pair[server] for pair in pairs) == list(range(16))


@pytest.mark.statistical
def test_the_secure_source_is_uniform() -> None:
    for server in (0, 1):
        counts = np.bincount([split(3, 4)[server] for _ in range(16_000)], minlength=16)
        assert stats.chisquare(counts).pvalue > SIGNIFICANCE


def masses_of_noise(steps: int, epsilon: float, reach: int) -> dict[int, float]:
    """Probabilities of the noise, up to a reach."""
    ratio = math.exp(-epsilon / steps)
    return {k: (1 - ratio) / (1 + ratio) * ratio ** abs(k) for k in range(-reach, reach + 1)}


@pytest.mark.statistical
@pytest.mark.parametrize("epsilon", [0.3, 1.5, 4.0])
def test_noise_follows_its_law(epsilon: float) -> None:
    draws = np.array([discrete_laplace_noise(3, epsilon) for _ in range(30_000)])
    inner = np.array(list(masses_of_noise(3, epsilon, 6).values()))
    rest = (1 - inner.sum()) / 2
    expected = np.concatenate([[rest], inner, [rest]]) * draws.size
    observed = np.bincount(np.clip(draws, -7, 7) + 7, minlength=15)
    assert stats.chisquare(observed, expected).pvalue > SIGNIFICANCE


@pytest.mark.statistical
def test_noise_on_the_grid_has_its_scale_and_two_percent_are_noticed() -> None:
    noise = np.array([discrete_laplace_noise(GRID_STEPS, 0.7) for _ in range(40_000)]) / GRID_STEPS

    def agreement(scale: float) -> float:
        z = (np.abs(noise).mean() / scale - 1) * math.sqrt(noise.size)
        law = stats.kstest(noise, stats.laplace(0, scale).cdf, method="asymp").pvalue
        return float(min(law, 2 * stats.norm.sf(abs(z))))

    assert agreement(1 / 0.7) > SIGNIFICANCE
    assert agreement(1.05 / 0.7) < SIGNIFICANCE


@pytest.mark.parametrize(("steps", "epsilon"), [(2, 0.5), (3, 2.0)])
def test_a_servers_view_keeps_epsilon(steps: int, epsilon: float) -> None:
    """All views of one server for a batch of two: its shares, and the other server's release.

    The release of the other server wraps, as it does here often: the loss stays within epsilon.
    """
    bits, modulus = 4, 16
    wrapped = np.zeros(modulus)
    for k, mass in masses_of_noise(steps, epsilon, 300).items():
        wrapped[k % modulus] += mass

    def views(rewards: tuple[int, ...]) -> dict[tuple[int, ...], float]:
        found: dict[tuple[int, ...], float] = {}
        for draws in product(range(modulus), repeat=len(rewards)):
            pairs = [
                split(reward, bits, lambda _, draw=draw: draw)
                for reward, draw in zip(rewards, draws, strict=True)
            ]
            total, seen = sum(a for a, _ in pairs), tuple(b for _, b in pairs)
            for answer in range(modulus):
                found[(*seen, answer)] = wrapped[(answer - total) % modulus] / modulus ** len(draws)
        return found

    one, other = views((0, 1)), views((steps, 1))
    assert one.keys() == other.keys()
    loss = max(math.log(one[view] / other[view]) for view in one)
    assert 0.7 * epsilon < loss <= epsilon * (1 + 1e-9)


@pytest.mark.parametrize(("steps", "epsilon"), [(1, 0.5), (4, 1.0), (16, 3.0)])
@pytest.mark.parametrize("failure", [0.5, 2**-10, 2**-40])
def test_room_for_the_noise_is_enough_and_not_wasted(
    steps: int, epsilon: float, failure: float
) -> None:
    rewards = 50
    bits = modulus_bits(rewards, steps, epsilon, failure)
    room = 2 ** (bits - 1) - 1 - rewards * steps  # above the largest sum; below 0 there is more
    # P(N + N' > room), N and N' geometric on both sides with ratio q: from the convolution.
    q = math.exp(-epsilon / steps)
    weight = ((1 - q) / (1 + q)) ** 2
    beyond = q**room * (room + 1 + (1 + q * q) / (1 - q * q) + q / (1 - q))
    exceeded = 2 * weight * beyond * q / (1 - q)
    assert exceeded <= failure
    assert bits <= 2 + math.log2(rewards * steps + 2 * math.log(8 / failure) * steps / epsilon)


def test_possible_sums_are_those_of_the_modulus() -> None:
    for rewards in (1, 50, 10**6):
        least, most = possible_sums(rewards, GRID_STEPS, 1.0, 2**-40)
        assert most == rewards * GRID_STEPS - least
        bits = modulus_bits(rewards, GRID_STEPS, 1.0, 2**-40)
        assert most < 2 ** (bits - 1) <= 2 * most
    least, most = possible_sums(0, GRID_STEPS, 1.0, 2**-40)
    assert most == -least
    # P(N + N' > x) <= P(one exceeds x/2) twice, in rewards: 2^-40 needs more than 2 log(2^41).
    assert 2 * 41 * math.log(2) < most / GRID_STEPS < 60


def test_bits_at_work() -> None:
    assert modulus_bits(10**6, GRID_STEPS, 1.0, 2**-40) == 41
    assert modulus_bits(1, GRID_STEPS, 0.01, 2**-40) == 34


@pytest.mark.parametrize("reward", [0.0, 0.3, 0.5, 1.0, 2.0**-21, 3 * 2.0**-21])
def test_rewards_are_on_the_grid_of_the_other_releases(reward: float) -> None:
    assert reward_steps(reward) == round(reward * GRID_STEPS)
    assert reward_steps(10 * reward - 5, -5.0, 5.0) == pytest.approx(reward * GRID_STEPS, abs=1)


def test_rewards_beyond_the_range_are_clipped() -> None:
    assert [reward_steps(x) for x in (-3.0, -math.inf, 1.5, math.inf)] == [0, 0, *[GRID_STEPS] * 2]


def test_what_is_out_of_range_is_refused_without_its_value() -> None:
    with pytest.raises(ParameterError, match="outside the 8 bits") as refused:
        split(128, 8)
    assert "128" not in str(refused.value)
    for share in (-1, 256, 3.0, True, "3"):
        with pytest.raises(ParameterError, match=r"from 0 to 2\^8 - 1"):
            check_share(share, 8)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="random source"):
        split(1, 8, lambda _: 256)
    with pytest.raises(ParameterError, match="not a number"):
        reward_steps(math.nan)
    for low, high in ((1.0, 1.0), (0.0, math.inf)):
        with pytest.raises(ParameterError, match="empty or infinite"):
            reward_steps(0.5, low, high)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((0, 4, 1.0, 0.1), "rewards = 0"),
        ((5, 0, 1.0, 0.1), "grid_steps = 0"),
        ((5, 4, 0.0, 0.1), "epsilon = 0.0"),
        ((5, 4, math.nan, 0.1), "epsilon = nan"),
        ((5, 4, 1.0, 0.0), "failure = 0.0"),
        ((5, 4, 1e-40, 0.1), "more than 128"),
    ],
)
def test_bad_arguments_of_the_modulus(arguments: tuple[int, int, float, float], named: str) -> None:
    with pytest.raises(ParameterError, match=named):
        modulus_bits(*arguments)
