"""A year of an agent: rewards late, lost, told twice, out of order; cancellations; restarts."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import balaclava as bl
from balaclava.errors import DecisionError

MEANS = (0.2, 0.5, 0.8)
PATIENCE = 60  # decisions; about ten come in a day


class Year:
    """The events of an agent's decisions, and what its policy must have learned from them."""

    def __init__(self, days: int, seed: int, **settling: Any) -> None:
        self.rng = np.random.default_rng(seed)
        self.window = settling.get("settle") == "window"
        self.agent = bl.policy("dp-imed", arms=3, epsilon=5.0).agent(seed=seed, **settling)
        self.learned: list[tuple[int, float]] = []
        self.expected: dict[int, float] = {}  # by round: what counts, if it may count at all
        self.refused: Counter[str] = Counter()
        self.decisions: list[bl.Decision] = []
        self.due: dict[int, list[tuple[int, float | None]]] = {}  # by the number of decisions made
        self.listen()
        for _ in range(days):
            self.day()

    def listen(self) -> None:
        """Record what the policy learns."""
        learn = self.agent._delivery._learn

        def heard(entry: Any, observation: Any) -> None:
            self.learned.append((entry.round, observation.value))
            learn(entry, observation)

        self.agent._delivery._learn = heard

    def day(self) -> None:
        """About ten decisions; then, with chance 1/3, a restart."""
        for _ in range(int(self.rng.poisson(10))):
            decision = self.agent.ask()
            self.decisions.append(decision)
            made = len(self.decisions)
            for number, event in self.events(made, decision.arm):
                self.due.setdefault(number, []).append((made, event))
            for number, event in self.due.pop(made, []):
                self.happen(number, event)
        if self.rng.random() < 1 / 3:
            self.agent = bl.restore(self.agent.save())
            self.listen()

    def events(self, made: int, arm: int) -> list[tuple[int, float | None]]:
        """The events of a decision: its reward comes late, never or twice; or it is cancelled."""
        reward = float(self.rng.random() < MEANS[arm])
        late = made + int(self.rng.geometric(1 / 20)) - 1
        chance = self.rng.random()
        if chance < 0.05:
            return []
        if chance < 0.08:
            return [(late, None), (late + 3, reward)]  # and it comes all the same
        twice = chance < 0.15
        return [(late, reward)] + ([(late + int(self.rng.integers(0, 90)), reward)] * twice)

    def happen(self, number: int, event: float | None) -> None:
        """Tell or cancel; the first event in time must count."""
        decision, waited = self.decisions[number - 1], len(self.decisions) - number
        try:
            if event is None:
                self.agent.cancel(decision)
            else:
                self.agent.tell(decision.id, event)
            assert waited <= PATIENCE
            assert number not in self.expected
            self.expected[number] = -1.0 if event is None else event
        except DecisionError as error:
            assert waited > PATIENCE or number in self.expected
            self.refused[str(error).split(" ", 2)[2]] += 1


@pytest.mark.parametrize("days", [40, pytest.param(365, marks=pytest.mark.slow)])
def test_by_arrival_each_reward_in_time_counts_once(days):
    year = Year(days, seed=1, patience=PATIENCE)
    came = {number: reward for number, reward in year.expected.items() if reward >= 0}
    assert dict(year.learned) == came
    assert len(year.learned) == len(came)
    status = year.agent.status()
    assert status.rewards == len(came)
    assert status.cancelled == len(year.expected) - len(came)
    assert status.rewards + status.cancelled + status.given_up + status.open == status.decisions
    assert status.open <= PATIENCE + 1
    assert len(year.refused) == 3  # told already, cancelled, given up
    assert Counter(d.arm for d in year.decisions[-200:]).most_common(1)[0][0] == 2


@pytest.mark.parametrize("days", [40, pytest.param(365, marks=pytest.mark.slow)])
def test_by_windows_every_decision_counts_in_its_order(days):
    year = Year(days, seed=2, patience=PATIENCE, settle="window", missing=0.0)
    closed = len(year.decisions) - year.agent.status().open
    assert [number for number, _ in year.learned] == list(range(1, closed + 1))
    for number, value in year.learned:
        assert value == max(year.expected.get(number, 0.0), 0.0)
    assert Counter(d.arm for d in year.decisions[-200:]).most_common(1)[0][0] == 2
    estimates = year.agent.estimates()
    assert sum(arm.rewards for arm in estimates) <= closed
