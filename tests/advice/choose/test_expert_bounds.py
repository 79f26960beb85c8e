"""Recommendations of policies that follow experts."""

from __future__ import annotations

import pytest

import balaclava as bl
from balaclava.errors import ParameterError


def test_few_experts_and_many() -> None:
    few = bl.recommend_experts(5, 20, 10**6, 1.0, delta=1e-5)
    assert few.policy == "dp-htinf-experts"
    assert not few.empty
    assert [one.policy for one in few.candidates] == ["dp-htinf-experts", "ldp-exp4", "dp-exp4"]
    assert bl.recommend_experts(2, 10_000, 10**6, 1.0).policy == "ldp-exp4"
    assert bl.recommend_experts(2, 10**5, 10**12, 1e-3, delta=1e-9).policy == "dp-exp4"


def test_a_tuned_bound_is_the_bound_of_a_policy() -> None:
    plain = bl.recommend_experts(5, 20, 10**6, 1.0)
    tuned = bl.recommend_experts(5, 20, 10**6, 1.0, tuned=True)
    best = tuned.candidates[0]
    policy = bl.policy(
        best.policy,
        arms=5,
        experts=20,
        horizon=10**6,
        epsilon=1.0,
        learning_rate_scale=best.learning_rate_scale,
    )
    assert policy.regret_bound(None, 10**6) == best.bound
    assert {one.policy: one.bound for one in plain.candidates}["ldp-exp4"] > 5 * best.bound


def test_what_a_recommendation_says() -> None:
    text = str(bl.recommend_experts(5, 20, 10**6, 2.0, delta=0.0))
    assert "dp-htinf-experts  no bound: its theorem is for epsilon up to 1" in text
    assert "Take ldp-exp4." in text
    hopeless = bl.recommend_experts(5, 1000, 1000, 0.1, delta=1e-6)
    assert hopeless.empty
    assert "so nothing is promised" in str(hopeless)
    with pytest.raises(ParameterError, match="experts = 0"):
        bl.recommend_experts(5, 0, 1000, 0.1)
    with pytest.raises(ParameterError, match="delta"):
        bl.recommend_experts(5, 5, 1000, 0.1, delta=1.0)
