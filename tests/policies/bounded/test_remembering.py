"""Memories: what counts, what is refused, and restarts."""

from copy import deepcopy

import numpy as np
import pytest

import balaclava as bl
from balaclava.errors import EstimateError, ParameterError
from balaclava.frames.memory import forget_before
from balaclava.frames.pools import leave_batch
from balaclava.policies.bounded import batched


def agent_of(memory, name="dp-imed", seed=1, arms=2, **more):
    known = {"arms": arms, "epsilon": 5.0, "first_batch": 5, "memory": memory}
    return bl.policy(name, **(known | more)).agent(seed=seed)


def play(agent, means, rounds, seed=2):
    """Tell rewards at once, and return the arms."""
    luck, arms = np.random.default_rng(seed), []
    for _ in range(rounds):
        decision = agent.ask()
        agent.tell(decision, float(luck.random() < means[decision.arm]))
        arms.append(decision.arm)
    return arms


@pytest.mark.parametrize("name", ["dp-imed", "dp-klucb"])
def test_only_releases_of_the_memory_count(name):
    agent = agent_of(100, name)
    play(agent, (0.3, 0.7), 700)
    memory = agent._runner.state
    for arm in range(2):
        kept = range(int(memory.oldest[arm]), int(memory.newest[arm]) + 1)
        places = [number % 64 for number in kept]
        assert (memory.kept_rounds[arm, places] > memory.clock[0] - 100).all()
        assert memory.pools.rewards[arm] == memory.kept_rewards[arm, places].sum()
        assert memory.pools.draws[arm] == len(places)
        total = memory.pools.pooled[arm] * memory.pools.rewards[arm]
        assert total == pytest.approx(memory.kept_sums[arm, places].sum())
    assert memory.pools.rewards.sum() <= 100
    assert agent.status().releases > len(places)  # those of the whole run


def test_batches_take_at_most_an_eighth_of_the_memory():
    agent = agent_of(160)
    for decision in play(agent, (0.1, 0.9), 600):
        assert decision in (0, 1)
    assert agent._runner.state.pools.sizes.max() <= 20
    assert agent._runner.state.kept_rewards.max() <= 20


def test_every_arm_is_examined_once_a_memory():
    arms = play(agent_of(200, arms=3), (0.1, 0.2, 0.9), 1_500)
    for first in range(0, 1_200, 100):
        assert set(arms[first : first + 250]) == {0, 1, 2}


def test_an_arm_that_rises_is_found():
    agent = agent_of(200)
    play(agent, (0.3, 0.6), 500)
    arms = play(agent, (0.95, 0.6), 800, seed=3)
    assert np.mean(np.array(arms[400:]) == 0) > 0.7


def test_a_fall_of_the_leader_starts_the_run_again():
    agent = agent_of("detect", seed=4)
    play(agent, (0.4, 0.8), 600)
    assert agent._runner.state.restarts[0] == 0
    arms = play(agent, (0.4, 0.1), 600, seed=5)
    assert agent._runner.state.restarts[0] == 1
    assert np.mean(np.array(arms[300:]) == 0) > 0.8


def test_after_a_restart_nothing_from_before_counts():
    agent = agent_of("detect", seed=4)
    play(agent, (0.4, 0.8), 600)
    while agent._runner.state.restarts[0] == 0:
        play(agent, (0.4, 0.1), 1, seed=6)
    memory = agent._runner.state
    assert memory.first[0] == memory.clock[0] + 1
    assert not memory.pools.weights.any()
    assert not memory.pools.rewards.any()
    assert memory.pools.first_pulls[0]


def test_a_batch_from_before_a_restart_is_not_released():
    """Its decisions were made before, and its rewards come after: they are dropped."""
    agent = agent_of("detect", seed=4)
    play(agent, (0.4, 0.8), 600)
    late = agent.ask()
    memory = agent._runner.state
    row, releases = late.phase % 32, agent.status().releases
    leave_batch(memory.pools)
    forget_before(memory, int(memory.clock[0]) + 1)
    agent.tell(late, 1.0)
    assert memory.pools.numbers[late.arm, row] == late.phase  # still unfinished
    play(agent, (0.4, 0.8), 5, seed=7)
    assert memory.pools.numbers[late.arm, row] == 0
    assert memory.pools.sums[late.arm, row] == 0.0
    assert agent.status().releases == releases


def test_the_first_memory_decides_as_without_one():
    """Until a release is forgotten or a batch is shortened, only the clock differs."""
    long = bl.policy("dp-klucb", arms=3, epsilon=2.0, memory=10**6).agent(seed=3)
    whole = bl.policy("dp-klucb", arms=3, epsilon=2.0).agent(seed=3)
    assert play(long, (0.2, 0.5, 0.8), 60) == play(whole, (0.2, 0.5, 0.8), 60)


@pytest.mark.parametrize(
    "call",
    [lambda a: a.winner(), lambda a: a.estimates(), lambda a: a.may_stop(), lambda a: a.finish()],
)
@pytest.mark.parametrize("memory", [200, "detect"])
def test_winners_and_intervals_are_refused(call, memory):
    agent = agent_of(memory)
    play(agent, (0.3, 0.7), 50)
    with pytest.raises(EstimateError, match=r"names no winner with memory = .*use memory=None"):
        call(agent)


def test_no_bound_is_claimed():
    world = bl.environment("bernoulli", means=[0.4, 0.6])
    for memory in (5_000, "detect"):
        policy = bl.policy("dp-imed", arms=2, epsilon=1.0, memory=memory)
        assert policy.regret_bound(world, 1_000) is None
        assert policy.tail_bound(world, 1_000, 10.0) is None


@pytest.mark.parametrize("memory", [0, -5, 2.5, "always", True, float("nan")])
def test_bad_memories_are_refused(memory):
    with pytest.raises(
        ParameterError, match=r"memory = .*a whole number in .*, or 'detect', or None"
    ):
        bl.policy("dp-imed", arms=2, epsilon=1.0, memory=memory)


def test_a_memory_below_eight_first_batches_is_refused():
    with pytest.raises(ParameterError, match="first batch takes 30; give at least 240 rounds"):
        bl.policy("dp-klucb", arms=2, epsilon=1.0, memory=239)
    assert bl.policy("dp-klucb", arms=2, epsilon=1.0, memory=240).memory == 240


def test_masks_and_arms_that_come_and_go_keep_the_memory_consistent():
    agent = bl.policy("dp-imed", arms=["a", "b"], epsilon=5.0, first_batch=5, memory=120).agent(
        seed=1
    )
    luck = np.random.default_rng(3)
    for t in range(900):
        if t % 150 == 75:
            agent.add_arm(f"arm {t}")
        if t % 150 == 149:
            agent.retire_arm(agent._runner.roster.live[0])
        live = agent._runner.open_roster().live
        decision = agent.ask(available=live[: 1 + t % len(live)])
        agent.tell(decision, float(luck.random() < 0.2 + 0.1 * (decision.arm % 6)))
        memory = agent._runner.state
        assert list(memory.faults(t + 1)) == []
        assert list(memory.pools.faults(t + 1)) == []
        assert memory.pools.arms_with_release[0] == np.count_nonzero(memory.pools.weights)
        assert (memory.pools.rewards >= 0).all()
        assert (memory.pools.weights <= 120).all()


def test_a_short_memory_allows_any_number_of_arms_that_come_and_leave():
    agent = agent_of(80)
    for number in range(40):
        agent.add_arm(f"arm {number}")
        agent.retire_arm(f"arm {number}")
    play(agent, [0.5] * 42, 30)
    assert bl.restore(deepcopy(agent.save())).policy.arms == 42


def test_an_arm_that_comes_while_some_rest_is_tried_without_even_draws():
    """Also while its rewards are awaited: the leader is played, not an arm at random."""
    agent = agent_of(200, arms=3)
    play(agent, (0.1, 0.5, 0.9), 320)
    agent.add_arm("later")
    waiting = [agent.ask(available=[1, 2, 3]) for _ in range(40)]
    labels = [decision.label for decision in waiting]
    assert labels[:5] == ["later"] * 5
    assert "later" not in labels[5:]


def test_with_a_retired_arm_in_its_slot_the_arms_with_a_release_are_counted():
    agent, means = agent_of(200, arms=4), (0.1, 0.02, 0.02, 0.95)
    play(agent, means, 100)
    agent.retire_arm(0)
    for _ in range(30):
        play(agent, means, 20)
        pools = agent._runner.state.pools
        assert pools.arms_with_release[0] == np.count_nonzero(pools.weights)
        bl.restore(deepcopy(agent.save()))


@pytest.mark.parametrize("memory", [80, "detect"])
def test_each_reward_is_in_one_release(memory, monkeypatch):
    """Sums of distinct powers name their rewards: with late and lost rewards, in any order."""
    sums = []
    release = batched.laplace_release

    def note(rng, value, sensitivity, epsilon):
        sums.append(round(value * 2**20))
        return release(rng, value, sensitivity, epsilon)

    monkeypatch.setattr(batched, "laplace_release", note)
    agent = agent_of(memory, arms=3, seed=9)
    luck, open_, groups = np.random.default_rng(1), [], {}
    for t in range(900):
        open_.append(agent.ask())
        while len(open_) > 12:
            decision = open_.pop(luck.integers(len(open_)))
            if luck.random() < 0.1:
                agent.cancel(decision)
                continue
            steps = int(luck.integers(1, 2**20)) if decision.arm != 2 or t < 400 else 1
            agent.tell(decision, steps / 2**20)
            groups.setdefault((decision.arm, decision.phase), []).append(steps)
    known = [sum(rewards) for rewards in groups.values()]
    for total in sums:
        known.remove(total)  # each group at most once
    assert len(sums) > 20
    assert (agent._runner.state.restarts[0] > 0) == (memory == "detect")


def test_saves_keep_the_memory():
    agent = agent_of(100)
    play(agent, (0.3, 0.7), 333)
    other = bl.restore(deepcopy(agent.save()))
    assert play(agent, (0.3, 0.7), 200) == play(other, (0.3, 0.7), 200)
