"""The audit of agents whose arms come, rest and leave finds leaks that fixed arms do not show."""

import numpy as np
import pytest

import balaclava as bl
from balaclava.agents.delivery import WindowDelivery
from balaclava.auditing.replay.agent_audit import audit_agents
from balaclava.auditing.replay.agent_replay import (
    AGENT_SCENARIOS,
    AgentPlayer,
    AgentRun,
    record_agent,
)
from balaclava.auditing.tape import Recorder
from balaclava.frames import arm_slots, pools
from balaclava.policies.base import Kernels
from balaclava.policies.bounded import batched, remembering
from balaclava.policies.bounded.dp_imed import DPIMED
from balaclava.privacy.mechanisms.laplace import laplace_release
from tests.oracles.violators import UNUSUAL_CONTROLS, VIOLATORS
from tests.oracles.violators.trials import PROPER_TRIALS, WITH_CHANGES

USUAL = {"arms": 3, "epsilon": 1.0, "first_batch": 6.0}


def audited(policy, pairs=240):
    return audit_agents(
        policy, policy.guarantee, rounds=60, pairs=pairs, seed=1, seconds=float("inf")
    )


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("dp-imed", {}),
        ("dp-imed", {"memory": "detect"}),
        ("dp-imed", {"memory": 150}),
        ("dp-klucb", {"explore": 0.2, "holdout": 0.1}),
    ],
)
def test_policies_are_consistent_in_every_scenario(name, more):
    result = audited(bl.policy(name, **(USUAL | more)))
    assert result.verdict == "consistent", str(result)
    assert result.epsilon == pytest.approx(1.0)
    assert set(result.reached) == {name for each in AGENT_SCENARIOS for name in each.conditions}


def test_scenarios_change_arms_release_and_restart():
    """Otherwise the tests above would be of nothing."""
    policy = bl.policy("dp-imed", **USUAL, memory="detect")
    rewards = np.concatenate([np.ones((150, 3)), np.zeros((150, 3))])
    recorder = Recorder(1)
    run = AgentRun(AGENT_SCENARIOS[0], rewards, 2, recorder.tape)
    player = AgentPlayer(policy, run, recorder)
    seen = list(player.rounds())
    assert len({each.decision[0] for each in seen}) > 5
    assert len({each.display for each in seen}) > 15
    status = player.agent.status()
    assert (status.restarts > 0, status.releases > 15) == (True, True)


def release_twice(params, state, arm, row, rng):
    if state.number.size > 3:
        laplace_release(rng, state.sums[arm, row], 1.0, params.epsilon)
    batched.release_growing(params, state, arm, row, rng)


class ReleasesTwice(DPIMED):
    """Releases each sum a second time once an arm has come."""

    name = "releases-twice"

    @property
    def kernels(self):
        honest = super().kernels
        return Kernels(honest.begin, honest.choose, *pools.learn_in_batches(release_twice))


def test_a_second_release_after_an_arm_came_is_flagged():
    result = audited(ReleasesTwice(**USUAL))
    assert result.verdict == "unproved"
    assert "2 mechanisms moved, which costs epsilon 2" in result.fault


def test_the_first_reward_is_found_where_it_is_displayed():
    result = audited(VIOLATORS["raw-recommendation"].policy)
    assert result.verdict == "unproved"
    assert "round 1: after round 1 an agent displays other values" in result.fault


class ReadsSumsAtChanges(DPIMED):
    """Once arms come or leave, a millionth of the open sums is in the means."""

    name = "reads-sums-at-changes"

    def renew_answer(self, params, state):
        state.means[:] += 1e-6 * state.sums.sum(axis=1)


def test_a_small_part_of_raw_sums_is_seen_when_arms_change():
    result = audited(ReadsSumsAtChanges(**USUAL))
    assert result.verdict == "unproved"
    assert "if that is enlarged" in result.fault


def test_a_batch_that_is_left_by_its_raw_sum_is_a_violation(monkeypatch):
    honest = arm_slots.leave_unless_offered

    def by_raw_sum(state, slots, among):
        kept = arm_slots.find_pools(state)
        if slots is not None and kept.sums.sum() > 2.0:
            pools.leave_batch(kept)
        honest(state, slots, among)

    monkeypatch.setattr(arm_slots, "leave_unless_offered", by_raw_sum)
    result = audited(bl.policy("dp-imed", **(USUAL | {"epsilon": 0.5})))
    assert result.verdict in ("violated", "unproved")
    assert "differs" in result.fault


def test_masks_that_follow_a_raw_sum_are_refuted_by_games(monkeypatch):
    """Once an arm has come, the rule plays it by the rewards that are not released."""
    honest = arm_slots.choose_among

    def by_raw_sum(begin, choose, params, state, slots, *rest):
        kept = arm_slots.find_pools(state)
        if kept.number.size > 3 and len(slots) > 1:
            slots = slots[:1] if kept.sums.sum() > 1.0 else slots[1:]
        return honest(begin, choose, params, state, slots, *rest)

    monkeypatch.setattr(arm_slots, "choose_among", by_raw_sum)
    result = audited(bl.policy("dp-imed", **(USUAL | {"epsilon": 0.2})))
    assert result.verdict == "violated", str(result)


def test_a_restart_by_raw_rewards_is_flagged(monkeypatch):
    def raw_change(params, kept, arm):
        return bool(kept.pools.sums.sum() > 3.0)

    monkeypatch.setattr(remembering, "has_changed", raw_change)
    result = audited(bl.policy("dp-imed", **USUAL, memory="detect"))
    assert result.verdict in ("violated", "unproved")


def test_a_status_that_counts_rewards_within_their_windows_is_flagged(monkeypatch):
    monkeypatch.setattr(WindowDelivery, "rewards", property(lambda self: len(self._held)))
    result = audited(bl.policy("dp-imed", **USUAL))
    assert result.verdict == "unproved"
    assert "displays other values" in result.fault
    assert "rewards that never come" in result.fault


def test_an_agent_that_fails_when_arms_change_is_unproved(monkeypatch):
    def broken(*arguments):
        raise ArithmeticError

    monkeypatch.setattr(arm_slots, "clear_slot", broken)
    result = audited(bl.policy("dp-imed", **USUAL))
    assert result.verdict == "unproved"
    assert "it fails with" in result.fault


def test_a_restored_run_is_the_run_without_a_restore():
    policy = bl.policy("dp-imed", **USUAL)
    rewards = np.random.default_rng(1).random((200, 3)).round()
    restored = AGENT_SCENARIOS[-1]
    assert restored.restored
    runs = [
        record_agent(policy, scenario, rewards, 1, 1)
        for scenario in (restored, restored._replace(restored=0))
    ]
    assert [seen.decision for seen in runs[0].seen] == [seen.decision for seen in runs[1].seen]
    assert [seen.display for seen in runs[0].seen] == [seen.display for seen in runs[1].seen]


@pytest.mark.parametrize("name", [*WITH_CHANGES, "raw-recommendation", "raw-alarm"])
def test_violators_that_need_changes_are_flagged(name):
    result = audited(VIOLATORS[name].policy)
    assert result.verdict in ("unproved", "violated"), str(result)


@pytest.mark.parametrize("name", [row.name for row in PROPER_TRIALS])
def test_pools_in_a_state_of_their_own_are_consistent(name):
    result = audited(UNUSUAL_CONTROLS[name].policy)
    assert result.verdict == "consistent", str(result)
