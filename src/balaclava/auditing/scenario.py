"""Scenarios: the sequence of events of one run.

A scenario has decisions, rewards that arrive at once, late or never, cancelled decisions, changing
contexts, saves and restores. It may begin in a state that compiled play has reached, with earlier
decisions whose rewards are still pending. Interpreted and compiled runs follow the same scenario.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from balaclava.errors import ContextError, RewardError
from balaclava.policies.base import Policy

# Different contexts in a scenario; then they repeat, as checking each takes time.
_DISTINCT_CONTEXTS = 400
# If decisions are cancelled, shares of them by block of rounds, beside the scenario's own: some
# batches lose nothing, others nearly all. Guesses.
_CANCELLED_SHARES, _CANCELLED_BLOCK = (0.0, 0.5, 0.95), 16


class Neighbour(NamedTuple):
    """The neighbouring reward stream with another reward in one slot of a scenario."""

    slot: int
    reward: float


@dataclass
class Scenario:
    """The events by round.

    Each decision has a slot. The first slots are the decisions of the scenario by round, the others
    earlier decisions whose rewards are pending when it begins.
    """

    times: np.ndarray  # [slots]: the round number that the policy sees
    rewards: np.ndarray  # [slots, arms]
    contexts: Any  # [rounds, ...], or None
    event_offsets: np.ndarray  # [rounds + 1]: where each round's events begin
    # slot + 1: its reward is told after that round's choice; -(slot + 1): it is cancelled
    event_items: np.ndarray
    initial_state: Any = None  # None: the policy's own beginning
    pending: np.ndarray = field(default_factory=lambda: np.zeros((0, 2), np.int64))  # arm, phase
    restore_rounds: frozenset[int] = frozenset()  # rounds after which it is saved and restored
    conditions: tuple[str, ...] = ()  # in which it differs from a plain scenario
    ends: bool = False  # whether the trial is finished after the last round

    @property
    def rounds(self) -> int:
        """Decisions of the scenario itself."""
        return int(self.event_offsets.size) - 1

    def context(self, i: int) -> Any:
        return None if self.contexts is None else self.contexts[i]

    def events(self, i: int) -> list[int]:
        """What is told and cancelled after the i-th choice."""
        first, end = self.event_offsets[i : i + 2]
        events: list[int] = self.event_items[first:end].tolist()
        return events

    def unanswered(self) -> list[int]:
        """The slots of decisions that are neither told nor cancelled."""
        answered = set((np.abs(self.event_items) - 1).tolist())
        return [slot for slot in range(len(self.times)) if slot not in answered]

    def truncate(self, rounds: int) -> None:
        """Drop all rounds after the first `rounds`."""
        slots = [slot for slot in range(len(self.times)) if slot < rounds or slot >= self.rounds]
        new_slot = {slot: number for number, slot in enumerate(slots)}
        events = [
            [
                (new_slot[abs(item) - 1] + 1) * (1 if item > 0 else -1)
                for item in self.events(i)
                if abs(item) - 1 in new_slot
            ]
            for i in range(rounds)
        ]
        self.times, self.rewards = self.times[slots], self.rewards[slots]
        self.event_offsets, self.event_items = event_arrays(events)
        self.contexts = None if self.contexts is None else self.contexts[:rounds]


def event_arrays(events: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Offsets and items of a list of events for each round."""
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in events])]).astype(np.int64)
    return offsets, np.array([item for row in events for item in row], np.int64)


def plain_scenario(policy: Policy, rewards: np.ndarray, rounds_before: int = 0) -> Scenario:
    """A scenario with prompt rewards, in which every context is the practice context."""
    rounds = len(rewards)
    return Scenario(
        times=np.arange(rounds_before + 1, rounds_before + rounds + 1),
        rewards=np.ascontiguousarray(rewards),
        contexts=scenario_contexts(policy, rounds, None),
        event_offsets=np.arange(rounds + 1),
        event_items=np.arange(1, rounds + 1),
    )


def delayed_events(
    rounds: int, delay: int, cancelled: float, rng: np.random.Generator, pending: int = 0
) -> list[list[int]]:
    """Events with rewards up to `delay` rounds late, in any order, and a share cancelled."""
    events: list[list[int]] = [[] for _ in range(rounds)]
    shares, own = (cancelled, cancelled, *_CANCELLED_SHARES), cancelled
    for slot in range(rounds):
        if own and slot % _CANCELLED_BLOCK == 0:
            cancelled = float(rng.choice(shares))
        due = slot + (int(rng.integers(0, delay + 1)) if delay else 0)
        if due < rounds:
            events[due].append(-(slot + 1) if rng.random() < cancelled else slot + 1)
    for number in range(pending):
        due = int(rng.integers(0, max(rounds // 2, 1)))
        events[due].append(rounds + number + 1)
    for row in events:
        rng.shuffle(row)
    return events


def agent_accepts(policy: Policy, reward: float) -> bool:
    """Whether an agent passes a reward to the policy, which may have to clip it."""
    try:
        policy.checked_reward(reward)
    except RewardError:
        return False
    return True


def scenario_contexts(policy: Policy, rounds: int, rng: np.random.Generator | None) -> Any:
    """The practice context in every round or, with an rng, a different one in each."""
    practice = policy.practice_context
    if practice is None:
        return None
    practice = np.asarray(practice)
    if rng is None:
        return np.repeat(practice[None], rounds, axis=0)
    count = min(rounds, _DISTINCT_CONTEXTS)
    distinct = np.array([varied_context(policy, practice, rng) for _ in range(count)])
    return distinct[np.arange(rounds) % count]


def varied_context(policy: Policy, practice: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The practice context with rows and columns shuffled, or a mixture of two such contexts."""

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
