"""GDP-Elim-New (Wang and Zhu 2024, Algorithm 4): phases, and when it commits."""

from __future__ import annotations

import math

import pytest

import balaclava as bl
from balaclava.auditing.tape import Recorder
from balaclava.privacy.randomness import seeded


def test_phases_of_gdp_elim_new():
    def make(**given):
        return bl.policy("gdp-elim-new", arms=9, epsilon=1.0, horizon=10**6, **given)

    assert 128 * make().constants().log_horizon == pytest.approx(1768.385351419427, rel=1e-14)
    assert make(delta=0.01).first_phase == 1769
    assert 8 * make().constants().noise_reach == pytest.approx(215.50299148294883, rel=1e-14)
    t2, delta, e = 1e12, 0.01, math.e - 1
    printed = math.log((t2 * e + t2 * delta) / (2 * e + t2 * delta))
    assert make(delta=delta).constants().noise_reach == pytest.approx(printed, rel=1e-12)
    assert make(delta=delta).constants().noise_delta == delta / 2
    assert make(delta=delta, tight_delta=True).constants().noise_delta == delta
    without = bl.policy("gdp-elim-new", arms=2, epsilon=0.0, delta=0.001, horizon=100)
    assert 8 * without.constants().noise_reach == pytest.approx(8 * (1e4 - 2) / (1e4 * 0.001))
    # the privacy term decides for a small epsilon, and costs half as much with the whole delta
    pair = [
        bl.policy("gdp-elim-new", arms=2, epsilon=0.0, delta=1e-4, horizon=9, tight_delta=tight)
        for tight in (False, True)
    ]
    assert pair[0].first_phase == pytest.approx(2 * pair[1].first_phase, abs=1)


def in_blocks(decisions, phase):
    """Whether every three decisions are one of each arm, all of that phase."""
    blocks = [decisions[i : i + 3] for i in range(0, len(decisions), 3)]
    return all(sorted(block) == [(arm, phase) for arm in range(3)] for block in blocks)


def test_gdp_elim_new_pulls_all_arms_until_it_commits():
    policy = bl.policy("gdp-elim-new", arms=3, epsilon=1.0, delta=0.1, horizon=2000)
    first, recorder = policy.first_phase, Recorder(5)
    params, (begin, choose, learn, _) = policy.constants(), policy.kernels
    state, decisions, answers, seen = begin(params), [], [0], 0
    for t in range(1, 3 * first * 5 + 200):
        arm, phase = choose(params, state, t, None, recorder)
        decisions.append((arm, phase))
        learn(params, state, t, arm, (0.1, 0.3, 0.5)[arm], phase, recorder)
        fresh = recorder.tape[seen:]
        seen += len(fresh)
        answers.append(answers[-1] + sum(entry.terms is not None for entry in fresh))
    assert in_blocks(decisions[: 3 * first], 1)
    # a gap of 0.2 is under 2^-1, so a second phase follows; it is over 2^-2 only with luck
    assert answers[3 * first - 1] == 0  # nothing is released before the phase is complete
    assert answers[3 * first] == 3
    for entry in recorder.tape:
        if entry.terms is not None:  # the others are the order within a block
            assert entry.terms.sensitivity == 1.0
            assert entry.terms.delta == 0.05
    second = math.ceil(max(128 * 4 * params.log_horizon, 16 * params.noise_reach))
    start = 3 * first
    assert in_blocks(decisions[start : start + 3 * second], 2)


def test_gdp_elim_new_commits_once():
    policy = bl.policy("gdp-elim-new", arms=3, epsilon=1.0, horizon=500)
    agent, first = policy.agent(seed=1), policy.first_phase
    for t in range(3 * first + 300):
        decision = agent.ask()
        if t >= 3 * first:
            assert (decision.arm, decision.phase) == (1, -1)
        agent.tell(decision, reward=float(decision.arm == 1))


def test_phases_compile_to_what_they_say():
    """Through several phases and a commitment, which the short runs of the contract never see."""
    horizon = 14_000
    policy = bl.policy("gdp-elim-new", arms=2, epsilon=1.0, delta=0.01, horizon=horizon)
    world = bl.environment("bernoulli", means=[0.3, 0.65])
    results = bl.simulate(policy, world, horizon=horizon, repetitions=1, seed=2, workers=1)
    params, kernels, prepare = policy.constants(), policy.kernels, policy.prepare()
    rng, draws, state = seeded(2, 0, 0), seeded(2, 0, 1), kernels.begin(params)
    pulls, phases = [0, 0], set()
    for t in range(1, horizon + 1):
        arm, phase = kernels.choose(params, state, t, None, rng)
        reward = prepare(params, world.draw(world.constants(), t, arm, draws))
        kernels.learn(params, state, t, arm, reward, phase, rng)
        pulls[arm] += 1
        phases.add(int(phase))
    assert results.pulls("gdp-elim-new")[0].tolist() == pulls
    assert phases == {1, 2, -1}
