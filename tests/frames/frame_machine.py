"""Random orders of ask, tell, give up, save and restore, with a model of where each reward is.

Rewards are random whole numbers, so a sum identifies its rewards. The model keeps them in groups,
by arm and phase; a frame may release each group once, and only all of it.
"""

import json
from collections import defaultdict
from collections.abc import Callable
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import balaclava as bl
from balaclava.agents.saving import fill_state, pack_state, require_invariants
from balaclava.frames.pools import UNLEARNED

LARGEST = 2**20  # a reward: sums of thousands are exact


class Params(NamedTuple):
    """The parameters that frames need."""

    arms: int
    explore: float
    holdout: float


class Group:
    """The decisions of an arm in one batch or epoch."""

    def __init__(self) -> None:
        self.total, self.rewards, self.open, self.released = 0.0, 0, 0, False


class FrameMachine(RuleBasedStateMachine):
    """Ask, tell, give up, save and restore; a subclass plays a frame."""

    arms: int
    state: Any
    luck: np.random.Generator  # choices that need not be shrunk

    def __init__(self) -> None:
        super().__init__()
        self.decisions = self.releases = 0
        self.open: list[tuple[int, int]] = []
        self.groups: dict[tuple[int, int], Group] = defaultdict(Group)

    def begin(self) -> Any:
        """A fresh state."""
        raise NotImplementedError

    def choose(self) -> tuple[int, int]:
        """The next decision."""
        raise NotImplementedError

    def learn(self, arm: int, phase: int, reward: float | None) -> None:
        """Tell a reward; with None, give up the decision."""
        raise NotImplementedError

    def is_kept(self, arm: int, phase: int) -> bool:
        """Whether the frame may still learn from such a decision."""
        return phase != UNLEARNED

    def is_over(self) -> bool:
        """Whether there are no further releases."""
        return False

    def pick(self, options: Any) -> Any:
        """One of the options, each equally likely."""
        return options[self.luck.integers(len(options))]

    @rule(times=st.integers(1, 12))
    def ask(self, times: int) -> None:
        for _ in range(times):
            self.decisions += 1
            arm, phase = map(int, self.choose())
            assert 0 <= arm < self.arms
            if self.is_kept(arm, phase):
                assert not self.groups[arm, phase].released
                self.groups[arm, phase].open += 1
            self.open.append((arm, phase))

    @precondition(lambda self: self.open)
    @rule(times=st.integers(1, 12), lost=st.sampled_from((0.0, 0.0, 0.2, 1.0)))
    def tell(self, times: int, lost: float) -> None:
        """Tell in any order; give up a share of the decisions."""
        for _ in range(min(times, len(self.open))):
            arm, phase = self.open.pop(self.luck.integers(len(self.open)))
            reward = float(self.luck.integers(1, LARGEST))
            self.close(arm, phase, None if self.luck.random() < lost else reward)

    def close(self, arm: int, phase: int, reward: float | None) -> None:
        if self.is_kept(arm, phase):
            group = self.groups[arm, phase]
            assert not group.released
            group.open -= 1
            if reward is not None:
                group.total += reward
                group.rewards += 1
        self.learn(arm, phase, reward)

    def release(self, arm: int, phase: int, total: float, rewards: int) -> None:
        """Require the sum of a whole group, which was not released before."""
        group = self.groups[arm, phase]
        assert not group.released
        assert group.open == 0
        assert (group.total, group.rewards) == (total, rewards)
        group.released = True
        self.releases += 1

    @rule()
    def restore(self) -> None:
        packed = json.loads(json.dumps(pack_state(self.state)))
        self.state = self.begin()
        fill_state(bl.policy("ucb1", arms=self.arms), self.state, packed, self.decisions)

    def checks(self) -> None:
        """All invariants."""
        self.has_no_fault()

    def teardown(self) -> None:
        """Continue at random; then require further releases once all rewards have come."""
        if not hasattr(self, "state"):
            return
        for _ in range(20):
            self.ask(self.luck.integers(1, 15))
            self.tell(self.luck.integers(1, 15), self.pick((0.0, 0.0, 0.3, 1.0)))
            self.checks()
        self.restore()
        self.tell(len(self.open), 0.0)
        before, last = self.releases, self.decisions + 400
        while self.releases < before + 8 and self.decisions < last and not self.is_over():
            self.ask(1)
            self.tell(1, 0.0)
        self.checks()
        assert self.releases >= before + 8 or self.is_over()

    @invariant()
    def has_no_fault(self) -> None:
        require_invariants(bl.policy("ucb1", arms=self.arms), self.state, self.decisions)


def generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.SFC64(seed))


def require_ranges(state: Any, decisions: int, ranges: dict[str, tuple[float, float]]) -> None:
    """Require that each field may hold both ends of its range, and nothing just beyond."""
    for name, (low, high) in ranges.items():
        values, fault = getattr(state, name).reshape(-1), f"{name} holds a number out of its range"
        before = values[0]
        for value in (low, high):
            values[0] = value
            assert fault not in state.faults(decisions), (name, value)
        for value in (low - 1, high + 1) if np.isfinite(high) else (low - 1,):
            values[0] = value
            assert fault in state.faults(decisions), (name, value)
        values[0] = before


class Draws:
    """A generator whose next uniform draws are given."""

    def __init__(self, *draws: float) -> None:
        self.draws = list(draws)

    def random(self) -> float:
        return self.draws.pop(0)


def require_exact_chances(
    state: Any, choose: Callable[[Any, Draws], Any]
) -> tuple[list[Any], dict[int, float]]:
    """Require that the recorded propensity of each arm is its share of a grid of two draws.

    Args:
        state: a frame's state; it is not changed.
        choose: makes a decision on a copy of it and returns an arm.

    Returns:
        The copies after each decision, and the share of each arm.
    """
    copies, arms, chances = [], [], []
    for first in range(60):
        for second in range(12):
            copy = deepcopy(state)
            arms.append(int(choose(copy, Draws((first + 0.5) / 60, (second + 0.5) / 12))))
            chances.append(copy.last_chance)
            copies.append(copy)
    shares = {arm: arms.count(arm) / len(arms) for arm in set(arms)}
    assert chances == pytest.approx([shares[arm] for arm in arms])
    return copies, shares


def shapes(state: Any) -> dict[str, tuple[int, ...]]:
    """The shape of each array of a state."""
    arrays = {name: getattr(state, name) for name in state._fields}
    return {name: value.shape for name, value in arrays.items() if isinstance(value, np.ndarray)}
