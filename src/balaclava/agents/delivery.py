"""When an agent hands rewards to its policy: as they come, or at the end of each window.

Arrival.
    A reward counts when it comes. A decision that has waited for longer than patience allows is
    given up. When the policy learns depends on when rewards come.

Window.
    Every decision has a window: the next `patience` decisions. When it ends, before the following
    decision is made, the policy learns the reward that came in time, or `missing`. To the policy
    this is a fixed delay: it learns one number of each decision, in the order of decisions, at
    rounds that are known beforehand. When and whether a reward came changes that number and
    nothing else, so that whoever sees the decisions learns no more about it than about the reward
    itself: the policy's guarantee covers both. What the agent shows of itself must keep to that,
    so nothing here counts rewards.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from balaclava.agents.decisions import (
    HAS_REWARD,
    REMEMBERED_DECISIONS,
    WAS_CANCELLED,
    WAS_GIVEN_UP,
    DecisionBook,
    OpenDecision,
)
from balaclava.agents.policy_runner import Observation
from balaclava.agents.saving import DamageError, checked_list, exact_keys, whole_number
from balaclava.errors import DecisionError, SilenceWarning
from balaclava.frames.patience import (
    ENDLESS,
    FOUND,
    LATE,
    LEAST_REACH,
    LEAST_REWARDS,
    RISE,
    begin_patience,
    longest_wait,
    note_wait,
)

SILENT_DECISIONS = 1_000  # decisions without any news, after which an agent warns


class ArrivalDelivery:
    """Rewards count when they come; a decision that waits too long is given up."""

    window = False

    def __init__(
        self,
        book: DecisionBook,
        patience: int | None,
        learn: Callable[[OpenDecision, Observation], None],
        forget: Callable[[OpenDecision], None],
    ) -> None:
        self._book, self._learn, self._forget = book, learn, forget
        self._rule = begin_patience(FOUND if patience is None else patience)
        self.rewards = self.cancelled = self.given_up = 0
        self._late: dict[int, None] = {}  # rounds of decisions that were given up not long ago
        self._silent = 0

    def before_decision(self) -> None:
        """Give up what has waited too long; warn if nothing was heard for long."""
        book = self._book
        while (oldest := book.oldest) and book.clock - oldest.round >= longest_wait(self._rule):
            book.close(oldest, WAS_GIVEN_UP)
            self.given_up += 1
            self._late[oldest.round] = None
            self._forget(oldest)
        while self._late and book.clock - next(iter(self._late)) >= LATE:
            del self._late[next(iter(self._late))]
        self._silent += 1
        if self._silent == SILENT_DECISIONS + 1:
            warnings.warn(
                f"the last {SILENT_DECISIONS:,} decisions brought no reward, none was cancelled; "
                "tell rewards as they come, call cancel(decision) where none will, or give the "
                "agent a patience after which it gives decisions up",
                SilenceWarning,
                stacklevel=3,
            )

    def find(self, decision: Any) -> OpenDecision:
        """The open decision that is meant."""
        return self._book.find(decision)

    def take(self, decision: Any, observation: Observation) -> None:
        """A reward came."""
        try:
            entry = self.find(decision)
        except DecisionError:
            self._note_lateness(decision)
            raise
        # First: if learning is interrupted, the reward may be lost but never counts twice.
        self._book.close(entry, HAS_REWARD)
        self._rule = note_wait(self._rule, self._book.clock - entry.round)
        self.rewards += 1
        self._silent = 0
        self._learn(entry, observation)

    def _note_lateness(self, decision: Any) -> None:
        """A reward came after it was given up: how late counts once, the reward does not."""
        made = self._book.round_of(decision)
        if made in self._late:
            del self._late[made]
            self._rule = note_wait(self._rule, self._book.clock - made)

    def cancel(self, decision: Any) -> OpenDecision:
        """The reward will never come."""
        entry = self.find(decision)
        self._book.close(entry, WAS_CANCELLED)
        self.cancelled += 1
        self._silent = 0
        self._forget(entry)
        return entry

    def awaited(self) -> str:
        """What comes next, in words."""
        oldest, wait = self._book.oldest, longest_wait(self._rule)
        if oldest is None:
            return "nothing is awaited"
        if wait >= ENDLESS:
            return f"rewards are awaited; none is given up before {LEAST_REWARDS} have come"
        remaining = wait - (self._book.clock - oldest.round) + 1
        return f"rewards are awaited; the oldest is given up with decision {remaining} from now"

    def save(self) -> dict[str, Any]:
        """Its part of a saved agent."""
        return {
            "came": self._rule.came,
            "reach": self._rule.reach,
            "late": list(self._late),
            "rewards": self.rewards,
            "cancelled": self.cancelled,
            "given_up": self.given_up,
        }

    def load(self, saved: Any) -> None:
        """Go on from that part."""
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
            raise DamageError("decisions that do not add up")
        if not 0 <= numbers["came"] - self.rewards <= self.given_up:
            raise DamageError("waits that do not add up")
        if len(self._book.closed) != min(closed, REMEMBERED_DECISIONS):
            raise DamageError("more or fewer endings than are remembered")
        self._load_waits(numbers["came"], saved["reach"], checked_list(saved["late"]))

    def _load_waits(self, came: int, reach: Any, late: list[Any]) -> None:
        clock = self._book.clock
        rounds = [whole_number(made, max(1, clock - LATE), clock) for made in late]
        is_open = {entry.round for entry in self._book.open.values()}
        silent = self.given_up - (came - self.rewards)  # given up, and no reward came later
        if rounds != sorted(set(rounds)) or not is_open.isdisjoint(rounds) or len(rounds) > silent:
            raise DamageError("rounds that were not given up")
        if clock <= LATE and len(rounds) < silent:
            raise DamageError("rounds that were given up and are not there")
        if type(reach) is not float or not LEAST_REACH <= reach <= max(LEAST_REACH, RISE * clock):
            raise DamageError("a wait out of its range")
        self._rule = self._rule._replace(came=came, reach=reach)
        self._late = dict.fromkeys(rounds)


class WindowDelivery:
    """Each decision's reward, or what counts in its place, is handed over at its window's end."""

    window = True
    rewards = cancelled = given_up = None  # never counted: see above

    def __init__(
        self,
        book: DecisionBook,
        length: int,
        missing: Observation,
        learn: Callable[[OpenDecision, Observation], None],
        checked: Callable[[Observation], Observation],
    ) -> None:
        self._book, self._length, self._missing = book, length, missing
        self._learn, self._checked = learn, checked
        self._held: dict[str, Observation | None] = {}  # what came so far; None: cancelled

    def before_decision(self) -> None:
        """Hand over what belongs to the windows that end now."""
        book = self._book
        while (oldest := book.oldest) and book.clock - oldest.round >= self._length:
            book.close(oldest, None)
            self._learn(oldest, self._held.pop(oldest.id, None) or self._missing)

    def find(self, decision: Any) -> OpenDecision:
        """The decision that is meant, whether or not its reward came: its window is open."""
        return self._book.find(decision, window=True)

    def take(self, decision: Any, observation: Observation | None) -> None:
        """A reward came, or, with None, will not."""
        entry = self.find(decision)
        if entry.id in self._held:
            # Only who tells rewards meets this, and knows it: the agent shows it to nobody else.
            how = "was cancelled" if self._held[entry.id] is None else "has its reward already"
            raise DecisionError(f"decision {entry.id} {how}; each is told or cancelled once")
        self._held[entry.id] = observation

    def cancel(self, decision: Any) -> None:
        """Counts as missing when the window ends."""
        self.take(decision, None)

    def awaited(self) -> str:
        """What comes next, in words."""
        oldest = self._book.oldest
        if oldest is None:
            return "no window is open"
        remaining = self._length - (self._book.clock - oldest.round) + 1
        return f"the next window ends with decision {remaining} from now"

    def save(self) -> dict[str, Any]:
        """Its part of a saved agent."""
        return {
            "held": [
                [key, *(observation or (None, None))] for key, observation in self._held.items()
            ]
        }

    def load(self, saved: Any) -> None:
        """Go on from that part."""
        book = self._book
        for key, kind, value in checked_list(exact_keys(saved, "held")["held"]):
            if key not in book.open or key in self._held:
                raise DamageError("a reward of no decision")
            self._held[key] = None
            if kind is not None or value is not None:
                self._held[key] = self._checked(Observation(kind, value))
        rounds = [entry.round for entry in book.open.values()]
        if rounds != list(range(max(1, book.clock - self._length), book.clock + 1)):
            raise DamageError("windows that should have ended")
        if book.closed:
            raise DamageError("endings, which windows do not have")
