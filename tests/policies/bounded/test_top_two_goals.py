"""dp-top-two for sets of arms: the best k, those above a threshold, those above a control."""

from __future__ import annotations

import math

import numpy as np
import pytest

import balaclava as bl
import best_arm
from balaclava.errors import ParameterError
from balaclava.policies.bounded.top_two_goals import SetState
from balaclava.theory.confidence_sequences import laplace_scale, pair_evidence, side_evidence

NAMES, MEANS = ["plain", "friendly", "map", "short"], [0.2, 0.45, 0.7, 0.8]
GOALS = [
    ({"goal": "top", "top": 2}, "the best 2 arms", (2, 3), 4),
    ({"goal": "above", "threshold": 0.6}, "the arms above 0.6", (2, 3), 4),
    ({"goal": "above", "threshold": 0.95}, "the arms above 0.95", (), 4),
    ({"goal": "above", "control": "map"}, "the arms better than map", (3,), 3),
    ({"goal": "top", "top": 1}, "the best arm", (3,), 3),
]


def searching(**parameters: object) -> bl.Policy:
    return bl.policy("dp-top-two", **({"arms": NAMES, "epsilon": 1.0} | parameters))


def play(agent: bl.Agent, rounds: int, seed: int = 0, means: list[float] = MEANS) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        decision = agent.ask()
        agent.tell(decision, float(rng.random() < means[decision.arm]))


def state_of(agent: bl.Agent) -> SetState:
    return agent._runner.state  # type: ignore[no-any-return]


@pytest.mark.parametrize(("goal", "claim", "arms", "claims"), GOALS)
def test_the_set_is_named_when_every_claim_is_known(goal, claim, arms, claims):
    agent = searching(confidence=0.99, **goal).agent(seed=1)
    while (final := agent.estimates(0.99)).answer is None:
        play(agent, 25, seed=agent.status().decisions)
        assert agent.status().decisions < 6_000
    assert final.answer == (claim, arms, tuple(NAMES[arm] for arm in arms))
    state = state_of(agent)
    pools, scale = state.pools, laplace_scale(1.0)
    released = list(zip(pools.in_order, pools.rewards_in_order, pools.draws_in_order, strict=True))
    if "threshold" in goal:
        known = [side_evidence(each, goal["threshold"], scale) for each in released]
    else:
        rest = {0, 1, 2, 3} - set(arms)
        pairs = [(2, arm) for arm in (0, 1, 3)] if "control" in goal else [
            (low, high) for low in rest for high in arms
        ]  # fmt: skip
        ordered = [sorted((released[a], released[b])) for a, b in pairs]
        known = [pair_evidence(low, high, scale, 1.0) for low, high in ordered]
    assert min(known) >= math.log(claims / 0.01)
    assert agent.estimates(0.999).answer is None  # more than the policy was asked for
    if claim != "the best arm":
        assert str(agent.may_stop(0.99)).startswith(f"Stop: {claim}: ")
        assert f"Answer: {claim}" in str(final)
    play(agent, 300, means=[0.9, 0.9, 0.0, 0.0])  # whatever comes later
    assert agent.estimates(0.99).answer.arms == arms
    assert bl.restore(agent.save()).estimates(0.99).answer.arms == arms


def test_the_best_of_one_goal_is_that_of_the_other():
    """The best 1 of 4 takes about as long as goal = "best", by other batches."""
    rounds = [
        np.median(best_arm.play(searching(**goal), MEANS, 400, seed=1)[:, 0])
        for goal in ({}, {"goal": "top", "top": 1})
    ]
    assert 0.8 < rounds[1] / rounds[0] < 1.25


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("means", "goal"),
    [
        ([0.45, 0.5, 0.6], {"goal": "top", "top": 2}),
        ([0.02, 0.04, 0.05], {"goal": "above", "threshold": 0.03}),
        ([0.5, 0.52, 0.45], {"goal": "above", "control": 0}),
    ],
)
def test_wrong_sets_are_rare(means, goal):
    """400 runs at 0.8 confidence; 100 wrong at the true level once in 150 times."""
    policy = best_arm.top_two(means, 1.0, 0.8, **goal)
    found = best_arm.play(policy, means, 400, seed=1, most=10**5)[:, 1].astype(int)
    right = best_arm.right_sets(policy, means)
    assert sum(each >= 0 and each not in right for each in found) < 100
    assert sum(each in right for each in found) > 200


@pytest.mark.parametrize("goal", [{"goal": "top", "top": 2}, {"goal": "above", "control": 0}])
def test_late_and_lost_rewards(goal):
    agent, rng = searching(**goal).agent(seed=2, patience=400), np.random.default_rng(2)
    waiting: list[bl.Decision] = []
    for t in range(5_000):
        waiting.append(agent.ask())
        if len(waiting) > 150:
            decision = waiting.pop(0)
            if t % 5:
                agent.tell(decision, float(rng.random() < MEANS[decision.arm]))
            else:
                agent.cancel(decision)
    assert agent.estimates().answer.arms == ((2, 3) if "top" in goal else (1, 2, 3))


def test_may_stop_at_the_horizon():
    agent = searching(goal="top", top=2).agent(seed=1)
    play(agent, 100, means=[0.5] * 4)
    assert str(agent.may_stop(horizon=200)) == "Continue: the best 2 arms are not yet known."
    assert agent.may_stop(horizon=100).reason == "futile"
    assert not agent.policy.names_winners
    assert "the best 2 arms" in agent.policy.names_winners.reason


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"goal": "top"}, "needs top"),
        ({"goal": "top", "top": 4}, "not below the number of arms, 4"),
        ({"goal": "top", "top": 0}, "top = 0"),
        ({"goal": "above"}, "needs threshold or control"),
        ({"goal": "above", "threshold": 0.5, "control": 1}, "needs threshold or control; give one"),
        ({"goal": "above", "threshold": 1.5}, r"must be inside reward_range, \(0, 1\)"),
        ({"goal": "above", "control": 4}, "arms are 0 to 3"),
        ({"goal": "above", "control": "maps"}, "is not an arm; did you mean 'map'"),
        ({"goal": "above", "arms": 3, "control": "map"}, "a whole number"),
        ({"top": 2}, "is not for goal = 'best'"),
    ],
)
def test_goals_that_do_not_fit_are_refused(parameters, words):
    with pytest.raises(ParameterError, match=words):
        searching(**parameters)


def test_a_threshold_is_in_the_unit_of_the_rewards():
    policy = searching(goal="above", threshold=16.0, reward_range=(10.0, 20.0))
    assert policy.constants().threshold == pytest.approx(0.6)
    assert bl.policy(policy.name, **policy.parameters) == policy
