"""Lives: what an agent goes through in one recorded run.

A life has decisions, rewards that come at once, late, very late or never, decisions that are given
up, changing contexts, saves and restores. It may begin far ahead, in a state that compiled play has
reached, with decisions from long ago whose rewards are still to come. Interpreted and compiled
games follow the same life.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from balaclava.errors import ContextError
from balaclava.policies.base import Policy

_ALIGNED = 64  # bytes
_CONTEXTS = 400  # different ones in a life; then they come again


class Neighbour(NamedTuple):
    """Another reward in one slot of a scenario."""

    slot: int
    reward: float


@dataclass
class Scenario:
    """What happens, round after round.

    Decisions have a slot each: those of this life by round, then those that were made before it
    and whose rewards are still to come.
    """

    times: np.ndarray  # [slots]: the round that a policy is told
    rewards: np.ndarray  # [slots, arms]
    contexts: Any  # [rounds, ...], or None
    offsets: np.ndarray  # [rounds + 1]: where each round's items begin
    items: np.ndarray  # slot + 1: told after that round's choice; -(slot + 1): given up
    start: Any = None  # the state in which it begins, or None for the beginning
    held: np.ndarray = field(default_factory=lambda: np.zeros((0, 2), np.int64))  # arm, phase
    restored: frozenset[int] = frozenset()  # rounds after which it is saved and restored
    features: tuple[str, ...] = ()  # what it has that a plain one has not

    @property
    def rounds(self) -> int:
        """Decisions of this life."""
        return int(self.offsets.size) - 1

    def context(self, i: int) -> Any:
        """That of the i-th round, from 0."""
        return None if self.contexts is None else self.contexts[i]

    def happenings(self, i: int) -> list[int]:
        """What is told and given up after the i-th choice."""
        happenings: list[int] = self.items[self.offsets[i] : self.offsets[i + 1]].tolist()
        return happenings

    def shortened(self, rounds: int) -> None:
        """Let it end earlier."""
        slots = [slot for slot in range(len(self.times)) if slot < rounds or slot >= self.rounds]
        numbers = {slot: number for number, slot in enumerate(slots)}
        events = [
            [item for item in self.happenings(i) if abs(item) - 1 in numbers] for i in range(rounds)
        ]
        events = [
            [(numbers[abs(item) - 1] + 1) * (1 if item > 0 else -1) for item in row]
            for row in events
        ]
        self.times, self.rewards = self.times[slots], self.rewards[slots]
        self.offsets, self.items = event_arrays(events)
        self.contexts = None if self.contexts is None else self.contexts[:rounds]


def event_arrays(events: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Offsets and items of a list for each round."""
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in events])]).astype(np.int64)
    return offsets, np.array([item for row in events for item in row], np.int64)


def plain_scenario(policy: Policy, rewards: np.ndarray, first: int = 0) -> Scenario:
    """Every reward comes at once, and every context is the practice one."""
    rounds = len(rewards)
    return Scenario(
        times=np.arange(first + 1, first + rounds + 1),
        rewards=np.ascontiguousarray(rewards),
        contexts=scenario_contexts(policy, rounds, None),
        offsets=np.arange(rounds + 1),
        items=np.arange(1, rounds + 1),
    )


def delayed_events(
    rounds: int, delay: int, lost: float, rng: np.random.Generator, held: int = 0
) -> list[list[int]]:
    """Rewards up to `delay` rounds late, in any order; a share is given up instead."""
    events: list[list[int]] = [[] for _ in range(rounds)]
    for slot in range(rounds):
        due = slot + (int(rng.integers(0, delay + 1)) if delay else 0)
        if due < rounds:
            events[due].append(-(slot + 1) if rng.random() < lost else slot + 1)
    for number in range(held):
        due = int(rng.integers(0, max(rounds // 2, 1)))
        events[due].append(rounds + number + 1)
    for row in events:
        rng.shuffle(row)
    return events


def scenario_contexts(policy: Policy, rounds: int, rng: np.random.Generator | None) -> Any:
    """The practice context in every round, or, with an rng, another one in each."""
    practice = policy.practice_context
    if practice is None:
        return None
    practice = np.asarray(practice)
    if rng is None:
        return np.repeat(practice[None], rounds, axis=0)
    different = [varied_context(policy, practice, rng) for _ in range(min(rounds, _CONTEXTS))]
    return np.array(different)[np.arange(rounds) % len(different)]


def varied_context(policy: Policy, practice: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The practice context with its rows and columns shuffled, or between two of these."""

    def shuffled() -> np.ndarray:
        result = practice
        for axis in range(practice.ndim):
            result = np.take(result, rng.permutation(practice.shape[axis]), axis=axis)
        return result

    share = rng.choice([0.0, 1.0, rng.random()])
    for _ in range(3):
        context = share * shuffled() + (1.0 - share) * shuffled()
        try:
            return np.asarray(policy.checked_context(context))
        except ContextError:
            continue
    return practice


def copy_state(state: Any) -> Any:
    """A state with arrays of its own."""
    return type(state)(
        *(part.copy() if isinstance(part, np.ndarray) else copy_state(part) for part in state)
    )


def pack_state(state: Any) -> tuple[Any, np.ndarray]:
    """A copy of a state whose arrays lie in one stretch of memory, and that memory.

    Then one copy of the memory puts the whole state back.
    """
    memory = np.zeros(_extent(state) // 8, np.uint64)  # by words: a copy is many times faster
    copy, _ = _laid(state, memory, 0)
    return copy, memory


def _extent(state: Any) -> int:
    if isinstance(state, np.ndarray):
        return -(-state.nbytes // _ALIGNED) * _ALIGNED
    return sum(map(_extent, state))


def _laid(state: Any, memory: np.ndarray, offset: int) -> tuple[Any, int]:
    if isinstance(state, np.ndarray):
        copy = np.ndarray(state.shape, state.dtype, memory.data, offset)
        copy[...] = state
        return copy, offset + _extent(state)
    parts = []
    for part in state:
        copy, offset = _laid(part, memory, offset)
        parts.append(copy)
    return type(state)(*parts), offset


def fingerprint(state: Any) -> bytes:
    """A digest of all arrays of a state or of parameters: a recorded game keeps many of them."""
    digest = hashlib.sha256()
    for array in arrays_of(state):
        digest.update(np.ascontiguousarray(array).data)
    return digest.digest()


def arrays_of(state: Any) -> Iterator[np.ndarray]:
    """Every array of a state or of parameters, in order."""
    if isinstance(state, np.ndarray):
        yield state
    elif isinstance(state, tuple):
        for part in state:
            yield from arrays_of(part)
