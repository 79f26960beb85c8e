"""Leases: each reward in one release, members of batches by public facts alone, one law for one."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import balaclava as bl
from balaclava._core.kernels import kernel
from balaclava.auditing.replay.replay_audit import audit_by_replay
from balaclava.errors import IncompatibleError, ParameterError
from balaclava.frames import leases as frame
from balaclava.policies.base import Kernels
from balaclava.policies.leased_policy import LeasedPolicy, leased_kernels, require_leasable
from balaclava.testing import check_policy

BASE = bl.policy("dp-imed", arms=2, epsilon=1.0, first_batch=6)


def leased(base: bl.Policy = BASE, **parameters: object) -> LeasedPolicy:
    return LeasedPolicy(**{"arms": base.arms, "base": base, "deciders": 3, **parameters})


def total_released(policy: LeasedPolicy, state: object) -> tuple[float, int]:
    released = policy.released(state)
    return sum(each.mean * each.rewards for each in released), sum(r.rewards for r in released)


@settings(max_examples=20)
@given(
    seed=st.integers(0, 2**32),
    deciders=st.integers(1, 5),
    term=st.sampled_from((None, 1, 7)),
    lost=st.sampled_from((0.0, 0.2, 1.0)),
    first=st.sampled_from((6, 300)),
)
def test_each_reward_is_in_one_release(seed, deciders, term, lost, first) -> None:
    """Rewards come in any order, some never. At the end every batch is released, with its sum."""
    base = bl.policy("dp-imed", arms=2, epsilon=1e6, first_batch=first)  # releases are sums
    policy = leased(base, deciders=deciders, lease_rounds=term)
    kernels, params = policy.kernels, policy.constants()
    luck, rng = np.random.default_rng(seed), np.random.default_rng(seed + 1)
    state, waiting, told = kernels.begin(params), [], []
    for t in range(1, 401):
        arm, phase = kernels.choose(params, state, t, None, rng)
        waiting.append((t, arm, phase))
        while waiting and luck.random() < 0.5:
            number, arm, phase = waiting.pop(luck.integers(len(waiting)))
            if luck.random() < lost:
                kernels.forget(params, state, number, arm, phase, rng)
            else:
                told.append(float(luck.integers(0, 2)))
                kernels.learn(params, state, number, arm, told[-1], phase, rng)
        assert [*state.leases.faults(t), *policy.faults(state, t)] == []
    for number, arm, phase in waiting:
        kernels.forget(params, state, number, arm, phase, rng)
    for arm, phase in policy.closing_decisions(state, rng):
        kernels.forget(params, state, 400, arm, phase, rng)
    total, rewards = total_released(policy, state)
    assert rewards == len(told)
    assert total == pytest.approx(sum(told), abs=0.01)
    assert int(state.leases.opened[0]) == 400 + int(state.leases.expired[0])


def test_leases_start_with_one_slot_and_grow() -> None:
    lengths = [frame.lease_length(batch, 64) for batch in (1, 40, 1_023, 1_024, 10**5, 10**9)]
    assert lengths == [1, 1, 1, 2, 195, frame.LONGEST_LEASE]
    for batch in (600, 10**5):  # together they hold at most an eighth of a batch
        assert 64 * frame.lease_length(batch, 64) <= batch / frame.BATCH_PER_LEASES


def test_an_expired_slot_makes_its_batch_smaller() -> None:
    """Two deciders, one of which stops with slots of the only arm."""
    base = bl.policy("dp-imed", arms=1, epsilon=1e6, first_batch=64)
    policy = leased(base, arms=1, deciders=2, lease_rounds=5)
    kernels, params, rng = policy.kernels, policy.constants(), np.random.default_rng(1)
    state = kernels.begin(params)
    for t in range(1, 201):
        arm, phase = kernels.choose(params, state, t, None, rng)
        kernels.learn(params, state, t, arm, 1.0, phase, rng)
    expired = int(state.leases.expired[0])
    (released,) = policy.released(state)
    assert expired > 0
    assert released.rewards < 200
    assert released.mean == pytest.approx(1.0, abs=1e-3)  # by the rewards there are


@pytest.mark.parametrize("term", [None, 3])
def test_replay_finds_each_reward_in_one_release(term: int | None) -> None:
    policy = leased(lease_rounds=term)
    found = audit_by_replay(policy, policy.guarantee, rounds=48, pairs=40, seed=1, seconds=3.0)
    assert found.verdict == "consistent"


class ReturnsByReward(LeasedPolicy):
    """Broken: a decider returns its slots when a reward is large, so batches depend on it."""

    name = "leased-by-reward"

    @property
    def kernels(self) -> Kernels:
        sound, _ = leased_kernels(self.base.kernels, frame.POOL_READS[""], self.base.prepare())

        @kernel
        def learn(params, state, t, arm, reward, phase, rng):
            sound.learn(params, state, t, arm, reward, phase, rng)
            if reward > 0.5:
                for decider in range(params.deciders):
                    while frame.has_slot(state.leases, decider):
                        sound.forget(
                            params, state, t, *frame.expire_slot(state.leases, decider), rng
                        )

        return Kernels(sound.begin, sound.choose, learn, sound.forget)


def test_replay_refutes_leases_that_depend_on_rewards() -> None:
    base = bl.policy("dp-imed", arms=2, epsilon=1.0, first_batch=80)
    policy = ReturnsByReward(arms=2, base=base, deciders=2)
    sound = leased(base, deciders=2)
    verdicts = {
        each.name: audit_by_replay(each, each.guarantee, rounds=300, pairs=40, seed=1).verdict
        for each in (policy, sound)
    }
    assert verdicts["leased"] == "consistent"
    assert verdicts["leased-by-reward"] != "consistent"


@pytest.mark.slow
@pytest.mark.parametrize("term", [None, 3])
def test_the_conformance_suite_holds_through_leases(term: int | None) -> None:
    check_policy(leased(lease_rounds=term))


def test_the_guarantee_is_that_of_the_policy_and_names_what_it_assumes() -> None:
    own, mine = BASE.guarantee, leased().guarantee
    assert (mine.epsilon, mine.delta, mine.scope) == (own.epsilon, own.delta, own.scope)
    assert "at which decider" in mine.assumptions[-1]


def test_its_parameters_are_json_able() -> None:
    policy = leased(lease_rounds=9)
    assert LeasedPolicy.create(json.loads(json.dumps(policy.parameters))) == policy


@pytest.mark.parametrize("name", ["adap-ucb", "dp-klucb", "lazy-dp-ucb", "dp-top-two"])
def test_policies_with_batches_of_each_arm_can_be_leased(name: str) -> None:
    assert require_leasable(bl.policy(name, arms=2, epsilon=1.0)) in ("", "pools")


def test_other_policies_are_refused_with_a_reason() -> None:
    for policy in (
        bl.policy("ucb1", arms=2),
        bl.policy("dp-se", arms=2, epsilon=1.0, horizon=1_000),
        bl.policy("ldp-ucb-bernoulli", arms=2, epsilon=1.0),
    ):
        with pytest.raises(IncompatibleError, match="cannot be leased"):
            leased(policy)
    with pytest.raises(ParameterError, match="differs from the base"):
        leased(arms=3)
    with pytest.raises(ParameterError, match="deciders"):
        leased(deciders=0)
