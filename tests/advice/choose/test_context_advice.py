"""Advice about features: which policy, from when on, and what does not fit together."""

from __future__ import annotations

from typing import Any

import pytest

import balaclava as bl
from balaclava.advice.choose.context_advice import advise_features
from balaclava.errors import ParameterError


def advised(**options: Any) -> Any:
    usual = {"arms": ["a", "b"], "horizon": 10_000, "features": 5, "simulate": False}
    return bl.recommend(**{**usual, **options})


@pytest.mark.parametrize(
    ("options", "name", "scope"),
    [
        ({}, "dp-kernel-ucb", "trajectory"),
        ({"trust": "local"}, "ldp-kernel-ucb", "report"),
        ({"hidden_features": True}, "dp-squarecb", "joint"),
    ],
)
def test_a_policy_with_features_is_recommended(options: Any, name: str, scope: str) -> None:
    advice = advised(**options)
    assert (advice.policy.name, advice.guarantee.scope) == (name, scope)
    assert advice.policy.parameters["features"] == 5
    assert advice.policy.disjoint
    assert advice.policy.parameters["arms"] == ["a", "b"]
    assert advice.baseline.name == "linucb"
    with pytest.raises(ParameterError, match="decides by features"):
        advice.expect()


def test_features_are_left_out_before_their_break_even() -> None:
    """A hidden feature costs 1,000 rounds at epsilon 1, twice as many at a half."""
    advice = advised(hidden_features=True, epsilon=0.3)
    assert advice.policy.name == "dp-imed"
    assert "from about 16,667 rounds on" in advice.notes[-1]
    assert advised(horizon=200).policy.name == "dp-imed"
    assert advised(horizon=300).policy.name == "dp-kernel-ucb"


def test_break_evens_fall_with_epsilon_and_grow_with_hidden_features() -> None:
    def rounds(features: int, epsilon: float, hidden: bool = False) -> int:
        return advise_features(
            features, hidden, "central", "bounded", "trajectory", epsilon
        ).break_even

    assert [rounds(5, each) for each in (0.1, 1.0, 5.0)] == [30_000, 300, 300]
    assert [rounds(each, 1.0, True) for each in (1, 10, 60)] == [1_000, 10_000, 60_000]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ParameterError, match="hides features from the operator"):
        advised(hidden_features=True, trust="local")
    with pytest.raises(ParameterError, match="leave features out"):
        advised(scope="decision")
    with pytest.raises(ParameterError, match="features = 0 is not allowed"):
        advised(features=0)
