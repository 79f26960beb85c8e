"""dp-even: even shares, one release of each reward, exact answers, and what follows."""

from __future__ import annotations

import time

import numpy as np
import pytest

import balaclava as bl
import even_trial
from balaclava.auditing.tape import Recorder
from balaclava.errors import ParameterError
from balaclava.policies.bounded.dp_even import State, rounded_to_bit
from balaclava.theory.fixed_sample import best_of_sample, exact_difference_interval, look_share

MEANS = [0.3, 0.5, 0.8]


def even(**parameters: object) -> bl.Policy:
    return bl.policy("dp-even", **({"arms": 3, "epsilon": 1.0, "horizon": 240} | parameters))


def play(agent: bl.Agent, rounds: int, seed: int = 0, means: list[float] = MEANS) -> list[int]:
    rng, played = np.random.default_rng(seed), []
    for _ in range(rounds):
        decision = agent.ask()
        played.append(decision.arm)
        agent.tell(decision, float(rng.random() < means[decision.arm]))
    return played


def state_of(agent: bl.Agent) -> State:
    return agent._runner.state  # type: ignore[no-any-return]


@pytest.mark.parametrize("looks", [1, 4])
def test_shares_are_even_in_permuted_blocks_whatever_the_rewards(looks):
    policy = even(looks=looks)
    arms = play(policy.agent(seed=1), 239, means=[0.0, 0.0, 1.0])
    assert arms == play(policy.agent(seed=1), 239, means=[1.0, 0.0, 0.0])
    blocks = np.array(arms[:237]).reshape(-1, 3)
    assert (np.sort(blocks) == [0, 1, 2]).all()
    assert len({tuple(block) for block in blocks.tolist()}) == 6  # in every order


@pytest.mark.parametrize(("horizon", "looks"), [(240, 1), (250, 3)])
def test_blocks_of_random_length_change_no_size_and_depend_on_no_reward(horizon, looks):
    """So the test is given the same numbers of rewards, whatever the blocks."""
    made, lengths = {}, set()
    for means in ([0.0, 0.0, 1.0], [1.0, 0.0, 0.0]):
        agent = even(horizon=horizon, looks=looks, longest_block=3).agent(seed=1)
        plain = even(horizon=horizon, looks=looks).agent(seed=1)
        arms = []
        for _ in range(horizon // 3 * 3 - 1):
            arms += play(agent, 1, means=means)
            play(plain, 1, means=means)
            state = state_of(agent).epochs
            lengths.add(int(state.blocks.size[0]))
            # A look ends with the same participant, and has as many rewards of each arm.
            for field in ("rewards", "draws", "number", "oldest"):
                ours, theirs = getattr(state, field), getattr(state_of(plain).epochs, field)
                assert (ours == theirs).all()
        made[tuple(means)] = arms
    assert lengths == {3, 6, 9}
    assert len({tuple(each) for each in made.values()}) == 1


def test_the_answer_is_that_of_the_exact_test_and_then_the_best_is_played():
    agent = even().agent(seed=1)
    play(agent, 239)
    assert agent.winner() is None
    assert agent.status().releases == 0
    play(agent, 1, seed=1)
    table = np.array([[each.rewards, each.mean, 1] for each in agent.estimates()])
    assert agent.winner() == best_of_sample(table, 1.0, 0.05) == 2
    assert agent.winner(1 - 1e-12) is None
    assert table[:, 0].tolist() == [80, 80, 80]
    assert set(play(agent, 50)) == {2}
    assert agent.winner() == 2
    assert [each.rewards for each in agent.estimates()] == [80, 80, 80]


@pytest.mark.parametrize("horizon", [240, 241, 250])
def test_looks_divide_the_horizon_evenly(horizon):
    agent = even(horizon=horizon, looks=3).agent(seed=1)
    rewards = []
    for _ in range(horizon):
        play(agent, 1, means=[0.5] * 3)
        rewards.append(int(state_of(agent).epochs.rewards[0]))
    total = horizon // 3
    assert sorted(set(rewards)) == [0, total // 3, total * 2 // 3, total]
    assert (state_of(agent).epochs.draws == 3).all()


def test_a_look_spends_its_share():
    """At the first of three looks an arm is named at 1/27 of the failure probability."""
    agent = even(horizon=300, looks=3).agent(seed=3)
    play(agent, 102, means=[0.2, 0.3, 0.7])
    table = np.array([[each.rewards, each.mean, 1] for each in agent.estimates()])
    assert table[0, 0] == 33
    for confidence in (0.6, 0.9, 0.99, 0.9999):
        level = (1 - confidence) * look_share(1, 3)
        named = best_of_sample(table, 1.0, level)
        assert agent.winner(confidence) == (None if named == -1 else named)
    # The intervals hold at every look together.
    first = agent.estimates()[0].interval
    assert first[1] - first[0] > 0.3


@pytest.mark.parametrize("window", [False, True])
def test_late_lost_and_cancelled_rewards(window):
    options = {"settle": "window", "missing": 0.0} if window else {}
    agent = even(looks=2).agent(seed=1, patience=60, **options)
    rng, open_decisions = np.random.default_rng(1), []
    for t in range(240):
        open_decisions.append(agent.ask())
        if len(open_decisions) > 30:
            decision = open_decisions.pop(0)
            if t % 10 == 0:
                agent.cancel(decision)
            elif t % 11:
                agent.tell(decision, float(rng.random() < MEANS[decision.arm]))
    assert (state_of(agent).epochs.draws == 1).all()  # the second look waits for rewards
    for decision in open_decisions:
        agent.tell(decision, float(rng.random() < MEANS[decision.arm]))
    final = agent.finish(give_up_open=True)
    assert (state_of(agent).epochs.draws == 2).all()
    counted = sum(each.rewards for each in final)
    assert counted == (240 if window else 240 - 21 - 17)
    assert final.winner == 2


def test_every_reward_is_in_one_release():
    rng = Recorder(1)
    policy = even(looks=3, horizon=60)
    params, state = policy.constants(), policy.kernels.begin(policy.constants())
    rewards, waiting = 0, []
    for t in range(1, 91):
        waiting.append((t, *policy.kernels.choose(params, state, t, None, rng)))
        if t > 7:
            when, arm, phase = waiting.pop(t % 7)
            rewards += when <= 60
            policy.kernels.learn(params, state, when, arm, 1.0, phase, rng)
    for when, arm, phase in waiting:
        rewards += when <= 60
        policy.kernels.learn(params, state, when, arm, 1.0, phase, rng)
    values = [entry.terms.value for entry in rng.tape if entry.terms is not None]
    assert sum(values) == rewards == 60
    assert len(values) == 9


def test_rewards_become_bits_of_the_same_mean():
    """The bits of 20,000 rewards, within 4 standard deviations."""
    agent = even().agent(seed=2)
    agent.ask()
    state = state_of(agent)
    assert (state.key > 0).all()
    for reward in (0.0, 0.25, 0.9, 1.0):
        bits = np.array([rounded_to_bit(None, state, t, 0, reward) for t in range(1, 20_001)])
        assert set(bits) <= {0.0, 1.0}
        deviation = np.sqrt(reward * (1 - reward) / 20_000)
        assert abs(bits.mean() - reward) <= 4 * deviation
        pairs = np.corrcoef(bits[:-1], bits[1:])[0, 1] if 0 < reward < 1 else 0.0
        assert abs(pairs) < 4 / np.sqrt(20_000)


def test_what_cannot_give_an_answer_is_refused():
    with pytest.raises(ParameterError, match="nothing to compare"):
        even(arms=1)
    with pytest.raises(ParameterError, match=r"12 is too short.*it takes 18 participants"):
        even(horizon=12)
    even(horizon=18)
    with pytest.raises(ParameterError, match="it takes 243 participants"):
        even(horizon=200, epsilon=0.05)
    with pytest.raises(ParameterError, match="looks = 6"):
        even(looks=6)
    assert even().names_winners


def test_a_horizon_that_no_trial_has_is_refused_at_once():
    """The search for the number that it would take examines at most 2^20 pulls."""
    began = time.process_time()
    with pytest.raises(ParameterError, match=r"it takes 1.19e\+101 participants"):
        even(epsilon=1e-100)
    with pytest.raises(ParameterError, match=r"it takes 1.19e\+19 participants"):
        even(horizon=10**18, epsilon=1e-18)
    even(horizon=10**18, epsilon=1e-16)
    assert time.process_time() - began < 5.0


@pytest.mark.statistical
@pytest.mark.parametrize("looks", [2, pytest.param(5, marks=pytest.mark.slow)])
def test_all_looks_together_keep_the_level(looks):
    """Arm 0 is the best by a hair: of 150 trials at a level of 0.2, 45 are wrong once in 500."""
    rng, wrong = np.random.default_rng(1), 0
    for _ in range(150):
        arm, _ = even_trial.in_looks(np.array([0.5, 0.5]), looks, 1.0, rng, 200, 0.2)
        wrong += arm == 1
    assert wrong < 45


def test_a_simulation_goes_beyond_the_horizon_for_late_rewards():
    world = bl.environment("bernoulli", means=MEANS)
    named = bl.simulate(
        even(),
        world,
        horizon=400,
        repetitions=20,
        seed=1,
        delay=bl.Delay(mean=20, law="uniform", lost=0.05),
        patience=50,
        winners=True,
    )
    (row,) = named.winners()
    assert row.right > 0.8
    assert row.median_round > 240


def finished(seed: int, means: list[float], participants: int, **parameters: object) -> bl.Agent:
    agent = even(arms=len(means), horizon=participants, **parameters).agent(seed=seed)
    play(agent, participants, seed, means)
    agent.finish()
    return agent


def test_differences_are_exact_and_not_cut_at_a_winner():
    """Two intervals apart are wider. A cut at 0 would add the winner's error to the intervals'."""
    named, narrower, includes_none = 0, 0, 0
    for seed in range(12):
        agent = finished(seed, [0.5, 0.62], 600)
        estimates = agent.estimates()
        low, high = agent.difference(1, 0)
        assert agent.difference(0, 1) == (-high, -low)
        narrower += low > estimates[1].interval[0] - estimates[0].interval[1]
        means = agent._reading(0.95).released_means
        assert (low, high) == exact_difference_interval(means[1], means[0], 1.0, 0.05)
        if agent.winner() == 1:
            named += 1
            includes_none += low < 0.0
        assert low < estimates[1].mean - estimates[0].mean < high
    assert narrower == 12
    assert named >= 3
    assert includes_none >= 1


def test_differences_are_in_the_unit_of_rewards_and_simultaneous_over_pairs():
    unit = finished(3, [0.3, 0.5, 0.8], 300)
    tens = even(reward_range=(-5.0, 5.0), horizon=300).agent(seed=3)
    rng = np.random.default_rng(3)
    for _ in range(300):
        decision = tens.ask()
        tens.tell(decision, 10.0 * float(rng.random() < MEANS[decision.arm]) - 5.0)
    tens.finish()
    assert tens.difference(2, 0) == pytest.approx([10.0 * x for x in unit.difference(2, 0)])
    reading = unit._reading(0.95).released_means
    alone = exact_difference_interval(reading[2], reading[0], 1.0, 0.05)
    assert unit.difference(2, 0)[0] < alone[0]


def test_an_interval_of_two_arms_where_there_is_no_exact_one():
    agent = even(looks=2).agent(seed=1)
    assert agent.difference(0, 1) == (-1.0, 1.0)
