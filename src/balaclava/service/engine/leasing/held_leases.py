"""What a process knows of its leases, and an experiment as it decides by them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from balaclava.agents.policy_runner import Choice, PolicyRunner
from balaclava.service.engine.guardrails import Guardrails
from balaclava.service.engine.served_experiment import RUNNING, Counters, Offer, ServedExperiment

# A lease is not used in its last moments: its owner's clock may be ahead.
_MARGIN = 0.5  # seconds
_FIRST_LEASE = 2  # slots


class SlotRun(NamedTuple):
    """Slots of a batch whose rounds follow each other."""

    first: int  # round
    slots: int
    arm: int
    phase: int
    chance: float | None

    def cut(self, start: int, stop: int) -> SlotRun:
        """The slots from number `start` to number `stop` of the run, as far as it has them."""
        start, stop = min(max(start, 0), self.slots), min(max(stop, 0), self.slots)
        return self._replace(first=self.first + start, slots=max(stop - start, 0))


def cut_runs(runs: Sequence[SlotRun], start: int, stop: int) -> list[SlotRun]:
    """The slots from number `start` to number `stop` of a lease."""
    parts, before = [], 0
    for run in runs:
        part = run.cut(start - before, stop - before)
        before += run.slots
        if part.slots:
            parts.append(part)
    return parts


@dataclass
class HeldLease:
    """A lease of this process. The row in the database decides whether it still holds."""

    id: str
    runs: list[SlotRun]
    ends: float
    closes: float  # end of the window of its decisions
    used: int = 0
    stored: int = 0  # of these, in the database
    anonymous: int = 0
    others: dict[int, int] = field(default_factory=dict)
    changed: bool = False  # since the last commit

    @property
    def granted(self) -> int:
        return sum(run.slots for run in self.runs)

    def left(self, now: float) -> int:
        """Slots that can still be used."""
        return self.granted - self.used if now < self.ends - _MARGIN else 0

    def take(self) -> tuple[int, Choice]:
        """Use the next slot: its round, and the decision."""
        (run,) = cut_runs(self.runs, self.used, self.used + 1)
        self.used += 1
        return run.first, Choice(run.arm, run.phase, run.chance)


class LeasedExperiment(ServedExperiment):
    """An experiment that a process decides for without its row, by leases.

    It holds public facts as of the last grant. Changes of arms and of the state revoke all leases,
    so they are never older than the lease.
    """

    def __init__(self, experiment: ServedExperiment) -> None:
        # Not that of the base: the state of the policy stays with the row.
        self.id, self.version, self.state = experiment.id, experiment.version, RUNNING
        self.definition, self.policy = experiment.definition, experiment.policy
        self.arms, self.labels = list(experiment.arms), list(experiment.labels)
        self.settings, self.created = experiment.settings, experiment.created
        self.runner, self.guardrails = PolicyRunner(self.policy, None), Guardrails([], 0)
        self._retired, self._leader = set(experiment.retired), experiment.leader()
        self._cached_values = None
        self.leases: list[HeldLease] = []
        self.last_lease: HeldLease | None = None  # also when it is over
        self.begin(0.0)

    def begin(self, now: float) -> None:
        """Begin a transaction at a time, with counts of its own."""
        self.counters = Counters(time=now, decisions=[], learning=[])
        self.counters.decisions = [0] * len(self.arms)
        self.counters.learning = [0] * len(self.arms)
        self.next_due = self.next_cleanup = None
        self._began = now
        self.leases = [lease for lease in self.leases if lease.left(now)]

    def slots_left(self) -> int:
        """Slots that the transaction can use."""
        return sum(lease.left(self._began) for lease in self.leases)

    @property
    def retired(self) -> set[int]:
        return self._retired

    def leader(self, available: Sequence[str] | None = None) -> int:
        return self._leader

    def next_slot(self, offer: Offer) -> tuple[int, Choice]:
        return self._lease.take()

    def current_lease(self) -> HeldLease:
        """The lease whose slot is next, or else the last one."""
        return next((each for each in self.leases if each.left(self._began)), self.leases[-1])

    def decide(self, count: int, learning: int, *how: Any, **more: Any) -> list[dict[str, Any]]:
        """Decide by slots; each decision's window ends with those of its lease."""
        rows: list[dict[str, Any]] = []
        while True:
            lease = self.current_lease()
            some = min(learning, lease.left(self._began))
            last = learning == some
            if not (some or last):
                raise RuntimeError("a lease has too few slots")
            part = self._decide_by(lease, count if last else some, some, *how, **more)
            rows += part
            count, learning = count - len(part), learning - some
            if last:
                return rows

    def _decide_by(
        self, lease: HeldLease, count: int, learning: int, named: bool, *how: Any, **more: Any
    ) -> list[dict[str, Any]]:
        self._lease, lease.changed = lease, True
        rows = super().decide(count, learning, named, *how, **more)
        for row in rows[:learning]:
            lease.anonymous += bool(row["learns"]) and not named
        for row in rows[learning:]:
            lease.others[row["arm"]] = lease.others.get(row["arm"], 0) + 1
        return rows

    @property
    def window_end(self) -> float:
        return self._lease.closes


class LeaseBook:
    """The leases of this process, and the experiments that are leased."""

    def __init__(self) -> None:
        self.by_id: dict[int, LeasedExperiment | None] = {}  # None: it is not leased
        self.by_name: dict[str, LeasedExperiment] = {}
        self._decided: dict[int, float] = {}  # when this process last did so without a lease

    def add(self, experiment: ServedExperiment, lease: HeldLease | None = None) -> None:
        """Note what was committed of an experiment, with a new lease."""
        if not experiment.is_leased:
            self.by_id[experiment.id] = None
            return
        leased, known = LeasedExperiment(experiment), self.by_id.get(experiment.id)
        if known is not None:
            leased.leases, leased.last_lease = known.leases, known.last_lease
        if lease is not None:
            leased.leases.append(lease)
            leased.last_lease = lease
        self.by_id[experiment.id] = self.by_name[experiment.definition.name] = leased

    def drop(self, id: int) -> None:
        """Forget an experiment and its leases: their rows expire."""
        known = self.by_id.pop(id, None)
        if known is not None:
            self.by_name.pop(known.definition.name, None)

    def held(self, id: int, now: float) -> int:
        """Unused slots of an experiment."""
        known = self.by_id.get(id)
        return 0 if known is None else sum(lease.left(now) for lease in known.leases)

    def wanted(self, id: int, now: float, term: float) -> int:
        """Slots of the next lease, at most: twice those of one that was used up.

        After one that was not, about as many as it was used for; none if requests are further apart
        than a term. Slots that expire make batches smaller, and their sums noisier: without traffic
        for it a lease must not be long. This follows from requests and clocks alone.
        """
        known = self.by_id.get(id)
        last = None if known is None else known.last_lease
        before = self._decided.get(id, -math.inf)
        self._decided[id] = now
        if last is not None and last.used:
            before = max(before, last.ends)
        if now > before + term:
            return 0
        if last is None:
            return _FIRST_LEASE
        return 2 * last.granted if last.used == last.granted else last.used + 1

    def all_leases(self) -> list[HeldLease]:
        return [lease for each in self.by_name.values() for lease in each.leases]
