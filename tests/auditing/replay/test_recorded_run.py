"""Recorded runs, and their replay."""

from __future__ import annotations

import dataclasses

import numpy as np

import balaclava as bl
from balaclava.auditing.replay.amplified_states import amplified_fault
from balaclava.auditing.replay.recorded_run import record, replay_all
from balaclava.auditing.scenario import Neighbour, plain_scenario
from balaclava.authoring import Epsilon, PrivateBoundedPolicy, begin_tally, learn_tally
from tests.oracles.violators import UNUSUAL_CONTROLS, VIOLATORS


@bl.kernel
def in_turn(params, state, t, context, rng):
    return (t - 1) % params.arms, 0


def test_a_neighbour_whose_reward_never_comes_moves_nothing():
    policy = UNUSUAL_CONTROLS["truncated"].policy
    scenario = plain_scenario(policy, np.ones((24, 2)))
    scenario.event_items[3] = -4  # the fourth decision is given up
    run = record(policy, scenario, seed=0)
    ((_, outcome),) = replay_all(policy, run, [Neighbour(3, -5.0)])
    assert outcome == ([], "", None, (0, 0))


def test_a_recorded_run_keeps_no_copies_of_its_states():
    """Copies would take gigabytes with room for many open decisions."""
    policy = bl.policy("dp-htinf", arms=3, horizon=10**6, epsilon=1.0, outstanding=65_536)
    run = record(policy, plain_scenario(policy, np.full((40, 3), 0.5)), seed=1)
    assert len(run.fingerprints) >= 16
    assert sum(map(len, run.fingerprints.values())) < 10_000


def test_a_failure_ends_a_run_and_a_neighbour_without_it_differs():
    policy = VIOLATORS["fails-in-round-45"].policy
    run = record(policy, plain_scenario(policy, np.ones((60, 2))), seed=0)
    assert run.scenario.rounds == 45
    assert run.failure_in(44).startswith("ValueError after the choice")
    neighbours = [Neighbour(0, 0.0), Neighbour(0, 0.95), Neighbour(1, 0.0)]
    first, *others = [outcome for _, outcome in replay_all(policy, run, neighbours)]
    assert (first.round, first.seen) == (44, "")
    assert "it does not fail, as on the other stream" in first.fault
    assert [outcome.fault for outcome in others] == ["", ""]
    calm = record(policy, plain_scenario(policy, np.zeros((60, 2))), seed=0)
    ((_, outcome),) = replay_all(policy, calm, [Neighbour(0, 1.0)])
    assert "in round 45 it fails with ValueError" in outcome.fault


@bl.kernel
def draw_once_more(params, state, t, arm, reward, phase, rng):
    learn_tally(params, state, t, arm, reward, phase, rng)
    if t == 20 and state.sums[0] == 0.0:
        rng.random()


class DrawsOnceMore(PrivateBoundedPolicy):
    """Another query, after all others, that depends on a reward."""

    name = "draws-once-more"
    epsilon: Epsilon
    kernels = bl.Kernels(begin_tally, in_turn, draw_once_more)


def test_a_query_after_the_last_is_a_difference_that_nobody_sees():
    policy, rewards = DrawsOnceMore(arms=2, epsilon=1.0), np.zeros((20, 2))
    rewards[0, 0] = 1.0
    run = record(policy, plain_scenario(policy, rewards), seed=0)
    ((_, outcome),) = replay_all(policy, run, [Neighbour(0, 0.0)])
    assert outcome.fault.startswith("in round 20 ")
    assert outcome.round is None


def test_a_finished_trial_releases_unfinished_batches_as_an_agent_does():
    """Twenty decisions, two without a reward; no batch of forty is complete."""
    policy = bl.policy("dp-imed", arms=2, epsilon=1.0)
    scenario = plain_scenario(policy, np.ones((20, 2)))
    scenario.event_offsets[-2:] = 18  # the last two are never told
    scenario.event_items = scenario.event_items[:18]
    assert record(policy, scenario, seed=0).release_rounds == set()
    run = record(policy, dataclasses.replace(scenario, ends=True), seed=0)
    assert run.release_rounds == {19}
    agent = policy.agent(seed=5)
    for decision in [agent.ask() for _ in range(20)][:18]:
        agent.tell(decision, 1.0)
    estimates = agent.finish(give_up_open=True)
    releases = [entry for entry in run.tape if entry.terms is not None]
    sums = sorted(entry.terms.value for entry in releases)
    assert sums == sorted(float(each.rewards) for each in estimates)
    assert sum(sums) == 18.0
    ((_, outcome),) = replay_all(policy, run, [Neighbour(3, 0.0)])
    assert [move.distance for move in outcome.moves] == [1.0]
    assert outcome.fault == ""


def test_an_enlarged_difference_that_changes_a_query_is_a_fault():
    policy, rewards = DrawsOnceMore(arms=2, epsilon=1.0), np.zeros((20, 2))
    rewards[0, 0] = 1.0
    run = record(policy, plain_scenario(policy, rewards), seed=0)
    found = amplified_fault(policy, run, Neighbour(0, 0.0))
    assert found == "in round 20 it queried random, which it did not query on the other stream"


RUNS = []  # which a policy must not remember


@bl.kernel
def draw_in_the_second_run(params, state, t, arm, reward, phase, rng):
    if t == 1:
        RUNS.append(t)
    if t == 5 and len(RUNS) > 1:
        rng.random()


class RemembersRuns(PrivateBoundedPolicy):
    """Keeps something outside its state, so no two of its runs agree."""

    name = "remembers-runs"
    epsilon: Epsilon
    kernels = bl.Kernels(begin_tally, in_turn, draw_in_the_second_run)


def test_a_policy_that_no_second_run_repeats_is_at_fault():
    policy = RemembersRuns(arms=2, epsilon=1.0)
    RUNS.clear()
    run = record(policy, plain_scenario(policy, np.zeros((20, 2))), seed=0)
    found = [outcome.fault for _, outcome in replay_all(policy, run, [Neighbour(9, 1.0)])]
    assert len(found) == 1
    assert "keep what the policy remembers in its state" in found[0]
