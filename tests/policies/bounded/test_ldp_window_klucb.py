"""LDP sliding-window KL-UCB: the rule on a window, changes, and what is refused."""

import json
import math

import numpy as np
import pytest

import balaclava as bl
from balaclava.errors import EstimateError, ParameterError
from balaclava.estimators.kl import kl_upper
from balaclava.privacy.randomness import seeded


def policy_of(memory=40, **more):
    return bl.policy("ldp-window-klucb", **({"arms": 3, "epsilon": 2.0, "memory": memory} | more))


@pytest.mark.parametrize("c", [0.0, 3.0])
def test_decisions_are_those_of_all_reports_in_the_window(c):
    """Each round from the history alone; reports are up to 60 rounds late, or never come."""
    memory, luck = 40, np.random.default_rng(1)
    policy = policy_of(memory, c=c)
    params, state, rng = policy.constants(), policy.kernels.begin(policy.constants()), seeded(1)
    history, due = [], []  # [round, arm, report or None]
    for t in range(1, 500):
        window = [each for each in history if each[0] > t - memory]
        told = [[each[2] for each in window if each[1] == arm] for arm in range(3)]
        asked = [len(each) for each in told]
        told = [[report for report in each if report is not None] for each in told]
        if not all(told):
            wanted = min((asked[arm], arm) for arm in range(3) if not told[arm])[1]
        else:
            level = math.log(min(t, memory))
            level += c * math.log(max(level, 1.0))
            wanted = int(np.argmax([kl_upper(float(np.mean(r)), level / len(r)) for r in told]))
        arm, _ = policy.kernels.choose(params, state, t, None, rng)
        assert arm == wanted
        history.append([t, arm, None])
        due.append((t + int(luck.integers(0, 60)) * int(luck.integers(0, 2)), t))
        for when, made in [each for each in due if each[0] <= t]:
            due.remove((when, made))
            if luck.random() < 0.9:
                report = float(luck.random() < 0.2 + 0.3 * history[made - 1][1])
                history[made - 1][2] = report
                played = history[made - 1][1]
                policy.learn_report(params, state, made, played, report, 0, rng)
        assert list(state.faults(t)) == []


def test_it_follows_a_change_sooner_than_with_a_window_of_the_whole_run():
    schedule = [(1, [0.3, 0.6]), (20_001, [0.6, 0.3])]
    world = bl.environment("changing", schedule=schedule)
    policies = {str(memory): policy_of(memory, arms=2, epsilon=3.0) for memory in (4_000, 40_000)}
    results = bl.simulate(
        policies, world, horizon=40_000, repetitions=8, seed=1, checkpoints=[20_000, 40_000]
    )
    regret = {label: results.regret(label).mean(axis=0) for label in policies}
    assert regret["4000"][1] - regret["4000"][0] < 150
    assert regret["40000"][1] - regret["40000"][0] > 300
    assert regret["4000"][0] < 100


def test_saves_continue_alike_and_estimates_are_refused():
    agent = policy_of(30).agent(seed=2)
    for t in range(75):
        agent.tell(agent.ask(), float(t % 2))
    again = bl.restore(json.loads(json.dumps(agent.save())))
    for _ in range(40):
        one, other = agent.ask(), again.ask()
        assert one.arm == other.arm
        agent.tell(one, 1.0)
        again.tell(other, 1.0)
    for call in (agent.estimates, agent.winner):
        with pytest.raises(EstimateError, match="its means may change"):
            call()
    with pytest.raises(ParameterError, match="in memory that the arms share"):
        agent.add_arm("another")


@pytest.mark.parametrize("memory", [0, 2.5, None, "detect"])
def test_bad_windows_are_refused(memory):
    with pytest.raises(ParameterError, match="memory"):
        policy_of(memory)
