"""The replay audit: its verdicts and texts."""

from __future__ import annotations

import json
import math
import random

import numpy as np
import pytest

import balaclava as bl
from balaclava.auditing.audit_plan import plan_games
from balaclava.auditing.replay.composed_loss import compose
from balaclava.auditing.replay.replay_audit import audit_by_replay
from balaclava.auditing.replay.scenario_kinds import ScenarioKind
from balaclava.auditing.tape import Recorder, Replayer
from balaclava.authoring import Epsilon, begin_tally, learn_tally
from balaclava.policies.base import POLICIES
from balaclava.testing.conformance import round_of
from balaclava.testing.examples import examples
from tests.effort import but_slow, looks
from tests.oracles.violators import VIOLATORS

ROUNDS = 64


def replayed(policy, pairs):
    rounds = plan_games(policy).rounds
    return audit_by_replay(policy, policy.guarantee, rounds=rounds, pairs=pairs, seed=1)


@pytest.mark.parametrize("name", ["dp-linucb", "dp-lin-ts"])
@pytest.mark.parametrize("delta", [1e-3, 0.0])
def test_the_proof_of_contextual_policies_holds_on_real_runs(name, delta):
    """The loss is the whole claim, because practice contexts have the largest norm allowed."""
    policy = bl.policy(
        name, arms=2, features=2, epsilon=1.0, delta=delta, first_episode=6, outstanding=64
    )
    found = audit_by_replay(policy, policy.guarantee, rounds=24, pairs=48, seed=1)
    assert found.verdict == "consistent"
    assert "changing contexts" in found.reached
    assert found.epsilon == pytest.approx(1.0, rel=1e-4)


def test_the_natural_log_tree_costs_the_computed_loss():
    policy = VIOLATORS["natural-log-tree"].policy
    found = audit_by_replay(policy, policy.guarantee, rounds=ROUNDS, pairs=500, seed=1)
    # Round 2 is the second item of an arm or the first of another: up to 7 nodes of 1/log(64).
    assert found.verdict == "unproved"
    assert "mechanisms moved" in found.fault
    assert any(f"{nodes / math.log(64):.4g}" in found.fault for nodes in (5, 6, 7))


@pytest.mark.parametrize("pairs", looks(250, 1_000))
def test_no_distance_is_too_small_to_count(pairs):
    """Sensitivities far below 1 are measured in their own units."""
    policy = bl.policy(
        "dpr-batch-ucb", arms=2, epsilon=1.0, horizon=600, moment_order=2, moment_bound=1e-60,
        first_batch=8, radius_scale=0.1,
    )  # fmt: skip
    found = replayed(policy, pairs)
    assert (found.verdict, found.moved > pairs // 10) == ("consistent", True)


@pytest.mark.parametrize("bound", but_slow([1e-150, 1e150], 1e150))
@pytest.mark.parametrize("pairs", looks(250, 1_000))
def test_reports_are_tried_at_no_level_that_a_device_refuses(bound, pairs):
    policy = bl.policy(
        "ldpr-batch-ucb", arms=2, epsilon=1.0, horizon=600, moment_order=1.9, moment_bound=bound,
        first_batch=8, radius_scale=0.1,
    )  # fmt: skip
    assert replayed(policy, pairs).verdict == "consistent"


def test_a_policy_that_nothing_moves_is_not_examined():
    policy = bl.policy("dp-se", arms=2, epsilon=1e-4, horizon=200)
    found = audit_by_replay(policy, policy.guarantee, rounds=20, pairs=40, seed=0)
    assert found.verdict == "not examined"
    assert "no mechanism's input moved" in str(found)


@bl.kernel
def choose_and_count_twice(params, state, t, context, rng):
    arm, phase = (t - 1) % params.arms, 0
    state.asked[arm] += 2
    return arm, phase


class CountsTwice(bl.Policy):
    "Counts each decision twice, which a restore refuses."

    name = "counts-twice"
    model, scope = "central", "trajectory"
    epsilon: Epsilon
    kernels = bl.Kernels(begin_tally, choose_and_count_twice, learn_tally)


def test_a_restored_agent_is_restored_by_bl_restore(monkeypatch):
    monkeypatch.setattr(POLICIES, "_classes", POLICIES.classes() | {"counts-twice": CountsTwice})
    policy = CountsTwice(arms=2, epsilon=1.0)
    kinds = (ScenarioKind(("a restored agent",), restored=True),)
    report = audit_by_replay(policy, policy.guarantee, rounds=40, pairs=10, seed=0, kinds=kinds)
    assert report.verdict == "unproved"
    assert "saved agent" in report.fault


# An agent with rewards that come late, in any order or never, and that is saved now and then

LIVE = ("dpr-batch-ucb", "dpr-se", "prae-raw", "prae-central", "privatised", "dp-htinf-experts")


def agent_decisions(policy, script, rng, rewards, rounds):
    """The decisions of an agent in the scenario of the script, with the answers of rng."""
    agent = policy.agent()
    agent._runner.rng = rng
    chance, advice = random.Random(script), np.random.default_rng(script)
    decisions, waiting = [], []
    for _ in range(rounds):
        context = None
        if policy.practice_context is not None:
            context = advice.dirichlet(np.full(policy.arms, 0.3), size=policy.experts)
        decisions.append(agent.ask(context))
        waiting.append(decisions[-1])
        while waiting and chance.random() < 0.55 + 0.03 * len(waiting):
            decision = waiting.pop(chance.randrange(len(waiting)))
            if chance.random() < 0.15:
                agent.cancel(decision)
            else:
                agent.tell(decision, rewards[round_of(decision) - 1])
            if chance.random() < 0.02:
                agent = bl.restore(json.loads(json.dumps(agent.save())))
                agent._runner.rng = rng
    return [decision[1:] for decision in decisions]  # ids are random


@pytest.mark.parametrize("name", [*LIVE, "dp-exp4"])
def test_a_reward_costs_epsilon_once_in_any_order_of_the_others(name):
    policy = examples(POLICIES.classes()[name])[0]
    if name == "dp-exp4":  # with room for so few notes that some are pushed out
        policy = type(policy).create({**policy.parameters, "outstanding": 2})
    low, high = policy.accepts if math.isfinite(policy.accepts[0]) else (-4.0, 4.0)
    moved = 0
    for script in range(3):
        chance, tape = random.Random(script), Recorder(script)
        rewards = [chance.uniform(low, high) for _ in range(260)]
        told = agent_decisions(policy, script, tape, rewards, 260)
        for _ in range(12):
            place = chance.randrange(260)
            other = [*rewards[:place], chance.uniform(low, high), *rewards[place + 1 :]]
            player = Replayer(tape.tape, 0)
            assert agent_decisions(policy, script, player, other, 260) == told
            assert player.position == len(tape.tape)
            assert compose(player.moves, policy.guarantee).within(policy.guarantee)
            moved += bool(player.moves)
    assert moved > 0


def test_kinds_that_fast_forward_bring_long_runs():
    policy = VIOLATORS["raw-after-5000"].policy
    kinds = (ScenarioKind(), ScenarioKind(start=100))
    found = audit_by_replay(
        policy, policy.guarantee, rounds=30, pairs=4, seed=1, seconds=1.0, kinds=kinds
    )
    assert "decision of round 5001 differs" in found.fault


def test_a_reward_that_no_mechanism_sees_is_enlarged_too():
    """It moves no input, and what it adds to a mean is too little to change a decision."""
    policy, kinds = VIOLATORS["very-late"].policy, (ScenarioKind(delay=-1),)
    found = audit_by_replay(policy, policy.guarantee, rounds=300, pairs=40, seed=1, kinds=kinds)
    assert found.verdict == "unproved"
    assert "if that is enlarged" in found.fault
