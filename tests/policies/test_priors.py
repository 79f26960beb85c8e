"""Warm starts."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import balaclava as bl

MEANS = {"a": 0.2, "b": 0.5, "d": 0.9}
PRIOR = {label: (mean, 300) for label, mean in MEANS.items()}


def agent_of(prior, arms=("a", "b", "d"), **how):
    return bl.policy("dp-imed", arms=list(arms), epsilon=5.0).agent(seed=1, prior=prior, **how)


def play(agent, rounds, means=MEANS, seed=2):
    rng, labels = np.random.default_rng(seed), []
    for _ in range(rounds):
        decision = agent.ask()
        agent.tell(decision, float(rng.random() < means[decision.label]))
        labels.append(decision.label)
    return labels


def test_arms_that_a_prior_rules_out_rest_as_long_as_its_rewards_count():
    agent = agent_of(PRIOR)
    # Errors are 1/(2 sqrt 300), so the evidence is 300 d^2: 147 and 48 nats, above log 300.
    assert agent._runner.roster.rests == {0: 301, 1: 301}
    assert set(play(agent, 300)) == {"d"}
    assert {"a", "b"} <= set(play(agent, 100))


def test_weak_evidence_is_a_short_rest():
    agent = agent_of({"b": (0.5, 300), "d": (0.58, 300)})
    assert agent._runner.roster.rests == {1: 1 + int(math.exp(300 * 0.08**2))}
    assert agent._runner.roster.arm_in_slot == [0, 1, 2]
    assert "a" in play(agent, 40)  # nothing is known of it


def test_a_contradicted_prior_ends_all_rests():
    agent = agent_of({"a": (0.9, 5_000), "d": (0.2, 5_000)})
    labels = play(agent, 1_000)
    assert 0 < labels.index("d") < 200
    assert agent._runner.roster.rests == {}
    assert labels.count("d") > 700


@pytest.mark.parametrize("memory", ["detect", 4_000])
def test_a_contradicted_prior_ends_all_rests_with_a_memory_too(memory):
    policy = bl.policy("dp-imed", arms=["a", "d"], epsilon=5.0, memory=memory)
    agent = policy.agent(seed=1, prior={"a": (0.9, 50_000), "d": (0.2, 50_000)})
    labels = play(agent, 600)
    assert 0 < labels.index("d") < 200
    with pytest.raises(bl.errors.EstimateError):
        agent.estimates()


def test_estimates_and_winners_never_count_a_prior():
    agent = agent_of({label: (mean, 10**6) for label, mean in MEANS.items()})
    assert all(entry.rewards == 0 for entry in agent.estimates())
    assert agent.winner() is None
    play(agent, 60)
    entries = agent.estimates()
    assert [entries.of(label).mean for label in "ab"] == [None, None]
    assert entries.winner is None
    assert entries.condition is None


def test_estimates_results_and_public_numbers_are_priors():
    other = agent_of(None)
    play(other, 3_000)
    estimates = other.estimates()
    arms = [
        {"label": e.label, "mean": e.mean, "low": e.interval[0], "high": e.interval[1]}
        | {"rewards": e.rewards}
        for e in estimates
    ]
    results = {"arms": arms, "confidence": 0.95}
    rests = agent_of(estimates)._runner.roster.rests
    assert set(rests) == {0, 1}
    assert agent_of(json.loads(json.dumps(results)))._runner.roster.rests == rests


def test_a_prior_is_restored_and_listed_in_the_guarantee():
    agent = agent_of(PRIOR)
    play(agent, 50)
    again = bl.restore(json.loads(json.dumps(agent.save())))
    assert again._runner.roster.rests == agent._runner.roster.rests
    assert set(play(again, 200)) == {"d"}
    own = bl.policy("dp-imed", arms=["a", "b"], epsilon=1.0).agent(prior={"a": (0, 9), "b": (1, 9)})
    assert "the prior is public" in own.guarantee.assumptions[-1]
    assert own.guarantee.epsilon == 1.0


def test_in_window_mode_and_with_masks_a_resting_arm_is_played_if_no_other_is_offered():
    agent = agent_of(PRIOR, patience=20, settle="window", missing=0.0)
    assert agent.ask(available=["a"]).label == "a"
    assert agent.ask(available=["a", "d"]).label == "d"
    shared = agent_of(PRIOR, shares={"a": 0.5})
    assert "a" in [shared.ask().label for _ in range(40)]  # a share comes before a prior


@pytest.mark.parametrize(
    ("prior", "why"),
    [
        ({"a": (0.5, 10), "z": (0.6, 10)}, "there is no arm 'z'"),
        ({"a": (0.5, 10), "b": (7.0, 10)}, "outside the policy's range"),
        ({"a": (0.5, 10)}, "give at least 2"),
        ({"a": (0.5, 0), "b": (0.5, 10)}, r"must have \(mean, rewards\)"),
        ({"a": 0.5, "b": 0.4}, r"must have \(mean, rewards\)"),
        ({}, "give at least 2"),
        ("dp-imed", "is not a prior"),
        (3, "is not a prior"),
    ],
)
def test_bad_priors_are_refused(prior, why):
    with pytest.raises(bl.errors.ParameterError, match=why):
        agent_of(prior)


def test_policies_with_fixed_arms_and_without_a_range_refuse():
    with pytest.raises(bl.errors.ParameterError, match="prior: dp-se takes none: "):
        bl.policy("dp-se", arms=["a", "b"], epsilon=1.0, horizon=100).agent(prior=PRIOR)
    with pytest.raises(bl.errors.ParameterError, match="has no range"):
        bl.policy("ucb1", arms=["a", "b"]).agent(prior={"a": (0.1, 5), "b": (0.2, 5)})
