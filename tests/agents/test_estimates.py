"""`agent.estimates`, `winner`, `difference` and `remaining`."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

import balaclava as bl
from balaclava.agents.settling import missing_rewards
from balaclava.auditing.tape import Recorder, Replayer
from balaclava.errors import EstimateError, ParameterError, UnknownNameError
from balaclava.policies.intervals import (
    FROM_TALLY,
    NO_WINNER,
    limits_within_radius,
    winner_by_intervals,
)
from balaclava.testing.examples import examples

MEANS = {"plain": 0.2, "friendly": 0.5, "map": 0.8}
SETTINGS: dict[str, dict[str, Any]] = {
    "dp-imed": {"epsilon": 1.0, "explore": 0.5},
    "dp-klucb": {"epsilon": 1.0, "explore": 0.5},
    "adap-ucb": {"epsilon": 1.0},
    "adap-klucb": {"epsilon": 1.0},
    "lazy-dp-ts": {"epsilon": 1.0, "explore": 0.5},
    "lazy-dp-ucb": {"epsilon": 1.0},
    "dp-ucb": {"epsilon": 20.0},
    "dp-ucb-bound": {"epsilon": 20.0},
    "private-ucb": {"epsilon": 20.0, "horizon": 2_000},
    "ldp-ucb-laplace": {"epsilon": 3.0},
    "ldp-ucb-bernoulli": {"epsilon": 3.0},
    "dp-se": {"epsilon": 1.0, "horizon": 10_000, "radius_scale": 0.2},
    "gdp-elim-new": {"epsilon": 1.0, "delta": 0.1, "horizon": 10},
    "successive-elimination": {"horizon": 10_000},
    "kl-ucb": {},
    "imed": {},
    "thompson-beta": {},
}


def played(policy: bl.Policy, rounds: int, **options: Any) -> bl.Agent:
    """An agent that was told rewards of 0 and 1, in the policy's range."""
    agent = policy.agent(seed=1, **options)
    low, high = policy.accepts
    rng = np.random.default_rng(1)
    for _ in range(rounds):
        decision = agent.ask()
        reward = low + (high - low) * float(rng.random() < list(MEANS.values())[decision.arm])
        agent.tell(decision, reward)
    return agent


@pytest.mark.parametrize("name", SETTINGS)
def test_intervals_contain_the_means(name):
    """One seed each; a correct interval fails here for at most one policy in 20."""
    policy = bl.policy(name, arms=list(MEANS), **SETTINGS[name])
    estimates = played(policy, 1_500).estimates()
    assert [entry.label for entry in estimates] == list(MEANS)
    assert sum(entry.decisions for entry in estimates) == 1_500
    for entry, mu in zip(estimates, MEANS.values(), strict=True):
        low, high = entry.interval
        assert 0.0 <= low <= mu <= high <= 1.0
        assert 1 <= entry.rewards <= entry.decisions
        assert math.isfinite(entry.mean)
    assert max(high - low for low, high in (entry.interval for entry in estimates)) < 1.0


def offers(policy: bl.Policy) -> bool:
    try:
        policy.require_estimates(0.05 / policy.arms)
    except EstimateError:
        return False
    return True


def test_every_policy_estimates_or_says_why_not():
    """Covers every registered policy, also those added later."""
    offered = set()
    for policy in (made for entry in bl.list_policies() for made in examples(entry.policy)):
        agent = policy.agent(seed=1)
        if not offers(policy):
            with pytest.raises(EstimateError, match=policy.name):
                agent.estimates()
            continue
        offered.add(policy.name)
        estimates = agent.estimates()
        assert all(entry.mean is None and entry.rewards == 0 for entry in estimates)
        assert policy.arms == 1 or estimates.winner is agent.remaining() is None
    assert set(SETTINGS) <= offered


@pytest.mark.parametrize(
    ("name", "parameters", "why"),
    [
        ("dp-ftpl-gauss", {"epsilon": 1.0, "delta": 0.01}, "decisions only"),
        ("exp3", {}, "losses"),
        ("ucb1", {}, "no interval is proved"),
    ],
)
def test_policies_without_estimates_say_why(name, parameters, why):
    agent = bl.policy(name, arms=2, **parameters).agent(seed=1)
    for method in (agent.estimates, agent.winner, agent.remaining):
        with pytest.raises(EstimateError, match=why):
            method()


HEAVY: dict[str, dict[str, Any]] = {
    "dpr-batch-ucb": {"moment_order": 2.0, "moment_bound": 4.0, "horizon": 40_000},
    "ldpr-batch-ucb": {"moment_order": 2.0, "moment_bound": 4.0, "horizon": 40_000},
    "dpr-se": {"moment_order": 2.0, "moment_bound": 4.0, "horizon": 1_000_000},
    "ldpr-se": {"moment_order": 2.0, "moment_bound": 4.0, "horizon": 1_000_000},
    "prae-raw": {"moment_order": 2.0, "moment_bound": 4.0, "horizon": 40_000},
}


# One that eliminates arms, and one that takes batches of reports; `make test-all` takes every one.
QUICK = ("dpr-se", "ldpr-batch-ucb")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in HEAVY],
)
def test_heavy_tails_have_the_radii_that_are_proved(name):
    """Three runs, 20 looks each; a radius fails once in 10,000 runs."""
    policy = bl.policy(name, arms=2, epsilon=1.0, **HEAVY[name])
    means = [0.0, 1.0]
    world = bl.environment("student-t", means=means, degrees=5.0)
    played = bl.simulate(
        policy,
        world,
        horizon=policy.horizon,
        repetitions=3,
        seed=1,
        checkpoints=20,
        winners=True,
    )
    limits, params = policy.require_estimates(0.025).limits, policy.constants()
    widths = []
    for run in played.runs[name].values():
        for row in run.released.reshape(-1, 2, 3):
            for mu, (rewards, mean, radius) in zip(means, row, strict=True):
                low, high = limits(params, int(rewards), mean, radius, 0.025)
                assert low <= mu <= high
                widths.append(high - low)
    if name != "ldpr-se":  # whose first epoch is longer than this
        assert min(widths) < 4.0


def test_radii_that_are_not_proved_are_refused():
    known = {"arms": 2, "epsilon": 1.0, "moment_order": 2.0, "moment_bound": 4.0}
    for name in HEAVY:
        trusting = bl.policy(name, horizon=1_000, radius_scale=0.05, **known)
        with pytest.raises(EstimateError, match="radius_scale"):
            trusting.agent(seed=1).estimates()
        loose = bl.policy(name, horizon=10**6, failure_probability=0.5, **known)
        with pytest.raises(EstimateError, match="failure_probability"):
            loose.agent(seed=1).estimates()


def test_units_are_those_of_the_rewards():
    there = bl.policy("kl-ucb", arms=3, reward_range=(-10.0, 30.0))
    unit = played(bl.policy("kl-ucb", arms=3), 300).estimates()
    for wide, entry in zip(played(there, 300).estimates(), unit, strict=True):
        assert wide.mean == pytest.approx(-10.0 + 40.0 * entry.mean)
        assert wide.interval == pytest.approx([-10.0 + 40.0 * x for x in entry.interval])


def test_a_winner_is_named_once_intervals_are_apart():
    policy = bl.policy("dp-imed", arms=list(MEANS), epsilon=2.0, explore=0.5)
    agent = played(policy, 120)
    assert agent.winner() is None
    forecast = agent.remaining()
    assert forecast is not None
    assert 20 < forecast < 10_000
    agent = played(policy, 120 + 4 * forecast)
    assert agent.winner() == 2
    assert agent.remaining() is None
    assert agent.winner(1 - 1e-12) is None or agent.winner(0.5) == 2
    low, high = agent.difference("map", "plain")
    assert low < 0.6 < high
    assert agent.difference(0, 2) == (-high, -low)
    assert str(agent.estimates()).endswith("the winner is map.")


def test_the_table():
    estimates = played(bl.policy("kl-ucb", arms=list(MEANS)), 300).estimates(0.9)
    assert estimates.confidence == 0.9
    first = str(estimates).splitlines()[0].split()
    assert first == ["arm", "decisions", "rewards", "mean", "low", "high"]
    assert "0.9 confidence" in str(estimates)
    assert "<th>friendly</th>" in estimates._repr_html_()
    named = bl.policy("kl-ucb", arms=["<b>", "&"]).agent(seed=1).estimates()
    assert "&lt;b&gt;" in named._repr_html_()
    assert "<b>" not in named._repr_html_()


def test_more_confidence_is_wider():
    agent = played(bl.policy("dp-klucb", arms=3, epsilon=1.0), 600)
    for sure, less in zip(agent.estimates(0.99), agent.estimates(0.5), strict=True):
        assert sure.interval[0] <= less.interval[0] <= less.interval[1] <= sure.interval[1]


@pytest.mark.parametrize("confidence", [0, 1, -0.5, 95, math.nan, "high", None, True])
def test_confidence_out_of_range(confidence):
    agent = bl.policy("kl-ucb", arms=2).agent(seed=1)
    with pytest.raises(ParameterError, match="confidence"):
        agent.estimates(confidence)


@pytest.mark.parametrize("arm", ["mpa", "3", 3, -1, 1.0, True, None])
def test_unknown_arms(arm):
    agent = bl.policy("kl-ucb", arms=list(MEANS)).agent(seed=1)
    with pytest.raises(UnknownNameError, match="there is no arm"):
        agent.difference(arm, "map")


def test_estimates_are_kept_over_a_save():
    agent = played(bl.policy("dp-imed", arms=3, epsilon=2.0), 200)
    assert str(bl.restore(agent.save()).estimates()) == str(agent.estimates())


def test_only_released_values_count():
    """A raw reward that is in no release changes nothing that is displayed."""
    texts = set()
    for last in (0.0, 1.0):
        agent = played(bl.policy("dp-imed", arms=2, epsilon=2.0), 0)
        for reward in (1.0, 1.0, 0.0, last):  # the first batches have 15 decisions
            agent.tell(agent.ask(), reward)
        texts.add(str(agent.estimates()) + str(agent.winner()) + str(agent.remaining()))
    assert len(texts) == 1


PRIVATE = [
    policy
    for entry in bl.list_policies()
    if entry.policy.model != "none" and entry.policy.estimation is not None
    for policy in examples(entry.policy)
    if policy.estimation is not None
]


def displays_of_neighbours(policy: bl.Policy, shown: Any, place: int) -> list[list[Any]]:
    """The display in each round of two runs that differ in one reward, with equal answers."""
    low, high = policy.accepts if policy.rewards == "bounded" else (0.0, 1.0)
    recorder = Recorder(seed=place)
    lines: list[list[Any]] = []
    for rng, other in ((recorder, False), (Replayer(recorder.tape, 0), True)):
        agent = policy.agent()
        agent._runner.rng = rng
        rewards = np.random.default_rng(place)
        lines.append([])
        for t in range(120):
            decision = agent.ask()
            reward = low if rewards.random() < 0.5 else high
            if other and t == place:
                reward = low + high - reward
            agent.tell(decision, reward)
            arms = range(policy.arms)
            lines[-1].append(
                [shown(agent._runner.params, agent._runner.state, arm) for arm in arms]
            )
    return lines


@pytest.mark.parametrize("policy", PRIVATE, ids=lambda policy: policy.name)
def test_the_display_follows_from_releases(policy):
    """Neighbouring rewards and the same answers of all mechanisms: a raw number would differ."""
    for place in (0, 5, 40):
        first, second = displays_of_neighbours(policy, policy.estimation.read, place)
        assert first == second


def test_a_raw_mean_is_detected():
    policy = bl.policy("dp-ftpl-gauss", arms=2, epsilon=1.0, delta=0.01)
    first, second = displays_of_neighbours(policy, FROM_TALLY.read, 5)
    assert first != second


def test_rewards_that_never_come_are_not_counted():
    agent = bl.policy("dp-imed", arms=2, epsilon=2.0).agent(seed=1)
    for t in range(400):
        decision = agent.ask()
        if t % 4 == 0:
            agent.cancel(decision)
        else:
            agent.tell(decision, 0.25 + 0.5 * decision.arm)
    for entry in agent.estimates():
        assert 0 < entry.rewards < entry.decisions
        assert entry.interval[0] <= 0.25 + 0.5 * entry.arm <= entry.interval[1]


def test_with_windows_missing_rewards_count():
    policy = bl.policy("dp-imed", arms=2, epsilon=2.0)
    agent = policy.agent(seed=1, patience=5, settle="window", missing=0.0)
    for t in range(600):
        decision = agent.ask()
        if t % 2:
            agent.tell(decision, 1.0)
    estimates = agent.estimates()
    assert 200 < sum(entry.rewards for entry in estimates) <= 600  # closed windows
    assert all(entry.interval[0] <= 0.5 <= entry.interval[1] for entry in estimates)


def test_windows_estimate_the_mean_with_missing_rewards():
    """One reward in ten is lost and counts as 0: the interval misses 0.6 and holds 0.54."""
    policy = bl.policy("dp-imed", arms=1, epsilon=1.0)
    agent = policy.agent(seed=1, settle="window", patience=10, missing=0.0)
    rng = np.random.default_rng(1)
    for _ in range(8_000):
        decision = agent.ask()
        if rng.random() >= 0.1:
            agent.tell(decision, float(rng.random() < 0.6))
    ((low, high),) = (entry.interval for entry in agent.estimates())
    assert low < 0.54 < high < 0.6
    assert missing_rewards(0.0).startswith("A reward that did not come in its window counts as 0")
    assert missing_rewards(None) is None


def test_equal_arms_have_no_winner():
    by_intervals = winner_by_intervals(limits_within_radius)
    for rows, winner in (
        ([[9, 0.5, 0.1], [9, 0.5, 0.1]], NO_WINNER),
        ([[9, 0.5, 0.25], [9, 1.0, 0.25]], NO_WINNER),
        ([[9, 1.0, 0.25], [9, 0.5, 0.2], [9, 0.2, 0.1]], 0),
        ([[0, 0.0, 0.0], [9, 0.5, 0.2]], NO_WINNER),
        ([[9, 0.5, 0.1]], 0),
    ):
        assert by_intervals(None, np.array(rows), 0.5, 0.05) == winner
    agent = bl.policy("kl-ucb", arms=2).agent(seed=1)
    for _ in range(200):
        agent.tell(agent.ask(), 0.5)
    assert agent.remaining() is None  # never, at these means


def told_by_value(policy, seed, waits, means=(0.5, 0.55), rounds=2_500):
    """Rewards 1 come after the first of an arm's two waits, rewards 0 after the second.

    Returns whether an interval missed its mean, and whether a wrong winner was named, in any of the
    checks; and the last estimates.
    """
    agent, rng = policy.agent(seed=seed, patience=10**6), np.random.default_rng(seed)
    coming, missed, wrong = defaultdict(list), False, False
    for t in range(rounds):
        decision = agent.ask()
        reward = float(rng.random() < means[decision.arm])
        coming[t + waits[decision.arm][int(1 - reward)]].append((decision, reward))
        for told in coming.pop(t, []):
            agent.tell(*told)
        if t % 250 == 249:
            seen = agent.estimates()
            limits = (each.interval for each in seen)
            missed |= any(not a <= mu <= b for mu, (a, b) in zip(means, limits, strict=True))
            wrong |= seen.winner == 0
    return missed, wrong, seen


@pytest.mark.parametrize("name", ["kl-ucb", "ldp-ucb-bernoulli", "ldp-ucb-laplace", "dp-imed"])
@pytest.mark.parametrize("waits", [((0, 300), (0, 300)), ((0, 1_000), (0, 0))], ids=str)
def test_arrivals_may_depend_on_rewards_if_none_is_lost(name, waits):
    """Five runs, each missing with probability 0.05 at most; the seeds are fixed.

    Counted as they came, the rewards of the first three policies missed in 27 of these 30 runs.
    """
    policy = bl.policy(name, arms=2, **({} if name == "kl-ucb" else {"epsilon": 1.0}))
    runs = [told_by_value(policy, seed, waits) for seed in range(5)]
    assert not any(missed or wrong for missed, wrong, _ in runs)
    assert all(seen.condition is None for _, _, seen in runs)
    assert all(sum(each.rewards for each in seen) > 200 for _, _, seen in runs)


def test_a_reward_counts_once_every_earlier_decision_of_its_arm_is_closed():
    agent = bl.policy("kl-ucb", arms=1).agent(patience=100)
    first, second, third = (agent.ask() for _ in range(3))
    agent.tell(second, 1.0)
    assert agent.estimates()[0].rewards == 0
    agent.tell(first, 0.0)
    assert (agent.estimates()[0].rewards, agent.estimates()[0].mean) == (2, 0.5)
    assert agent.estimates().condition is None
    agent.cancel(third)
    seen = agent.estimates()
    assert seen.condition is not None
    assert "does not depend on" in seen.condition
    assert f", if {seen.condition}; " in str(seen)


def test_a_batch_counts_once_every_earlier_batch_of_its_arm_has_settled():
    policy = bl.policy("dp-klucb", arms=1, epsilon=1.0)
    agent, decisions = policy.agent(seed=1, patience=100), []
    while len({each.phase for each in decisions}) < 4:
        decisions.append(agent.ask())
    batches = [[each for each in decisions if each.phase == number] for number in (1, 2, 3)]
    for decision in batches[1] + batches[2]:
        agent.tell(decision, 1.0)
    assert agent.status().releases == 2
    assert agent.estimates()[0].rewards == 0
    agent = bl.restore(agent.save())
    for decision in batches[0]:
        agent.tell(decision.id, 0.0)
    pools = agent._runner.state
    assert agent.estimates()[0].rewards == sum(map(len, batches)) == pools.rewards[0]
    assert agent.estimates()[0].mean == pytest.approx(pools.pooled[0])
    assert agent.estimates().condition is None


def test_the_order_of_rewards_is_saved():
    agent = bl.policy("ldp-ucb-laplace", arms=2, epsilon=1.0).agent(seed=3, patience=100)
    decisions = [agent.ask() for _ in range(20)]
    for decision in decisions[4:]:
        agent.tell(decision, 0.5)
    assert [each.rewards for each in agent.estimates()] == [0, 0]
    saved = agent.save()
    kept = json.dumps(saved)
    agent.tell(decisions[0], 0.5)
    agent = bl.restore(json.loads(kept))
    assert json.dumps(saved) == kept  # what the agent does later does not change it
    for decision in decisions[:4]:
        agent.tell(decision.id, 0.5)
    tally = agent._runner.state
    assert [each.rewards for each in agent.estimates()] == tally.pulls.tolist()
    means = [each.mean for each in agent.estimates()]
    assert means == pytest.approx((tally.sums / tally.pulls).tolist())


@pytest.mark.parametrize(
    ("name", "options"),
    [("dp-ucb", {}), ("dpr-se", {"moment_order": 2.0, "moment_bound": 1.0, "horizon": 1_000})],
)
def test_a_policy_that_cannot_keep_the_order_says_what_it_assumes(name, options):
    options |= {"failure_probability": 0.01} if "horizon" in options else {}
    policy = bl.policy(name, arms=2, epsilon=1.0, **options)
    agent = policy.agent(seed=1, patience=10)
    agent.tell(agent.ask(), 0.5)
    assert agent.estimates().condition is None  # while each reward comes before the next decision
    agent.ask()
    agent.ask()
    assert agent.estimates().condition is not None
    assert bl.restore(agent.save()).estimates().condition is not None
    window = policy.agent(seed=1, patience=10, settle="window", missing=0.0)
    window.ask()
    window.ask()
    assert window.estimates().condition is None
