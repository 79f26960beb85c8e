"""Warm starts."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import balaclava as bl
from balaclava.policies.priors import PriorMean

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


def with_means(prior, name="dp-imed", **more):
    policy = bl.policy(name, arms=["a", "b", "d"], **{"epsilon": 5.0, **more})
    return policy.agent(seed=1, prior=prior, same_means=True)


def test_a_prior_of_the_same_means_counts_as_releases_that_came_first():
    """Two runs have the sums, the draws and the intervals of one run of both."""
    first = agent_of(None)
    play(first, 400)
    prior = first.estimates()
    agent = with_means(prior)
    assert [e.interval for e in agent.estimates()] == pytest.approx([e.interval for e in prior])
    play(agent, 600, seed=3)
    own, both = agent_of(None), agent.estimates()
    own._runner.state, own._decisions = agent._runner.state, agent._decisions
    for before, alone, together in zip(prior, own.estimates(), both, strict=True):
        n, m = before.rewards, alone.rewards
        assert together.rewards == n + m
        total = n * (before.mean or 0.0) + m * (alone.mean or 0.0)
        assert together.mean == pytest.approx(total / (n + m))
    draws = [each.draws for each in both.releases.arms]
    assert draws == [
        x.draws + y.draws
        for x, y in zip(prior.releases.arms, own.estimates().releases.arms, strict=True)
    ]
    assert "no reward is in both" in both.condition
    assert "no reward is in both" in agent.may_stop().sentence
    own_noise = bl.policy("dp-imed", arms=["a", "b"], epsilon=5.0)
    guarantee = own_noise.agent(prior={"a": (0.1, 9), "b": (0.2, 9)}, same_means=True).guarantee
    assert "sum of the two" in guarantee.assumptions[-1]


def test_a_winner_counts_a_prior_and_saves_keep_it():
    known = {"a": (0.2, 400), "b": (0.5, 400), "d": (0.9, 400)}
    agent = with_means(known)
    assert agent.winner() == 2
    assert agent.may_stop().reason == "winner"
    saved = json.loads(json.dumps(agent.save()))
    restored = bl.restore(saved)
    assert restored.winner() == 2
    assert str(restored.estimates()) == str(agent.estimates())
    assert restored.estimates().condition == agent.estimates().condition
    assert agent_of(known).winner() is None


def test_forecasts_grow_the_rewards_of_this_run_alone():
    known = {"a": (0.50, 100), "b": (0.52, 100), "d": (0.54, 100)}
    agent = bl.policy("dp-imed", arms=["a", "b", "d"], epsilon=5.0, explore=1.0).agent(
        seed=1, prior=known, same_means=True
    )
    assert agent.may_stop(horizon=10_000).reason is None  # no release of this run yet
    play(agent, 90, {"a": 0.2, "b": 0.5, "d": 0.9})
    reading = agent._reading(0.95)
    grown = reading._grown(0, reading.released_means[0], 2.0)
    own = reading._own[0].rewards
    assert grown.rewards == 100 + 2 * own


def coverage(runs, prior_rewards, rewards, epsilon=1.0):
    """Share of runs in which an interval ever misses its mean, prior and run together."""
    rng, missed = np.random.default_rng(5), 0
    for seed in range(runs):
        hits = {label: rng.binomial(prior_rewards, mean) for label, mean in MEANS.items()}
        prior = {label: (count / prior_rewards, prior_rewards) for label, count in hits.items()}
        policy = bl.policy("dp-imed", arms=list(MEANS), epsilon=epsilon, explore=1.0)
        agent = policy.agent(seed=seed, prior=prior, same_means=True)
        for _ in range(4):
            play(agent, rewards // 4, seed=seed + 1_000)
            estimates = agent.estimates(0.8)
            if any(not e.interval[0] <= MEANS[e.label] <= e.interval[1] for e in estimates):
                missed += 1
                break
    return missed / runs


@pytest.mark.statistical
def test_intervals_that_count_a_prior_hold():
    """At 80 % confidence at most 20 % of runs miss; of 60, 24 have probability below 1e-3."""
    assert coverage(60, 50, 120) <= 23 / 60


@pytest.mark.parametrize(
    ("prior", "more", "why"),
    [
        (PRIOR, {"memory": "detect"}, "estimates of dp-imed cannot count"),
        (PRIOR, {"noise": "gaussian", "delta": 1e-6}, "cannot count a prior"),
        (PRIOR, {"name": "dp-top-two"}, "estimates of dp-top-two cannot count"),
        (PRIOR, {"name": "dp-ucb"}, "estimates of dp-ucb cannot count"),
        ([PriorMean("a", 0.2, 0.1, 9), PriorMean("b", 0.3, 0.1, 9)], {}, "draws of noise"),
    ],
)
def test_priors_that_cannot_be_counted_are_refused(prior, more, why):
    with pytest.raises(bl.errors.ParameterError, match=why):
        with_means(prior, **more)


def test_another_range_or_more_noise_is_refused():
    first = bl.policy("dp-imed", arms=["a", "b", "d"], epsilon=1.0).agent(seed=1)
    play(first, 400)
    with pytest.raises(bl.errors.ParameterError, match="noise of the prior is larger"):
        with_means(first.estimates())
    wide = bl.policy("dp-imed", arms=["a", "b", "d"], epsilon=5.0, reward_range=(0.0, 2.0))
    second = wide.agent(seed=1)
    play(second, 400)
    with pytest.raises(bl.errors.ParameterError, match=r"rewards in \[0, 2\]"):
        with_means(second.estimates())
    with pytest.raises(bl.errors.ParameterError, match="needs a prior"):
        with_means(None)


@pytest.mark.parametrize(
    ("numbers", "why"),
    [
        ((0.5, math.inf), "must have"),
        ((0.5, 10**400), "must have"),
        ((0.5, 10**18), "must have"),
        ((0.5, 3.7), "must have"),
        ((10**400, 3), "must have"),
        ((1.4, 1), "outside the policy's range"),  # no mean without noise is
    ],
)
@pytest.mark.parametrize("same_means", [False, True])
def test_numbers_that_no_rewards_have_are_refused(numbers, why, same_means):
    with pytest.raises(bl.errors.ParameterError, match=why):
        agent_of({"a": numbers, "d": (0.4, 30)}, same_means=same_means)
    arm = {"mean": 0.5, "low": 0.4, "high": 0.6, "retired": False}
    arms = [{**arm, "label": label, "rewards": -5} for label in "ad"]
    with pytest.raises(bl.errors.ParameterError, match="results are not valid"):
        agent_of({"arms": arms, "confidence": 0.95}, same_means=same_means)


def test_an_agent_with_the_largest_prior_can_be_restored():
    agent = agent_of({"a": (0.5, 10**18 - 1), "d": (0.4, 10**18 - 1)}, same_means=True)
    assert str(bl.restore(agent.save()).estimates()) == str(agent.estimates())


def test_a_refused_mask_ends_no_rest():
    """The prior is contradicted, but a request that is refused must not change the agent."""
    agent = agent_of({"a": (0.9, 5_000), "d": (0.2, 5_000)})
    while agent._runner.roster.rests:
        before = json.dumps(agent.save())
        for wrong in ([], ["nobody"], "a"):
            with pytest.raises(bl.errors.BalaclavaError):
                agent.ask(available=wrong)
        assert json.dumps(agent.save()) == before
        play(agent, 1)


def test_means_that_noise_moved_out_of_the_range_are_priors(tmp_path):
    """All rewards of "d" are 1: half of the releases are above it."""
    (tmp_path / "log.csv").write_text("arm,reward\n" + "a,0\nd,1\n" * 60)
    above = {"estimates": 0, "log": 0}
    for seed in range(12):
        other = bl.policy("dp-imed", arms=["a", "d"], epsilon=0.5).agent(seed=seed)
        for _ in range(400):
            decision = other.ask()
            other.tell(decision, float(decision.label == "d"))
        log = bl.release_log(tmp_path / "log.csv", "arm", "reward", 0.05)
        for name, prior in (("estimates", other.estimates()), ("log", log)):
            above[name] += max(row.mean for row in prior) > 1.0
            assert agent_of(prior, arms=("a", "d"))._runner.roster.with_prior
    assert min(above.values()) > 0
