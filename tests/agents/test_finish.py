"""`agent.finish`: every reward in one release, the final answer, and nothing afterwards."""

from __future__ import annotations

import json

import numpy as np
import pytest

import balaclava as bl
from balaclava.auditing.tape import Recorder
from balaclava.errors import DecisionError, EstimateError

ELIMINATING = ["dp-se", "gdp-elim-new"]  # later rewards of a dropped arm do not count
POOLED = ["dp-imed", "dp-top-two", "dp-even", "dp-klucb", "lazy-dp-ucb", *ELIMINATING]


def policy(name: str) -> bl.Policy:
    more = {"delta": 0.01} if name == "gdp-elim-new" else {}
    return bl.policy(name, arms=3, epsilon=1.0, horizon=4_000, **more)


def play(agent: bl.Agent, rounds: int, lost: float = 0.0) -> list[bl.Decision]:
    """Play with binary rewards; the decisions whose rewards were not told."""
    rng, untold = np.random.default_rng(1), []
    for _ in range(rounds):
        decision = agent.ask()
        reward = float(rng.random() < (0.2, 0.5, 0.8)[decision.arm])
        if rng.random() < lost:
            untold.append(decision)
        else:
            agent.tell(decision, reward)
    return untold


@pytest.mark.parametrize("name", POOLED)
@pytest.mark.parametrize("rounds", [1, 7, 700])
def test_every_reward_is_in_the_final_estimates(name, rounds):
    agent = policy(name).agent(seed=1, patience=rounds)
    untold = play(agent, rounds, lost=0.1)
    before = sum(each.rewards for each in agent.estimates())
    learned = rounds - agent.status().unlearned - len(untold)
    final = agent.finish(give_up_open=True)
    counted = sum(each.rewards for each in final)
    assert before <= counted
    assert counted == learned or (name in ELIMINATING and 0.9 * learned <= counted <= learned)
    assert sum(each.decisions for each in final) == rounds
    assert agent.status().open == 0


@pytest.mark.parametrize("name", POOLED)
def test_no_reward_is_released_twice(name):
    """The values that enter mechanisms, before and in finish, add up to the rewards."""
    agent = policy(name).agent(seed=1)
    agent._runner.rng = recorder = Recorder(1)
    total, rng = 0.0, np.random.default_rng(2)
    for _ in range(900):
        decision = agent.ask()
        reward = float(rng.random() < 0.5)
        total += reward * (decision.phase >= 0)
        agent.tell(decision, reward)

    def released() -> list[float]:
        return [float(entry.terms.value) for entry in recorder.tape if entry.terms is not None]

    before = sum(released())
    agent.finish()
    final = released()
    assert before < sum(final) <= total
    if name not in ELIMINATING:
        assert sum(final) == total
    agent.finish()
    assert released() == final


def test_windows_end_in_order_with_missing_rewards():
    agent = policy("dp-top-two").agent(seed=1, patience=50, settle="window", missing=0.0)
    untold = play(agent, 300, lost=0.3)
    assert sum(each.rewards for each in agent.finish()) == 300
    with pytest.raises(DecisionError):
        agent.tell(untold[-1], 1.0)


@pytest.mark.parametrize("options", [{}, {"patience": 30, "settle": "window", "missing": 0.0}])
def test_a_finished_agent_decides_no_more_and_stays_finished(options):
    agent = policy("dp-imed").agent(seed=1, **options)
    play(agent, 200, lost=0.2)
    final = agent.finish(give_up_open=True)
    again = bl.restore(json.loads(json.dumps(agent.save())))
    for each in (agent, again):
        with pytest.raises(DecisionError, match="finished"):
            each.ask()
        assert str(each.finish()) == str(final)


def test_open_decisions_are_given_up_only_if_the_caller_says_so():
    agent = policy("dp-imed").agent(seed=1)
    untold = play(agent, 40, lost=0.5)
    with pytest.raises(
        DecisionError, match=rf"^{len(untold)} of 40 decisions are open.*give_up_open"
    ):
        agent.finish()
    for decision in untold[:-1]:
        agent.tell(decision, 1.0)
    agent.cancel(untold[-1])
    assert sum(each.rewards for each in agent.finish()) == 39


def test_an_agent_without_estimates_continues():
    agent = bl.policy("dp-ftpl-gauss", arms=2, epsilon=1.0, delta=1e-3, horizon=100).agent(seed=1)
    agent.ask()
    with pytest.raises(EstimateError):
        agent.finish()
    agent.ask()


@pytest.mark.parametrize("name", ["dpr-batch-ucb", "ldpr-batch-ucb"])
def test_a_batch_that_was_cut_short_counts_the_rewards_that_it_has(name):
    """Its radius must not be that of a full batch: the interval would be too narrow."""
    known = {"moment_order": 2.0, "moment_bound": 1.0, "horizon": 4_000}
    agent = bl.policy(name, arms=2, epsilon=1.0, **known).agent(seed=1)
    play(agent, 30)
    final = agent.finish()
    assert [entry.rewards for entry in final] == [entry.decisions for entry in final]
    full = agent.policy.schedule.radii[0]
    assert all(entry.interval[1] - entry.interval[0] > 2.0 * full for entry in final)
