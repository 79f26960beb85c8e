"""`settle="window"`: rewards count when windows end; test_attack checks what an agent displays."""

from __future__ import annotations

import math
from typing import Any

import pytest

import balaclava as bl
from balaclava.errors import DecisionError, ParameterError


def test_rewards_count_in_the_order_of_decisions_at_the_end_of_their_windows():
    agent = bl.policy("ucb1", arms=2).agent(seed=1, patience=3, settle="window", missing=0.25)
    learned = []
    agent._delivery._learn = lambda known, observation: learned.append(
        (known.round, observation.value)
    )
    decisions = [agent.ask() for _ in range(3)]
    agent.tell(decisions[2], 0.75)
    agent.tell(decisions[0], 0.5)
    agent.cancel(decisions[1])
    assert learned == []
    agent.ask()
    assert learned == []
    for expected in ([(1, 0.5)], [(1, 0.5), (2, 0.25)], [(1, 0.5), (2, 0.25), (3, 0.75)]):
        agent.ask()
        assert learned == expected
    agent.ask()
    assert learned[-1] == (4, 0.25)
    status = agent.status()
    assert (status.decisions, status.open, status.closed) == (8, 4, 4)
    assert status.rewards is status.given_up is status.cancelled is None
    assert str(status) == (
        "8 decisions, 4 windows closed, 4 open; the next window ends with decision 1 from now."
    )


def test_within_the_window_errors_say_what_is_wrong():
    agent = bl.policy("ucb1", arms=2).agent(patience=3, settle="window", missing=0.0)
    first, second = agent.ask(), agent.ask()
    agent.tell(first, 1.0)
    agent.cancel(second)
    with pytest.raises(DecisionError, match="has its reward already"):
        agent.tell(first, 1.0)
    with pytest.raises(DecisionError, match="was cancelled"):
        agent.tell(second, 1.0)


def test_the_report_level_is_available_before_and_after_the_report():
    policy = bl.policy("ldp-ucb-laplace", arms=2, epsilon=1.0)
    agent = policy.agent(patience=4, settle="window", missing=0.0)
    decision = agent.ask()
    before = agent.report_level(decision)
    agent.tell_report(decision, policy.report(1.0))
    assert agent.report_level(decision) == before
    for _ in range(6):
        agent.ask()
    assert "settle='window'" in str(agent.guarantee.assumptions)  # the operator sees arrivals


def test_the_guarantee_says_whether_it_covers_arrival():
    policy = bl.policy("dp-imed", arms=2, epsilon=1.0)
    window = policy.agent(patience=4, settle="window", missing=0.0).guarantee
    assert "whether it arrived at all" in window.neighbours
    assert "When and whether a reward arrived is covered" in window.explain()
    assert "does not depend on the value of any reward" not in window.explain()
    assert "do not depend on this reward, except through released values" in window.explain()
    arrival = policy.agent().guarantee
    assert "whether any reward comes, or is cancelled, does not depend" in arrival.explain()
    assert (arrival.epsilon, arrival.scope) == (window.epsilon, window.scope)
    assert not bl.policy("ucb1", arms=2).agent().guarantee.private


def test_a_save_within_windows_is_restored():
    policy = bl.policy("dp-ucb", arms=2, epsilon=1.0)
    settings: dict[str, Any] = {"patience": 6, "settle": "window", "missing": 0.5}
    whole, halved = (policy.agent(seed=4, **settings) for _ in range(2))
    arms: list[list[int]] = []
    for agent in (whole, halved):
        played: list[bl.Decision] = []
        for t in range(60):
            if agent is halved and t == 30:
                halved = bl.restore(halved.save())
                agent = halved
            played.append(agent.ask())
            if t % 5 != 2 and t >= 3:
                agent.tell(played[t - 3], (t * 7 % 10) / 10)
        arms.append([decision.arm for decision in played])
    assert arms[0] == arms[1]


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"patience": 0}, "patience"),
        ({"patience": -3}, "patience"),
        ({"settle": "window", "patience": 3}, "missing"),
        ({"settle": "window", "missing": 0.0}, "patience"),
        ({"settle": "never"}, "settle"),
        ({"missing": 0.0}, "settle = 'window'"),
        ({"settle": "window", "patience": 3, "missing": 1.5}, "missing = 1.5"),
        ({"settle": "window", "patience": 3, "missing": math.nan}, "missing"),
    ],
)
def test_bad_settings(settings, word):
    with pytest.raises(ParameterError, match=word):
        bl.policy("dp-imed", arms=2, epsilon=1.0).agent(**settings)


def test_an_overdue_decision_is_given_up_with_the_next_one():
    """Rewards that came long after their decisions shorten the adaptive timeout."""
    agent = bl.policy("dp-imed", arms=4, epsilon=1.0).agent(seed=1)
    decisions = [agent.ask() for _ in range(900)]
    for decision in decisions[100:]:
        agent.tell(decision, reward=1.0)
    assert agent.status().awaited.endswith("given up with decision 1 from now")
