"""Any base over experts."""

from __future__ import annotations

import json

import pytest

import balaclava as bl
from balaclava.errors import ParameterError

K, N = 3, 4


def test_any_base_may_follow_experts() -> None:
    """The conversion over experts plays as the named policy that has the same base."""
    T, N = 2_000, 4
    named = bl.policy("dp-exp3-experts", arms=2, experts=N, horizon=T, epsilon=0.5)
    inner = named.inner.base_policy()  # type: ignore[attr-defined]
    base = bl.policy("exp3", **{**inner.parameters, "arms": 2})
    private = bl.privatise(base, epsilon=0.5, experts=N)
    assert (private.name, private.arms, private.base.arms) == ("privatised-experts", 2, N)
    assert private.guarantee.epsilon == 0.5
    advice = [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [0.2, 0.8]]
    world = bl.environment(
        "advice",
        losses=bl.environment("stochastic-losses", means=[0.8, 0.2]),
        advice=advice,
    )
    played = [
        bl.simulate(one, world, horizon=T, repetitions=5, seed=3).pulls(one.name)
        for one in (named, private)
    ]
    assert (played[0] == played[1]).all()
    assert private.proved_bound(world, T) == named.proved_bound(world, T)
    again = bl.policy("privatised-experts", **json.loads(json.dumps(private.parameters)))
    assert again == private


def test_what_a_base_over_experts_must_be() -> None:
    with pytest.raises(ParameterError, match=r"privatised-experts.*base.*learns from rewards"):
        bl.privatise(bl.policy("ucb1", arms=2), epsilon=1.0, experts=3)
    with pytest.raises(ParameterError, match="experts = 3 differs from the base"):
        bl.policy(
            "privatised-experts",
            arms=2,
            experts=3,
            base={"name": "exp3", "arms": 2},
            epsilon=1.0,
        )
    with pytest.raises(ParameterError, match="longer than the horizon"):
        bl.privatise(bl.policy("exp3", arms=2), epsilon=0.1, experts=3, horizon=5)
