"""The probability of every sequence of observations in a small world.

The branches of a run are followed round by round. Branches with one history and one state are
merged, so that their number stays small. Each has a probability for every assignment of rewards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from balaclava.auditing.enumeration.branching import (
    BranchCounts,
    BranchingRandomness,
    branches,
)
from balaclava.auditing.replay.recorded_run import ScenarioRunner
from balaclava.auditing.scenario import Scenario
from balaclava.auditing.state_copies import arrays_of, copy_state
from balaclava.policies.base import Policy

# Errors of kernels that an observer sees. Others may be of the enumeration.
_SEEN_FAILURES = (ArithmeticError, AssertionError, LookupError, RuntimeError, ValueError)
_SMALL_STATE = 65_536  # bytes: larger states take longer to copy, and get fewer runs


class Branch(NamedTuple):
    """A state that can be reached, with its probability for each assignment of rewards."""

    state: Any  # None after a failure
    decisions: tuple[tuple[int, int], ...]
    history: int
    chances: np.ndarray  # [assignments]


@dataclass
class SequenceLaws:
    """Probabilities of the sequences of observations, by round."""

    observations: list[tuple[int, Any]] = field(default_factory=list)  # parent and observation
    numbers: dict[tuple[int, Any], int] = field(default_factory=dict)

    def extend(self, history: int, observation: Any) -> int:
        """The number of a sequence that continues another."""
        key = (history, observation)
        if key not in self.numbers:
            self.numbers[key] = len(self.observations)
            self.observations.append(key)
        return self.numbers[key]

    def parent(self, history: int) -> int:
        return self.observations[history][0]

    def sequence(self, history: int) -> list[Any]:
        """All observations of a sequence."""
        result: list[Any] = []
        while history >= 0:
            history, observation = self.observations[history]
            result.append(observation)
        return result[::-1]


class Enumeration:
    """The branches of a scenario after each round, for every assignment of some rewards."""

    def __init__(
        self,
        policy: Policy,
        scenario: Scenario,
        free: tuple[int, ...],
        limits: tuple[float, float],
        most_runs: int,
        few_cells: bool,
    ) -> None:
        self.runner, self.scenario, self.free = ScenarioRunner(policy, scenario), scenario, free
        self.scope = policy.scope
        size = sum(part.nbytes for part in arrays_of(self.runner.begin()))
        runs = most_runs * _SMALL_STATE // max(size, _SMALL_STATE)
        self.counts = BranchCounts(runs, few_cells)
        self.sequences = SequenceLaws()
        self.limits = limits
        assignments = np.arange(2 ** len(free))
        self.bits = {slot: assignments >> k & 1 for k, slot in enumerate(free)}

    def rounds(self) -> Iterator[dict[int, np.ndarray]]:
        """After each round, the probabilities [assignments] of every sequence."""
        start = np.ones(2 ** len(self.free))
        layer = [Branch(self.runner.begin(), (), -1, start)]
        for i in range(self.scenario.rounds):
            layer = self.merge(self.decide(layer, i))
            for item in self.scenario.events(i):
                layer = self.merge(self.tell(layer, item))
            if self.scope != "decision":
                layer = [self.displayed(each) for each in layer]
            laws: dict[int, np.ndarray] = {}
            for each in layer:
                laws[each.history] = laws.get(each.history, 0.0) + each.chances
            yield laws

    def merge(self, layer: Iterator[Branch]) -> list[Branch]:
        """Add up the chances of branches that no later round can distinguish."""
        merged: dict[Any, Branch] = {}
        for each in layer:
            key = (each.history, *(part.tobytes() for part in arrays_of(each.state)))
            if key in merged:
                each = each._replace(chances=merged[key].chances + each.chances)
            merged[key] = each
        return list(merged.values())

    def decide(self, layer: list[Branch], i: int) -> Iterator[Branch]:
        for each in layer:
            if each.state is None:
                yield each
                continue

            def choose(rng: BranchingRandomness, each: Branch = each) -> tuple[Any, Any]:
                state = copy_state(each.state)
                try:
                    return state, self.runner.choose(state, i, rng)
                except _SEEN_FAILURES as error:
                    return None, self.failed(error)

            for (state, decision), rng in branches(choose, self.counts):
                history = self.sequences.extend(each.history, decision)
                decisions = (*each.decisions, decision)
                yield Branch(state, decisions, history, each.chances * rng.probability)

    def tell(self, layer: list[Branch], item: int) -> Iterator[Branch]:
        """Tell or cancel; a free reward has both values, each for half of the assignments."""
        slot = abs(item) - 1
        for each in layer:
            if each.state is None:
                yield each
                continue
            for bit in (0, 1) if item > 0 and slot in self.bits else (None,):
                chances, reward = each.chances, self.limits[bit or 0]
                if bit is not None:
                    chances = np.where(self.bits[slot] == bit, chances, 0.0)
                if not chances.any():
                    continue

                def learn(
                    rng: BranchingRandomness, each: Branch = each, reward: float = reward
                ) -> tuple[Any, str]:
                    state = copy_state(each.state)
                    decision = each.decisions[slot]
                    try:
                        self.runner.apply_event(state, item, decision, rng, reward)
                    except _SEEN_FAILURES as error:
                        return None, self.failed(error)
                    return state, ""

                for (state, failure), rng in branches(learn, self.counts):
                    history = each.history
                    if failure:
                        history = self.sequences.extend(history, failure)
                    if self.scope == "report" and rng.reports:
                        history = self.sequences.extend(history, tuple(rng.reports))
                    yield Branch(state, each.decisions, history, chances * rng.probability)

    def failed(self, error: Exception) -> str:
        """What an observer sees of a failure."""
        self.counts.errors.add(type(error).__name__)
        return self.runner.failure(error)

    def displayed(self, each: Branch) -> Branch:
        """The branch after an observer has seen what an agent displays."""
        if each.state is None:
            return each
        display = self.runner.display(each.state, each.decisions[-1][0])
        return each._replace(history=self.sequences.extend(each.history, display))
