"""Long runs on a compiled tape: the same run as an interpreted one, and faults that show late."""

from __future__ import annotations

import math

import numpy as np
import pytest

import balaclava as bl
from balaclava.auditing.compiled_tape import ANSWER, CODE, PLACE, VALUE
from balaclava.auditing.replay.long_replay import LongReplay, extrapolated
from balaclava.auditing.replay.long_runs import record_long_run
from balaclava.auditing.replay.recorded_run import ScenarioRunner
from balaclava.auditing.scenario import Neighbour
from balaclava.auditing.tape import Recorder
from tests.oracles.violators import PROVED_CONTROLS, UNUSUAL_CONTROLS, VIOLATORS

ROUNDS = 300


def searched(policy):
    found = LongReplay(policy, policy.guarantee, seed=0)
    found.search(math.inf, lambda: False)
    return found


@pytest.mark.parametrize(
    "policy",
    [
        PROVED_CONTROLS["honest"].policy,
        UNUSUAL_CONTROLS["arrays"].policy,
        UNUSUAL_CONTROLS["ties-by-coin"].policy,
        bl.policy("dp-ftpl-gauss", arms=2, epsilon=4.0, delta=0.1),
    ],
    ids=lambda policy: policy.name,
)
def test_a_compiled_tape_records_what_an_interpreted_one_does(policy):
    rewards = np.random.default_rng(0).random((ROUNDS, 2))
    run = record_long_run(policy, rewards, seed=3, script=(0.0,), share=0.0)
    runner, recorder = ScenarioRunner(policy, run.scenario), Recorder(3, 5)
    state, decisions = runner.begin(), []
    for i in range(ROUNDS):
        decisions.append(runner.choose(state, i, recorder))
        runner.apply_events(state, i, decisions, recorder)
    assert run.decisions.T.tolist() == [list(decision) for decision in decisions]
    entries = run.tape.entries[: run.tape.cursor[PLACE]]
    answers = [np.ravel(entry.answer) for entry in recorder.tape]
    assert entries[:, ANSWER].tolist() == pytest.approx(np.concatenate(answers).tolist())
    values = [np.ravel(entry.terms.value) for entry in recorder.tape if entry.terms]
    releases = entries[entries[:, CODE] > 0.0]
    assert releases[:, VALUE].tolist() == pytest.approx(np.concatenate(values).tolist())


def test_a_changed_reward_moves_one_release():
    policy = PROVED_CONTROLS["honest"].policy
    rewards = np.zeros((ROUNDS, 2))
    run = record_long_run(policy, rewards, seed=0, script=(0.0,), share=0.5)
    assert run.replay(rewards, Neighbour(50, 1.0)) == ("", ROUNDS)
    (move,) = run.moved()
    assert (move.loss.epsilon, move.distance, move.terms.value) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("raw-after-5000", "decision of round 5001 differs"),
        ("deep-tie-break", "decision of round 60"),
        ("longer-batches", "2 mechanisms moved"),
        ("harmonic-budget", "its loss grows with the run"),
        pytest.param("root-harmonic", "its loss grows with the run", marks=pytest.mark.slow),
        ("sign-near-zero", "differs although"),
        ("bare-threes", "do not follow the law"),
    ],
)
def test_a_late_fault_is_found(name, fault):
    assert fault in searched(VIOLATORS[name].policy).fault


def test_a_small_part_of_a_raw_sum_is_seen_late():
    """It is read while the last arm leads, and too small to change a decision."""
    policy = VIOLATORS["last-arm"].policy
    rewards = (np.random.default_rng(0).random((8_000, 4)) < [0.1, 0.1, 0.1, 0.9]).astype(float)
    run = record_long_run(policy, rewards, seed=0, script=(0.0,), share=0.0)
    states = {}
    assert run.replay(1.0 - rewards, states=states) == ("", 8_000)
    fault, at = run.amplified_fault(states)
    assert "reads what a reward left in the state, if that is enlarged" in fault
    assert 3_000 < at < 8_000
    honest = record_long_run(
        PROVED_CONTROLS["honest"].policy, rewards[:, 2:], seed=0, script=(0.0,), share=0.0
    )
    states = {}
    assert honest.replay(1.0 - rewards[:, 2:], states=states) == ("", 8_000)
    assert honest.amplified_fault(states) == ("", 0)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("recommends-without-means", "after round {} an agent displays another"),
        ("draws-by-sum", "in round {} a query to the randomness depends on a reward"),
    ],
)
def test_a_fault_of_a_long_run_names_its_round(name, text):
    rewards = np.tile([1.0, 0.0], (ROUNDS, 1))
    run = record_long_run(VIOLATORS[name].policy, rewards, seed=0, script=(0.0,), share=0.0)
    fault, at = run.replay(1.0 - rewards)
    assert fault.startswith(text.format(at + 1))
    assert name == "draws-by-sum" or at + 1 in run.displays


@pytest.mark.parametrize("name", ["honest", pytest.param("truncated-far", marks=pytest.mark.slow)])
def test_a_control_has_no_late_fault(name):
    found = searched(PROVED_CONTROLS[name].policy)
    assert found.fault == ""
    assert found.longest == 900_000


def test_a_loss_that_is_played_to_the_horizon_is_not_extrapolated():
    """A tree's loss grows until the horizon, where it is at most epsilon."""
    parameters = {"moment_order": 1.9, "moment_bound": 2.0, "radius_scale": 0.01}
    policy = bl.policy("dpr-ucb", arms=2, epsilon=1.0, horizon=3_000, **parameters)
    found = searched(policy)
    assert (found.fault, found.longest) == ("", 3_200)  # and 200 rounds beyond it


@pytest.mark.parametrize(
    ("losses", "least", "most"),
    [
        ([0.1, 0.2, 0.3, 0.4, 0.5], 4.4, 4.6),  # a constant more by doubling, 40 times
        ([0.5, 0.75, 0.875, 0.9375, 0.96875], 0.9999, 1.0001),  # half as much more each time
        ([0.1, 0.2, 0.4, 0.8, 1.6], 1e9, math.inf),
        ([0.5, 0.5, 0.5, 0.5, 0.5], 0.5, 0.5),
    ],
)
def test_losses_are_extrapolated(losses, least, most):
    assert least <= extrapolated(losses, 40.0) <= most
