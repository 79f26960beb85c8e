"""Decisions and their ids: the open ones, how the latest ones were closed, and their counts."""

import re
import secrets
from dataclasses import dataclass
from typing import Any, NamedTuple

from balaclava._core.number_format import counted
from balaclava.errors import DecisionError

HAS_REWARD, WAS_CANCELLED, WAS_GIVEN_UP = "told", "cancelled", "given up"
# Closed decisions whose ending an error message can name; a save holds as many.
REMEMBERED_DECISIONS = 1_000
MOST_ORIGINS = 100  # earlier names of a restored agent; a save holds as many
_ID = re.compile(r"([0-9a-f]{32})-([1-9][0-9]{0,18})")

_ENDINGS = {
    HAS_REWARD: "has its reward already; each is told once",
    WAS_CANCELLED: "was cancelled; its reward no longer counts",
    WAS_GIVEN_UP: "was given up after the agent's patience; its reward no longer counts. "
    "Where rewards come so late, make the next agent with a longer patience",
}


class Decision(NamedTuple):
    """An arm to play, with an id for its reward."""

    id: str  # unique among all agents: 32 characters of the agent, and the decision's number
    arm: int
    phase: int = 0  # the batch or epoch it belongs to; 0 without any, -1 if nothing is learned
    label: str = ""  # the name of the arm; its number if arms have no names
    propensity: float | None = None  # the arm's chance given public values; None if not public


class OpenDecision(NamedTuple):
    """An open decision as the agent keeps it."""

    id: str
    round: int
    arm: int
    phase: int


def new_name() -> str:
    """128 random bits that start an agent's ids."""
    return secrets.token_hex(16)


def id_parts(text: Any) -> tuple[str, int] | None:
    """The agent's name and the round in an id; None if it is not an id."""
    match = _ID.fullmatch(text) if isinstance(text, str) else None
    return (match[1], int(match[2])) if match else None


class DecisionBook:
    """The decisions of one agent.

    Ids begin with the agent's name. A restored agent has a new name, so it refuses decisions that
    were made after the save and lost in a crash. `origins` are its earlier names, each with the
    last round before its save.
    """

    def __init__(self) -> None:
        self.name = new_name()
        self.origins: dict[str, int] = {}
        self.clock = 0
        self.open: dict[str, OpenDecision] = {}  # in the order of decisions
        self.closed: dict[str, str] = {}  # the last ones, and how they were closed
        self.finished = False  # no further decision may be made

    def rename(self) -> None:
        """Continue under a new name."""
        self.origins[self.name] = self.clock
        for name in list(self.origins)[:-MOST_ORIGINS]:
            del self.origins[name]
        self.name = new_name()

    def enter(self, arm: int, phase: int) -> OpenDecision:
        self.clock += 1
        entry = OpenDecision(f"{self.name}-{self.clock}", self.clock, arm, phase)
        self.open[entry.id] = entry
        return entry

    def open_of(self, arm: int) -> int:
        """The number of open decisions of an arm."""
        return sum(entry.arm == arm for entry in self.open.values())

    def close(self, entry: OpenDecision, how: str | None) -> None:
        """Close a decision, and remember how for a while."""
        del self.open[entry.id]
        if how is not None:
            self.closed[entry.id] = how
            while len(self.closed) > REMEMBERED_DECISIONS:
                del self.closed[next(iter(self.closed))]

    @property
    def oldest(self) -> OpenDecision | None:
        return next(iter(self.open.values()), None)

    def require_none_open(self) -> None:
        """Refuse to end while the reward of a decision that learns may still come."""
        waiting = sum(entry.phase >= 0 for entry in self.open.values())
        if waiting:
            raise DecisionError(
                f"{waiting:,} of {self.clock:,} decisions are open, and their rewards would never "
                "count; tell them or cancel decisions first, or finish with give_up_open=True"
            )

    def find(self, decision: Any, *, window: bool = False) -> OpenDecision:
        """Find an open decision, or raise an error that says why it is not open."""
        identity = decision.id if isinstance(decision, Decision) else decision
        entry = self.open.get(identity) if isinstance(identity, str) else None
        if entry is None:
            raise DecisionError(self._why_not(identity, window))
        if isinstance(decision, Decision) and (decision.arm, decision.phase) != entry[2:]:
            # The other arm or phase may be a reward in the wrong place: it is not repeated.
            raise DecisionError(
                f"decision {identity} was for arm {entry.arm} in phase {entry.phase}, but this one "
                "has another arm or phase; give what ask() returned"
            )
        return entry

    def round_of(self, decision: Any) -> int | None:
        """The round of a decision of this agent, open or not; None if it is not this agent's."""
        parts = id_parts(decision.id if isinstance(decision, Decision) else decision)
        if parts is None:
            return None
        name, number = parts
        last = self.clock if name == self.name else self.origins.get(name, 0)
        return number if number <= last else None

    def _why_not(self, identity: Any, window: bool) -> str:
        parts = id_parts(identity)
        if parts is None:
            # It may be a reward in the wrong place: the message does not repeat it.
            return (
                f"a value of type {type(identity).__name__} is not a decision; give what ask() "
                "returned, or its id"
            )
        name, number = parts
        if name not in (self.name, *self.origins):
            return (
                f"decision {identity} belongs to another agent; give it to the agent that made it"
            )
        if name == self.name and number > self.clock:
            return f"decision {identity} was never made; this agent has made {self.clock}"
        if name != self.name and number > self.origins[name]:
            return (
                f"decision {identity} was made after the save that this agent was restored from; "
                "its reward cannot count"
            )
        if window:
            return f"the window of decision {identity} has ended; rewards count until then"
        ending = self.closed.get(identity)
        if ending is not None:
            return f"decision {identity} {_ENDINGS[ending]}"
        return (
            f"decision {identity} is closed: it has its reward, was cancelled or was given up, too "
            "long ago for the agent to know which"
        )


@dataclass(frozen=True)
class Status:
    """Counts of an agent's decisions, for its operator.

    With `settle="arrival"` they count rewards that came, without noise: if only purchases are
    told, `rewards` is the number of buyers. With `settle="window"` nothing depends on when or
    whether a reward came: `rewards`, `cancelled` and `given_up` are None, `open` counts windows
    that have not ended, and `closed` those that have.
    """

    decisions: int
    rewards: int | None
    open: int
    cancelled: int | None
    given_up: int | None
    closed: int | None
    unlearned: int  # decisions that the policy does not learn from
    oldest_open: str | None  # the id of the oldest open decision
    oldest_wait: int  # further decisions since
    releases: int | None  # None for policies that release decisions only
    awaited: str  # the next event, in words
    # Arms whose releases show that their means changed; None if the policy cannot tell.
    changed: tuple[str, ...] | None = None
    restarts: int | None = None  # with memory="detect": times that everything was forgotten

    def __str__(self) -> str:
        parts = [counted(self.decisions, "decision")]
        if self.closed is None:
            parts += [counted(self.rewards or 0, "reward"), f"{self.given_up} given up"]
            if self.cancelled:
                parts.append(f"{self.cancelled} cancelled")
        else:
            parts.append(f"{counted(self.closed, 'window')} closed")
        parts.append(f"{self.open} open")
        if self.unlearned:
            parts.append(f"{self.unlearned} not learned from")
        if self.releases is not None:
            parts.append(f"{counted(self.releases, 'release')} so far")
        if self.restarts:
            parts.append(counted(self.restarts, "restart"))
        if self.changed:
            parts.append(f"the mean of {', '.join(self.changed)} changed")
        return f"{', '.join(parts)}; {self.awaited}."
