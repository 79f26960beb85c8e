"""Delivers rewards to the policy: on arrival, or at the end of each decision's window.

Arrival.
    A reward counts when it comes. A decision is given up after its timeout, the patience. So
    arrivals determine when the policy learns.

Window.
    Every decision has a window: the next `patience` decisions. At its end, before the following
    decision, the policy learns the reward that came in time, or `missing`. To the policy this is a
    fixed delay: one number a decision, in the order of decisions, at rounds known in advance. When
    and whether a reward came changes that number and nothing else. An observer of the decisions
    learns no more about the arrival than about the reward: the guarantee covers both. The agent
    must not display more, so nothing here counts rewards.
"""

import warnings
from collections.abc import Callable
from typing import Any

from balaclava.agents import decisions
from balaclava.agents.policy_runner import Observation
from balaclava.agents.saving import DamageError, checked_list, exact_keys, whole_number
from balaclava.errors import DecisionError, SilenceWarning
from balaclava.frames.patience import (
    ENDLESS,
    ESTIMATED,
    LEAST_REACH,
    LEAST_REWARDS,
    LONGEST_LATE_WAIT,
    RISE,
    begin_patience,
    longest_wait,
    note_wait,
)

SILENT_DECISIONS = 1_000  # consecutive decisions without a reward that cause a warning: a guess


class ArrivalDelivery:
    """Delivers rewards as they come, and gives up decisions after their timeout."""

    window = False

    def __init__(
        self,
        book: decisions.DecisionBook,
        patience: int | None,
        learn: Callable[[decisions.OpenDecision, Observation], None],
        forget: Callable[[decisions.OpenDecision], None],
    ) -> None:
        self._book, self._learn, self._forget = book, learn, forget
        self._rule = begin_patience(ESTIMATED if patience is None else patience)
        self.rewards = self.cancelled = self.given_up = 0
        self._late: dict[int, None] = {}  # rounds of decisions that were given up lately
        self._silent = 0

    def before_decision(self) -> None:
        """Give up decisions after their timeout; warn if no rewards come."""
        book = self._book
        while (oldest := book.oldest) and book.clock - oldest.round >= longest_wait(self._rule):
            self._give_up(oldest)
        while self._late and book.clock - next(iter(self._late)) >= LONGEST_LATE_WAIT:
            del self._late[next(iter(self._late))]
        self._silent += 1
        if self._silent == SILENT_DECISIONS + 1:
            warnings.warn(
                f"no reward came and no decision was cancelled in the last {SILENT_DECISIONS:,} "
                "decisions; tell rewards as they come, cancel decisions whose reward will not "
                "come, or make the agent with a patience, after which it gives decisions up",
                SilenceWarning,
                stacklevel=3,
            )

    def find(self, decision: Any) -> decisions.OpenDecision:
        return self._book.find(decision)

    def take(self, decision: Any, observation: Observation) -> None:
        try:
            entry = self.find(decision)
        except DecisionError:
            self._note_lateness(decision)
            raise
        # Close first: if learning is interrupted, the reward is lost but never counts twice.
        self._book.close(entry, decisions.HAS_REWARD)
        self._rule = note_wait(self._rule, self._book.clock - entry.round)
        self.rewards += 1
        self._silent = 0
        self._learn(entry, observation)

    def _note_lateness(self, decision: Any) -> None:
        """Count the wait of a reward that came after its timeout; the reward does not count."""
        made = self._book.round_of(decision)
        if made in self._late:
            del self._late[made]
            self._rule = note_wait(self._rule, self._book.clock - made)

    def cancel(self, decision: Any) -> None:
        entry = self.find(decision)
        self._book.close(entry, decisions.WAS_CANCELLED)
        self.cancelled += 1
        self._silent = 0
        self._forget(entry)

    def finish(self) -> None:
        """Give up all open decisions."""
        while (oldest := self._book.oldest) is not None:
            self._give_up(oldest)

    def _give_up(self, entry: decisions.OpenDecision) -> None:
        self._book.close(entry, decisions.WAS_GIVEN_UP)
        self.given_up += 1
        self._late[entry.round] = None
        self._forget(entry)

    def awaited(self) -> str:
        oldest, wait = self._book.oldest, longest_wait(self._rule)
        if oldest is None:
            return "nothing is awaited"
        if wait >= ENDLESS:
            return f"rewards are awaited; no decision is given up before {LEAST_REWARDS} have come"
        remaining = max(wait - (self._book.clock - oldest.round) + 1, 1)
        return f"rewards are awaited; the oldest is given up with decision {remaining} from now"

    def save(self) -> dict[str, Any]:
        return {
            "came": self._rule.rewards,
            "reach": self._rule.reach,
            "late": list(self._late),
            "rewards": self.rewards,
            "cancelled": self.cancelled,
            "given_up": self.given_up,
        }

    def load(self, saved: Any) -> None:
        clock = self._book.clock
        exact_keys(saved, "came", "reach", "late", "rewards", "cancelled", "given_up")
        numbers = {
            name: whole_number(saved[name], 0, clock)
            for name in ("came", "rewards", "cancelled", "given_up")
        }
        self.rewards, self.cancelled = numbers["rewards"], numbers["cancelled"]
        self.given_up = numbers["given_up"]
        closed = self.rewards + self.cancelled + self.given_up
        if closed + len(self._book.open) != clock:
            raise DamageError("the counts of decisions do not add up")
        if not 0 <= numbers["came"] - self.rewards <= self.given_up:
            raise DamageError("the counts of waits do not add up")
        if len(self._book.closed) != min(closed, decisions.REMEMBERED_DECISIONS):
            raise DamageError("the number of remembered endings is wrong")
        self._load_waits(numbers["came"], saved["reach"], checked_list(saved["late"]))

    def _load_waits(self, waits: int, reach: Any, late: list[Any]) -> None:
        clock = self._book.clock
        rounds = [whole_number(made, max(1, clock - LONGEST_LATE_WAIT), clock) for made in late]
        is_open = {entry.round for entry in self._book.open.values()}
        silent = self.given_up - (waits - self.rewards)  # given up, without a late reward
        if rounds != sorted(set(rounds)) or not is_open.isdisjoint(rounds) or len(rounds) > silent:
            raise DamageError("a late round was not given up")
        if clock <= LONGEST_LATE_WAIT and len(rounds) < silent:
            raise DamageError("a late round is missing")
        if type(reach) is not float or not LEAST_REACH <= reach <= max(LEAST_REACH, RISE * clock):
            raise DamageError("a wait is out of its range")
        self._rule = self._rule._replace(rewards=waits, reach=reach)
        self._late = dict.fromkeys(rounds)


class WindowDelivery:
    """Delivers each reward, or `missing`, at the end of its decision's window."""

    window = True
    rewards = cancelled = given_up = None  # never counted, see the module

    def __init__(
        self,
        book: decisions.DecisionBook,
        length: int,
        missing: Observation,
        learn: Callable[[decisions.OpenDecision, Observation], None],
        checked: Callable[[Observation], Observation],
    ) -> None:
        self._book, self._length, self._missing = book, length, missing
        self._learn, self._checked = learn, checked
        self._held: dict[str, Observation | None] = {}  # by id; None: cancelled

    def before_decision(self) -> None:
        """Deliver the rewards of the windows that end now."""
        self._end_windows(self._length)

    def finish(self) -> None:
        """End all windows, in the order of decisions."""
        self._end_windows(0)

    def _end_windows(self, age: int) -> None:
        """End the windows of decisions that are `age` decisions old."""
        book = self._book
        while (oldest := book.oldest) and book.clock - oldest.round >= age:
            book.close(oldest, None)
            self._learn(oldest, self._held.pop(oldest.id, None) or self._missing)

    def find(self, decision: Any) -> decisions.OpenDecision:
        """Find a decision whose window is open, with or without a reward."""
        return self._book.find(decision, window=True)

    def take(self, decision: Any, observation: Observation | None) -> None:
        """Keep a reward, or with None a cancellation, until the window ends."""
        entry = self.find(decision)
        if entry.id in self._held:
            # Only the caller who tells rewards sees this, and knows it already.
            how = "was cancelled" if self._held[entry.id] is None else "has its reward already"
            raise DecisionError(f"decision {entry.id} {how}; each is told or cancelled once")
        self._held[entry.id] = observation

    def cancel(self, decision: Any) -> None:
        """Let `missing` count when the window ends."""
        self.take(decision, None)

    def awaited(self) -> str:
        oldest = self._book.oldest
        if oldest is None:
            return "no window is open"
        remaining = self._length - (self._book.clock - oldest.round) + 1
        return f"the next window ends with decision {remaining} from now"

    def save(self) -> dict[str, Any]:
        return {
            "held": [
                [key, *(observation or (None, None))] for key, observation in self._held.items()
            ]
        }

    def load(self, saved: Any) -> None:
        book = self._book
        for key, kind, value in checked_list(exact_keys(saved, "held")["held"]):
            if key not in book.open or key in self._held:
                raise DamageError("a reward without an open decision")
            self._held[key] = None
            if kind is not None or value is not None:
                self._held[key] = self._checked(Observation(kind, value))
        rounds = [entry.round for entry in book.open.values()]
        first = book.clock + 1 if book.finished else max(1, book.clock - self._length)
        if rounds != list(range(first, book.clock + 1)):
            raise DamageError("an open window should have ended")
        if book.closed:
            raise DamageError("endings are remembered, which windows do not do")
