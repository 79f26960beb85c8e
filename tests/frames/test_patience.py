"""The timeout of a reward."""

from __future__ import annotations

import pytest

from balaclava.frames.patience import (
    ENDLESS,
    ESTIMATED,
    LEAST_REWARDS,
    LEAST_WAIT,
    begin_patience,
    longest_wait,
    note_wait,
)


def after(waits: list[int], limit: int = ESTIMATED) -> int:
    patience = begin_patience(limit)
    for wait in waits:
        patience = note_wait(patience, wait)
    return longest_wait(patience)


def test_a_given_patience_is_the_timeout() -> None:
    assert after([], 7) == after([1000] * 40, 7) == 7


def test_an_estimated_timeout_needs_enough_rewards() -> None:
    assert after([1] * (LEAST_REWARDS - 1)) == ENDLESS
    assert after([1] * LEAST_REWARDS) == LEAST_WAIT
    assert after([1] * 10_000) == LEAST_WAIT


def test_the_first_timeout_follows_the_longest_wait() -> None:
    # The longest of the first rewards, then a shorter one each: down by a factor of 2^(-0.03/8).
    assert after([1] * (LEAST_REWARDS - 1) + [1000]) == 1250
    assert after([1000, *[1] * (LEAST_REWARDS - 1)]) == int(1250 * 2 ** (-0.03 * 29 / 8))
    assert after([1] * LEAST_REWARDS + [1000]) == int(LEAST_WAIT * 2 ** (0.97 / 8))


@pytest.mark.parametrize("wait", [300, 5000])
def test_the_tracked_quantile_is_where_three_in_a_hundred_are_longer(wait: int) -> None:
    waits = list(range(1, wait + 1))
    mixed = [waits[(i * 7919) % wait] for i in range(30_000)]
    assert after(mixed) == pytest.approx(1.25 * 0.97 * wait, rel=0.1)
