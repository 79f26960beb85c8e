"""Off-policy estimates: their intervals hold the truth, and no gain is seen where there is none."""

from __future__ import annotations

import numpy as np
import pytest

from balaclava.advice.log.off_policy import (
    evaluate_off_policy,
    fit_propensities,
)
from tests.advice.logs_on_disk import ROWS, draw_log


@pytest.mark.parametrize("logged", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_no_gain_is_seen_where_there_is_none(logged: bool) -> None:
    """300 logs whose features say nothing: at most 6 % show a gain, where 2.5 % or fewer should.

    More than that by chance has a probability below 1e-3.
    """
    rng = np.random.default_rng(11)
    seen = 0
    for _ in range(300):
        arms, rewards, rows, chances = draw_log(rng, slope=0.0)
        gain = evaluate_off_policy(arms, rewards, rows, chances if logged else None).gain
        seen += gain["doubly robust"].low > 0
    assert seen <= 18


@pytest.mark.parametrize("logged", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_intervals_hold_the_value_of_a_confounded_log(logged: bool) -> None:
    """200 logs: 95 % intervals hold the gain of 0.15 in at least 88 % of them.

    Fewer by chance has a probability below 1e-4. The best single arm earns 0.5, and the arm that
    suits x earns 0.5 + 0.3 E|x| = 0.65; plain averages of the log say 0.6 for both arms.
    """
    rng = np.random.default_rng(12)
    held = {"doubly robust": 0, "SNIPS": 0, "IPS": 0}
    for _ in range(200):
        arms, rewards, rows, chances = draw_log(rng, slope=0.3)
        gain = evaluate_off_policy(arms, rewards, rows, chances if logged else None).gain
        for method, each in gain.items():
            held[method] += each.low <= 0.15 <= each.high
    assert min(held.values()) >= 176


def test_rows_of_a_person_count_as_one() -> None:
    """Each row three times: the interval is that of the rows once, and as wide."""
    rng = np.random.default_rng(13)
    arms, rewards, rows, chances = draw_log(rng, slope=0.3)
    people = np.repeat(np.arange(ROWS), 3)
    once = evaluate_off_policy(arms, rewards, rows, chances)
    thrice = evaluate_off_policy(
        *(np.repeat(each, 3, axis=0) for each in (arms, rewards, rows, chances)),
        participants=people,
    )
    width = {each: g.high - g.low for each, g in once.gain.items()}
    for method, gain in thrice.gain.items():
        assert gain.high - gain.low == pytest.approx(width[method], rel=0.05)


def test_propensities_are_estimated() -> None:
    rng = np.random.default_rng(14)
    arms, _, rows, chances = draw_log(rng, slope=0.0, rows=20_000)
    model = fit_propensities(rows, arms, 2)
    np.testing.assert_allclose(model.chances(rows, arms), chances, atol=0.03)
    np.testing.assert_allclose(model(rows[:50]).sum(axis=1), 1.0)
