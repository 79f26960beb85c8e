"""dpr-adaptive-ucb: stages, privacy for any rewards, scale, limits, and regret."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import pytest

import balaclava as bl
from balaclava.auditing.replay.replay_audit import audit_by_replay
from balaclava.auditing.tape import Recorder
from balaclava.errors import ParameterError
from balaclava.estimators.dyadic_histogram import SIDE
from balaclava.policies.heavy_tailed.dpr_adaptive_ucb import advantage, leading_arm, open_stage

NAME = "dpr-adaptive-ucb"
S1 = [0.9, 0.7, 0.5, 0.3, 0.1]


def make(**changes):
    return bl.policy(NAME, **{"arms": 2, "epsilon": 1.0, **changes})


def pulls_of(policy, rewards, rounds, seed=1):
    """Pulls of each arm where arm a pays rewards[a], or rewards[a](t)."""
    agent, pulls = policy.agent(seed=seed), [0] * policy.arms
    for t in range(rounds):
        decision = agent.ask()
        pay = rewards[decision.arm]
        agent.tell(decision, pay(t) if callable(pay) else pay)
        pulls[decision.arm] += 1
    return pulls


def state_with(shares, *, tops=(0, 0), means=(0.0, 0.0)):
    """A state in which the arms have these shares, by bin from the middle, and means of stage 0."""
    policy = make()
    params = policy.constants()
    state = policy.kernels.begin(params)
    for arm, bins in enumerate(shares):
        for k, share in bins.items():
            state.shares[arm, SIDE + k] = share
        state.has_histogram[arm] = True
        state.top_stage[arm], state.means[arm, 0] = tops[arm], means[arm]
    return params, state


def test_one_stage_has_the_same_levels_for_all_arms():
    """Those of the widest arm; an arm that cannot be best any more has no say in the next."""
    params, state = state_with([{64: 1.0}, {60: 0.5, -70: 0.5}], tops=(-1, -1))
    assert open_stage(params, state, 0, -1, 1)
    assert (state.low[0], state.high[0]) == (-(2.0**6), 1.0)
    assert state.sizes[0] == 80
    state.top_stage[:], state.means[0, 0] = 0, 1.0
    assert open_stage(params, state, 1, 0, 100)
    assert (state.low[1], state.high[1], state.sizes[1]) == (0.0, 1.0, 80)
    state.means[1, 0] = 2.0  # too late: what is fixed stays
    assert open_stage(params, state, 1, 0, 100)
    assert (state.low[1], state.high[1]) == (0.0, 1.0)


def test_a_rival_is_compared_with_the_leader_at_its_own_stage():
    params, state = state_with([{64: 1.0}, {64: 1.0}], tops=(0, 2), means=(0.5, 0.4))
    state.means[1, :3] = 0.4, 0.8, 0.9  # the leader at higher levels
    assert leading_arm(state) == 1
    assert advantage(params, state, 0, 1, 100) == pytest.approx(0.1)
    state.variances[:, 0], state.noises[:, 0] = 0.02, 0.03
    log_t = math.log(100)
    radius = math.sqrt(0.04 * log_t) + 0.5 * log_t * math.hypot(0.03, 0.03)
    assert advantage(params, state, 0, 1, 100) == pytest.approx(0.1 + radius)


@pytest.mark.parametrize("size", [1.0, 1e300, 1e-12])
def test_moves_of_a_changed_reward(size):
    """Two counts by 1 and the sum by its sensitivity at most, at a total of epsilon."""
    policy = make(first_batch=40, epsilon=1.5)
    params = policy.constants()
    begin, choose, learn, _ = policy.kernels

    def tape(changed):
        state, recorder = begin(params), Recorder(3)
        for t in range(1, 401):
            arm, phase = choose(params, state, t, None, recorder)
            reward = size * (1.2 + t % 3 / 10)
            before = len(recorder.tape)
            learn(params, state, t, arm, changed if t == place else reward, phase, recorder)
            if t >= place and len(recorder.tape) > before:
                break  # its batch is over; what comes next follows from the answers
        return [entry.terms for entry in recorder.tape if entry.terms]

    moved_sums = 0
    for place in (5, 100):  # in a batch without levels, and in one with levels
        plain, other = tape(size * (1.2 + place % 3 / 10)), tape(-size)
        loss = defaultdict(float)
        for one, two in zip(plain, other, strict=True):
            if one.value != two.value:
                assert abs(one.value - two.value) <= one.sensitivity
                loss["epsilon"] += one.epsilon
                moved_sums += one.sensitivity != 1.0
        assert 0 < loss["epsilon"] <= policy.epsilon * (1 + 1e-12)
    assert moved_sums


def test_replay_is_consistent():
    """Neighbours of any size, with late rewards too: the mechanisms are the only way out."""
    policy = make(first_batch=6, epsilon=2.0)
    report = audit_by_replay(policy, policy.guarantee, rounds=60, pairs=40, seed=1)
    assert report.verdict == "consistent", str(report)
    assert report.moved > 0
    assert report.epsilon == pytest.approx(2.0)


def test_a_histogram_under_way_ends_once_another_was_seen():
    """Late rewards: by the first release each arm is in the midst of its second histogram."""
    agent = make(epsilon=50.0, first_batch=80).agent(seed=1)
    decisions = [agent.ask() for _ in range(180)]
    state = agent._runner.state
    asked = state.pools.placed.copy()
    assert (asked < 20).all()
    assert (state.pools.size == 80).all()
    for decision in decisions[:160]:
        agent.tell(decision, 1.0 + decision.arm)
    further = [agent.ask() for _ in range(4)]
    assert state.newest_stage.max() == 0  # a batch with levels was opened
    arm = int(np.argmax(state.newest_stage))
    assert [d.phase for d in further if d.arm == arm][:2] == [2, 3]
    assert state.pools.sizes[arm, 2] == asked[arm] + 1
    for decision in decisions[160:] + further:
        agent.tell(decision, 1.0 + decision.arm)
    assert state.pools.left[arm, 2] == 0


@pytest.mark.parametrize(
    ("bad", "good"),
    [(0.0, 0.0), (0.0, 1.0), (-3.0, -1.0), (-1e300, 1e300), (1e-300, 1e300), (-1e-5, 1e-5)],
)
def test_any_rewards(bad, good):
    """Constant rewards of any size and sign: the better arm is found where the grid tells."""
    pulls = pulls_of(make(epsilon=2.0), [bad, good], 1500)
    assert sum(pulls) == 1500
    if bad != good:
        assert pulls[1] > 1000


def test_noise_that_is_fit_for_release():
    """Exact noise with rewards at both ends of the floats."""
    agent = make(epsilon=3.0, first_batch=8).agent()
    arms = set()
    for t in range(60):
        decision = agent.ask()
        arms.add(decision.arm)
        agent.tell(decision, reward=(1e300, -1e300, 1e-300, 0.0)[t % 4])
    assert arms == set(range(agent.policy.arms))
    assert agent.guarantee.epsilon == 3.0


def test_powers_of_two_change_nothing():
    """Without noise, rewards times 2^k lead to the same decisions."""
    rewards = np.random.default_rng(5).pareto(1.5, 3000)
    plain = pulls_of(make(epsilon=1e9), [lambda t: rewards[t], lambda t: 2 * rewards[t]], 3000)
    for scale in (2.0**-30, 2.0**40):
        scaled = [lambda t, s=scale: s * rewards[t], lambda t, s=scale: 2 * s * rewards[t]]
        assert pulls_of(make(epsilon=1e9), scaled, 3000) == plain


@pytest.mark.slow
@pytest.mark.statistical
def test_regret():
    """Fixed seed. The usual run has 1 % of the regret of chance."""
    world, horizon = bl.environment("pareto", means=S1, shape=1.95), 100_000
    results = bl.simulate(
        make(arms=5), world, horizon=horizon, repetitions=10, seed=1, checkpoints=1
    )
    regret = results.final_regret(NAME) / (float(world.gaps.mean()) * horizon)
    assert np.median(regret) < 0.03
    assert (regret < 0.1).all()


@pytest.mark.slow
@pytest.mark.statistical
def test_no_run_locks():
    """Fixed seed. With levels of its own for each arm, one run in seven locked on these arms: 20
    runs would pass with a chance of 0.05."""
    means = [1000 * mean for mean in (0.9, 0.85, 0.7, 0.45, 0.1)]
    world, horizon = bl.environment("pareto", means=means, shape=1.55), 300_000
    results = bl.simulate(
        make(arms=5), world, horizon=horizon, repetitions=20, seed=1, checkpoints=1
    )
    assert (results.pulls(NAME)[:, 0] > horizon / 2).all()


def test_without_noise_it_is_careful_still():
    """With epsilon at its largest the first batch is that of epsilon 1, and the best arm wins."""
    assert make(epsilon=1e9).constants().first_batch == 80
    assert make(epsilon=0.1).constants().first_batch == 800
    assert pulls_of(make(epsilon=1e9), [0.2, 0.8], 2000)[1] > 1700


def test_limits():
    assert pulls_of(make(arms=1), [1.0], 500) == [500]
    assert pulls_of(make(), [0.0, 1.0], 30) == [15, 15]  # shorter than the first batches, in turn
    for share in (0.0, 1.0, -0.1, math.nan):
        with pytest.raises(ParameterError, match="level_share"):
            make(level_share=share)
    with pytest.raises(ParameterError, match="first_batch"):
        make(first_batch=0)


@pytest.mark.filterwarnings("ignore::balaclava.errors.SilenceWarning")
def test_late_rewards_far_from_0_are_learned_from():
    """Levels come from histograms about the centre that each had: no radius is assumed."""
    agent = bl.policy("dpr-adaptive-ucb", arms=2, epsilon=1.0).agent(seed=1, patience=10_000)
    rng, queue, late = np.random.default_rng(1), [], np.zeros(2)
    for t in range(20_000):
        decision = agent.ask()
        late[decision.arm] += t >= 15_000
        queue.append((decision, (900.0, 880.0)[decision.arm] + rng.choice([-1.0, 1.0])))
        if len(queue) > 3_000:
            agent.tell(*queue.pop(0))
    assert late[0] > 0.9 * late.sum()
    means = agent._runner.state.pools.means
    assert means == pytest.approx([900.0, 880.0], abs=20.0)
