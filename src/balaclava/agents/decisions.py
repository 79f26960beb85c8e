"""Decisions and their ids: which are open, and how the last ones were closed."""

from __future__ import annotations

import re
import secrets
from typing import Any, NamedTuple

from balaclava.errors import DecisionError

HAS_REWARD, WAS_CANCELLED, WAS_GIVEN_UP = "told", "cancelled", "given up"
REMEMBERED_DECISIONS = 1_000  # closed decisions of which an agent knows how they were closed
MOST_ORIGINS = 100
_ID = re.compile(r"([0-9a-f]{32})-([1-9][0-9]{0,18})")

_ENDINGS = {
    HAS_REWARD: "has its reward already; each is told once",
    WAS_CANCELLED: "was cancelled; its reward cannot count any more",
    WAS_GIVEN_UP: (
        "was given up, as it had waited for longer than the agent's patience; its reward cannot "
        "count any more"
    ),
}


class Decision(NamedTuple):
    """One arm, handed out once.

    `id` is a text that no other agent gives out: 32 characters of the agent and the number of the
    decision. `label` is the name of the arm, its number where arms have no names. `propensity` is
    the chance that the arm had, given what was public; None where it is not known or not public.
    """

    id: str
    arm: int
    phase: int = 0
    label: str = ""
    propensity: float | None = None


class OpenDecision(NamedTuple):
    """An open decision as the agent keeps it."""

    id: str
    round: int
    arm: int
    phase: int


def new_name() -> str:
    """128 random bits, from which an agent's ids are made."""
    return secrets.token_hex(16)


def id_parts(text: Any) -> tuple[str, int] | None:
    """The agent's name and the round in an id; None for anything else."""
    match = _ID.fullmatch(text) if isinstance(text, str) else None
    return (match[1], int(match[2])) if match else None


class DecisionBook:
    """The decisions of one agent.

    Ids begin with the agent's name. A restored agent has a name of its own, so that decisions made
    after the save and lost in a crash are not taken for its own; `origins` are the names it had
    before, each with the last round that it knows of.
    """

    def __init__(self) -> None:
        self.name = new_name()
        self.origins: dict[str, int] = {}
        self.clock = 0
        self.open: dict[str, OpenDecision] = {}  # in the order of decisions
        self.closed: dict[str, str] = {}  # the last ones, and how they were closed

    def rename(self) -> None:
        """Go on under a new name."""
        self.origins[self.name] = self.clock
        for name in list(self.origins)[:-MOST_ORIGINS]:
            del self.origins[name]
        self.name = new_name()

    def enter(self, arm: int, phase: int) -> OpenDecision:
        """The next decision."""
        self.clock += 1
        entry = OpenDecision(f"{self.name}-{self.clock}", self.clock, arm, phase)
        self.open[entry.id] = entry
        return entry

    def close(self, entry: OpenDecision, how: str | None) -> None:
        """Its reward came, or will not count; `how` is remembered for a while."""
        del self.open[entry.id]
        if how is not None:
            self.closed[entry.id] = how
            while len(self.closed) > REMEMBERED_DECISIONS:
                del self.closed[next(iter(self.closed))]

    @property
    def oldest(self) -> OpenDecision | None:
        """The open decision that has waited longest."""
        return next(iter(self.open.values()), None)

    def find(self, decision: Any, *, window: bool = False) -> OpenDecision:
        """The open decision that is meant, or an error that says why there is none."""
        identity = decision.id if isinstance(decision, Decision) else decision
        entry = self.open.get(identity) if isinstance(identity, str) else None
        if entry is None:
            raise DecisionError(self._why_not(identity, window))
        if isinstance(decision, Decision) and (decision.arm, decision.phase) != entry[2:]:
            raise DecisionError(
                f"decision {identity} was for arm {entry.arm} in phase {entry.phase}, not for "
                f"arm {decision.arm} in phase {decision.phase}; give what ask() returned"
            )
        return entry

    def round_of(self, decision: Any) -> int | None:
        """The round of a decision of this agent, open or not; None for anything else."""
        parts = id_parts(decision.id if isinstance(decision, Decision) else decision)
        if parts is None:
            return None
        name, number = parts
        last = self.clock if name == self.name else self.origins.get(name, 0)
        return number if number <= last else None

    def _why_not(self, identity: Any, window: bool) -> str:
        parts = id_parts(identity)
        if parts is None:
            # It may be a reward, given in the wrong place: it is not repeated.
            return (
                f"a value of type {type(identity).__name__} that is no decision's id was given in "
                "place of a decision; give what ask() returned, or its id"
            )
        name, number = parts
        if name not in (self.name, *self.origins):
            return f"decision {identity} is of another agent; give it to the agent that made it"
        if name == self.name and number > self.clock:
            return f"decision {identity} was never made; this agent has made {self.clock}"
        if name != self.name and number > self.origins[name]:
            return (
                f"decision {identity} was made after the save from which this agent was restored, "
                "so its reward cannot count"
            )
        if window:
            return f"the window of decision {identity} has ended; rewards count until then"
        ending = self.closed.get(identity)
        if ending is not None:
            return f"decision {identity} {_ENDINGS[ending]}"
        return (
            f"decision {identity} is closed: it has its reward, was cancelled or was given up, and "
            "that was too long ago for the agent to know which"
        )
