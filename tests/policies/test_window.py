"""`settle="window"`: what an agent shows hides when and whether a reward came, like the reward."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np
import pytest

import balaclava as bl
from balaclava.auditing.recorder import Player, Recorder
from balaclava.errors import DecisionError, ParameterError

ROUNDS, WINDOW = 240, 12
POLICIES = {
    "dp-imed": {"epsilon": 2.0},
    "dp-klucb": {"epsilon": 2.0},
    "adap-ucb": {"epsilon": 2.0},
    "lazy-dp-ucb": {"epsilon": 2.0},
    "dp-se": {"epsilon": 4.0, "horizon": ROUNDS},
    "dp-ucb": {"epsilon": 1.0},
    "private-ucb": {"epsilon": 1.0, "horizon": ROUNDS},
}


class Event(NamedTuple):
    """What happens to one decision: after `delay` further decisions a reward, None: cancelled."""

    delay: int
    reward: float | None


def stream(seed: int) -> list[Event]:
    """Ones come at once, zeros late, some never: arrival depends on the reward as it may."""
    rng = np.random.default_rng(seed)
    events = []
    for _ in range(ROUNDS):
        reward = float(rng.random() < 0.5)
        delay = 0 if reward else int(rng.integers(0, 2 * WINDOW))
        events.append(Event(delay, reward if rng.random() < 0.9 else None))
    return events


def shown(agent: bl.Agent, events: list[Event]) -> list[Any]:
    """Everything that an agent shows of itself while the events happen to its decisions."""
    agent._book.name = "0" * 32  # ids are random; here they must be comparable
    lines: list[Any] = []
    decisions: list[bl.Decision] = []
    for t in range(ROUNDS):
        decisions.append(agent.ask())
        status = agent.status()
        lines += [decisions[-1], status, str(status), repr(agent), str(agent.guarantee)]
        if t % 60 == 59 and agent.policy.estimation is not None:
            lines += [str(agent.estimates()), agent.remaining()]
        for s in range(max(0, t - 2 * WINDOW), t + 1):
            if s + events[s].delay == t:
                try:
                    if events[s].reward is None:
                        agent.cancel(decisions[s])
                    else:
                        agent.tell(decisions[s], events[s].reward)
                except DecisionError:
                    pass  # after its window: only who tells is told so
        if t >= WINDOW + 1:
            with pytest.raises(DecisionError) as caught:  # the same, whatever came
                agent.tell(decisions[t - WINDOW - 1], 1.0)
            lines.append(str(caught.value))
    return lines


NEIGHBOURS = {
    "another reward, later": lambda old: Event(5, 1.0 - (old.reward or 0.0)),
    "it never came": lambda old: Event(10**6, 0.0),
    "it came too late": lambda old: Event(WINDOW + 2, 1.0),
    "it was cancelled": lambda old: Event(3, None),
    "it came in the last moment": lambda old: Event(WINDOW, 1.0),
}


@pytest.mark.parametrize("place", [7, *(pytest.param(n, marks=pytest.mark.slow) for n in (0, 60))])
@pytest.mark.parametrize("change", NEIGHBOURS)
@pytest.mark.parametrize("name", POLICIES)
def test_neighbours_look_alike(name, change, place):
    """With the same answers of all mechanisms: any other way to see the arrival would show."""
    tape, lines = first_run(name, place)
    events = stream(seed=place)
    events[place] = NEIGHBOURS[change](events[place])
    player = Player(tape, 0)
    assert shown(windowed(name, player), events) == lines
    cost = sum(move.share * move.terms.epsilon for move in player.moves)
    assert cost <= POLICIES[name]["epsilon"] * (1 + 1e-9)


def windowed(name: str, rng: Any) -> bl.Agent:
    """An agent that settles by windows, with this randomness."""
    policy = bl.policy(name, arms=2, **POLICIES[name])
    agent = policy.agent(patience=WINDOW, settle="window", missing=0.0)
    agent._player.rng = rng
    return agent


@functools.cache
def first_run(name: str, place: int) -> tuple[list[Any], list[Any]]:
    """What the mechanisms answered in the run that all neighbours are compared with, and showed."""
    recorder = Recorder(seed=1)
    lines = shown(windowed(name, recorder), stream(seed=place))
    return recorder.tape, lines


def test_the_attack_can_succeed():
    """As rewards arrive, the same neighbours are told apart: so the test above can fail."""
    policy = bl.policy("dp-imed", arms=2, epsilon=2.0)
    events = stream(seed=0)
    place = next(i for i, event in enumerate(events) if event == Event(0, 1.0))
    other = [*events[:place], Event(10**6, 0.0), *events[place + 1 :]]
    recorder = Recorder(seed=1)
    counts = []
    for rng, happened in ((recorder, events), (Recorder(seed=1), other)):
        agent = policy.agent(patience=WINDOW)
        agent._player.rng = rng
        for t in range(40):
            decision = agent.ask()
            if happened[t].delay == 0 and happened[t].reward is not None:
                agent.tell(decision, happened[t].reward)
        counts.append(agent.status().rewards)
    assert counts[0] != counts[1]


def test_rewards_count_in_the_order_of_decisions_at_the_end_of_their_windows():
    agent = bl.policy("ucb1", arms=2).agent(seed=1, patience=3, settle="window", missing=0.25)
    learned = []
    agent._reception._learn = lambda known, lesson: learned.append((known.round, lesson.value))
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


def test_within_the_window_who_tells_is_told_what_is_wrong():
    agent = bl.policy("ucb1", arms=2).agent(patience=3, settle="window", missing=0.0)
    first, second = agent.ask(), agent.ask()
    agent.tell(first, 1.0)
    agent.cancel(second)
    with pytest.raises(DecisionError, match="has its reward already"):
        agent.tell(first, 1.0)
    with pytest.raises(DecisionError, match="was cancelled"):
        agent.tell(second, 1.0)


def test_the_level_of_a_report_may_be_asked_for_whether_or_not_it_came():
    policy = bl.policy("ldp-ucb-laplace", arms=2, epsilon=1.0)
    agent = policy.agent(patience=4, settle="window", missing=0.0)
    decision = agent.ask()
    before = agent.report_level(decision)
    agent.tell_report(decision, policy.report(1.0))
    assert agent.report_level(decision) == before
    for _ in range(6):
        agent.ask()
    assert "settle='window'" in str(agent.guarantee.assumptions)  # the operator sees arrivals


def test_what_is_promised():
    policy = bl.policy("dp-imed", arms=2, epsilon=1.0)
    window = policy.agent(patience=4, settle="window", missing=0.0).guarantee
    assert "whether it came at all" in window.neighbours
    assert "When and whether a reward came is covered" in window.explain()
    assert "does not depend on what it is" not in window.explain()
    arrival = policy.agent().guarantee
    assert "whether a reward comes, or is cancelled, does not depend" in arrival.explain()
    assert (arrival.epsilon, arrival.scope) == (window.epsilon, window.scope)
    assert not bl.policy("ucb1", arms=2).agent().guarantee.private


def test_saves_go_on_within_windows():
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
