"""Rewards in the order of decisions, for estimates that hold for every order of arrival."""

from collections import deque
from typing import Any

from balaclava.agents.decisions import OpenDecision
from balaclava.agents.saving import (
    DamageError,
    checked_list,
    exact_keys,
    finite_number,
    whole_number,
)


class DecisionOrder:
    """A tally of the arms' rewards in the order of decisions.

    A reward counts once every earlier decision is closed; a lost one is left out. The policy learns
    each reward when it comes: this is for `Estimation.from_tally` alone.
    """

    def __init__(self, arms: int) -> None:
        self.pulls, self.sums = [0] * arms, [0.0] * arms
        self._queue: deque[tuple[int, int]] = deque()  # round and arm of those that do not count
        self._closed: dict[int, float | None] = {}  # of these, by round; None: lost

    def add_arm(self) -> None:
        self.pulls.append(0)
        self.sums.append(0.0)

    def enter(self, entry: OpenDecision) -> None:
        self._queue.append((entry.round, entry.arm))

    def close(self, entry: OpenDecision, value: float | None) -> None:
        self._closed[entry.round] = None if entry.phase < 0 else value
        while self._queue and self._queue[0][0] in self._closed:
            round, arm = self._queue.popleft()
            value = self._closed.pop(round)
            if value is not None:
                self.pulls[arm] += 1
                self.sums[arm] += value

    def save(self) -> dict[str, Any]:
        early = [[*each, self._closed[each[0]]] for each in self._queue if each[0] in self._closed]
        return {"pulls": list(self.pulls), "sums": list(self.sums), "early": early}

    def load(self, saved: Any, clock: int, entries: list[OpenDecision]) -> None:
        exact_keys(saved, "pulls", "sums", "early")
        arms = len(self.pulls)
        self.pulls = [whole_number(pulls, 0, clock) for pulls in checked_list(saved["pulls"])]
        self.sums = [finite_number(total) for total in checked_list(saved["sums"])]
        waiting = [(entry.round, entry.arm) for entry in entries]
        for round, arm, value in checked_list(saved["early"]):
            value = None if value is None else finite_number(value)
            self._closed[whole_number(round, 1, clock)] = value
            waiting.append((round, whole_number(arm, 0, arms - 1)))
        self._queue.extend(sorted(waiting))
        if (
            (len(self.pulls), len(self.sums)) != (arms, arms)
            or len({round for round, _ in waiting}) < len(waiting)
            or sum(self.pulls) + len(waiting) > clock
        ):
            raise DamageError("the order of decisions is not valid")
