"""dp-sequential-halving: its stages, its answer, the proved bound, and a second implementation."""

from __future__ import annotations

import numpy as np
import pytest

import balaclava as bl
from balaclava.auditing.tape import Recorder
from balaclava.errors import ParameterError
from balaclava.policies.bounded.dp_sequential_halving import State, halvings
from tests.oracles.best_arm_rivals import halving_answers

MEANS = [0.3, 0.5, 0.8, 0.4]


def halving(**parameters: object) -> bl.Policy:
    given = {"arms": 4, "epsilon": 1.0, "horizon": 400} | parameters
    return bl.policy("dp-sequential-halving", **given)


def play(agent: bl.Agent, rounds: int, means: list[float] = MEANS, seed: int = 0) -> list[int]:
    rng, arms = np.random.default_rng(seed), []
    for _ in range(rounds):
        decision = agent.ask()
        arms.append(decision.arm)
        agent.tell(decision, float(rng.random() < means[decision.arm]))
    return arms


def state_of(agent: bl.Agent) -> State:
    return agent._runner.state  # type: ignore[no-any-return]


def test_half_of_the_arms_stay_and_stages_shrink():
    assert halvings(2) == [1]
    assert halvings(9) == [5, 3, 2, 1]
    # Four arms: 1/1.7 of 400 rounds for all, then the other 165 for two of them.
    assert halving().stage_pulls() == [58, 84]
    agent = halving(epsilon=50.0).agent(seed=1)
    first = play(agent, 232)
    assert np.bincount(first).tolist() == [58] * 4
    assert (np.sort(np.array(first).reshape(-1, 4)) == [0, 1, 2, 3]).all()
    assert np.bincount(play(agent, 168), minlength=4).tolist() == [0, 84, 84, 0]
    assert set(play(agent, 30)) == {2}
    assert agent.estimates().recommended == 2
    assert [each.rewards for each in agent.estimates()] == [58, 142, 142, 58]


def test_the_answer_is_recommended_sure_or_not():
    agent = halving(horizon=40).agent(seed=3)
    assert agent.estimates().recommended is None
    play(agent, 40, means=[0.5, 0.5, 0.5, 0.55])
    final = agent.finish()
    assert final.winner is None
    assert final.recommended in range(4)
    assert str(final).endswith(f"no winner. Recommended: {final.recommended}.")
    sure = halving(horizon=2_000).agent(seed=1)
    play(sure, 2_000)
    assert sure.winner() == sure.finish().recommended == 2


@pytest.mark.statistical
def test_errors_are_those_of_the_oracle_and_below_the_bound():
    """4,000 runs each, within four standard errors: fails once in 16,000 times by chance."""
    for means, epsilon, horizon in (
        ([0.75, 0.625, 0.5, 0.375, 0.25], 1.0, 400),
        ([0.55, 0.6, 0.65, 0.75], 0.1, 1_600),
    ):
        policy = halving(arms=len(means), epsilon=epsilon, horizon=horizon)
        world = bl.environment("bernoulli", means=means)
        played = bl.simulate(policy, world, horizon=3 * horizon, repetitions=4_000, seed=1)
        answers = played.pulls(played.labels[0]).argmax(axis=1)  # most rounds come after
        best = int(np.argmax(means))
        ours = (answers != best).mean()
        again = halving_answers(means, epsilon, horizon, 4_000, 2, ratio=0.7, forget=False)
        theirs = (again != best).mean()
        assert abs(ours - theirs) < 4 * np.sqrt(2 * theirs * (1 - theirs) / 4_000)
        assert 0.005 < ours < policy.error_bound(world)


def test_the_bound():
    world = bl.environment("bernoulli", means=MEANS)
    bounds = [halving(horizon=horizon).error_bound(world) for horizon in (100, 400, 1_600)]
    assert sorted(bounds, reverse=True) == bounds
    assert bounds[-1] < 1e-6
    scaled = bl.environment("two-point", values=[10.0] * 4, probabilities=MEANS)
    wide = halving(reward_range=(0.0, 10.0))
    assert wide.error_bound(scaled) == pytest.approx(bounds[1])
    assert halving().error_bound(scaled) is None  # rewards leave the range
    assert halving(explore=0.1).error_bound(world) is None
    ties = bl.environment("bernoulli", means=[0.3, 0.5, 0.8, 0.8])
    assert halving().error_bound(ties) == 1.0


@pytest.mark.parametrize("window", [False, True])
def test_late_lost_and_cancelled_rewards(window):
    """The second stage begins with all arms, and drops two when the first has settled."""
    options = {"settle": "window", "missing": 0.0} if window else {}
    agent = halving().agent(seed=1, patience=60, **options)
    rng, waiting, arms = np.random.default_rng(1), [], []
    for t in range(400):
        waiting.append(agent.ask())
        arms.append(waiting[-1].arm)
        if len(waiting) > 30:
            decision = waiting.pop(0)
            if t % 10 == 0:
                agent.cancel(decision)
            elif t % 11:
                agent.tell(decision, float(rng.random() < MEANS[decision.arm]))
    assert len(set(arms[232:280])) == 4
    assert len(set(arms[310:])) == 2  # the last of the first stage were given up by then
    assert agent.estimates().recommended == 2  # the higher of the two so far
    for decision in waiting:
        agent.tell(decision, float(rng.random() < MEANS[decision.arm]))
    final = agent.finish(give_up_open=True)
    assert state_of(agent).epochs.last_arm[0] == final.recommended == 2
    assert bl.restore(agent.save()).estimates().recommended == 2


def test_every_reward_is_in_at_most_one_release():
    """Those of an arm that left while they were late are in none."""
    rng, policy = Recorder(1), halving(horizon=60)
    params = policy.constants()
    state, waiting = policy.kernels.begin(params), []
    for t in range(1, 61):
        waiting.append((t, *policy.kernels.choose(params, state, t, None, rng)))
        if t > 9:
            when, arm, phase = waiting.pop(t % 7)
            policy.kernels.learn(params, state, when, arm, 1.0, phase, rng)
    for when, arm, phase in waiting:
        policy.kernels.learn(params, state, when, arm, 1.0, phase, rng)
    values = [entry.terms.value for entry in rng.tape if entry.terms is not None]
    assert 50 <= sum(values) <= 60
    assert sum(values) == state.epochs.rewards.sum()


def test_without_rewards_no_arm_leaves():
    agent = halving(horizon=20).agent(seed=1)
    for _ in range(60):
        agent.cancel(agent.ask())
    assert state_of(agent).epochs.active.all()
    assert agent.finish().recommended is None


def test_what_cannot_give_an_answer_is_refused():
    with pytest.raises(ParameterError, match="nothing to compare"):
        halving(arms=1)
    with pytest.raises(ParameterError, match=r"6 is too short.*it takes 7 decisions or more"):
        halving(horizon=6)
    assert halving(horizon=7).stage_pulls() == [1, 1]
    assert halving().names_winners
