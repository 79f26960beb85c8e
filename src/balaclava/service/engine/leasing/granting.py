"""What the owner of an experiment's row does with leases: grant, settle, revoke.

The proof that leases keep the policy's guarantee is in `balaclava.frames.leases`. The row of a
lease decides who wins: a decider's commit updates it, by its token, and settling deletes it. A slot
that was used by then is a decision; any other one is forgotten by the policy.
"""

from __future__ import annotations

import json
import secrets

from sqlalchemy import Connection

from balaclava.frames import arm_slots
from balaclava.frames.leases import lease_length
from balaclava.service.engine.leasing.held_leases import HeldLease, SlotRun, cut_runs
from balaclava.service.engine.served_experiment import Offer, ServedExperiment
from balaclava.service.store import sql

_ALL = "DELETE FROM leases WHERE experiment = ? "
_ROW = "RETURNING runs, used, anonymous, others, ends"
_OVER = f"{_ALL} AND (used = granted OR ends < ?) {_ROW}"
_ANY = f"{_ALL} {_ROW}"
_FIRST_END = "SELECT min(ends) FROM leases WHERE experiment = ?"
_INSERT = (
    "INSERT INTO leases (id, experiment, runs, granted, used, anonymous, others, ends) "
    "VALUES (?, ?, ?, ?, 0, 0, '{}', ?)"
)
USE_LEASE = "UPDATE leases SET used = ?, anonymous = ?, others = ? WHERE id = ? AND used = ?"
RETURN_LEASE = "UPDATE leases SET ends = 0 WHERE id = ?"
EXPIRED_LEASES = "SELECT DISTINCT experiment FROM leases WHERE used = granted OR ends < ?"


def settle_leases(
    connection: Connection, experiment: ServedExperiment, *, revoke: bool = False
) -> bool:
    """End the leases that are used up or over, or all; returns whether there were any.

    Call while holding the experiment's row.
    """
    if revoke:
        rows, _ = sql.execute(connection, _ANY, experiment.id)
    else:
        rows, _ = sql.execute(connection, _OVER, experiment.id, experiment.counters.time)
    for runs, used, anonymous, others, ends in sorted(rows, key=lambda row: str(row[0])):
        slots = [SlotRun(*run) for run in json.loads(runs)]
        _count(experiment, slots, int(used), int(anonymous), json.loads(others))
        _expire(experiment, cut_runs(slots, int(used), _slots(slots)))
        _await_windows(experiment, float(ends))
    return bool(rows)


def _slots(runs: list[SlotRun]) -> int:
    return sum(run.slots for run in runs)


def _count(
    experiment: ServedExperiment,
    slots: list[SlotRun],
    used: int,
    anonymous: int,
    others: dict[str, int],
) -> None:
    """Count the decisions that were made by a lease."""
    counters = experiment.counters
    counters.leased = (counters.leased or 0) - _slots(slots)
    counters.anonymous += anonymous
    for run in cut_runs(slots, 0, used):
        counters.decisions[run.arm] += run.slots
        if run.phase >= 0:
            counters.learning[run.arm] += run.slots
        else:
            counters.closed += run.slots
    for arm, count in others.items():
        counters.decisions[int(arm)] += count
    if used or others:
        experiment.clean_up_at(counters.time + experiment.retention)


def _expire(experiment: ServedExperiment, slots: list[SlotRun]) -> None:
    """Forget slots that were not used: their batches are that much smaller."""
    runner = experiment.runner
    for run in slots:
        experiment.counters.closed += run.slots
        for round in range(run.first, run.first + run.slots if run.phase >= 0 else run.first):
            runner.forget_slot(round, runner.slot_of(run.arm), run.phase)


def _await_windows(experiment: ServedExperiment, ends: float) -> None:
    """Look for ended windows no later than those of a lease end."""
    closes = ends + experiment.definition.reward_window
    known = experiment.next_due
    experiment.next_due = closes if known is None else min(known, closes)


def await_leases(connection: Connection, experiment: ServedExperiment) -> None:
    """Look for ended windows in time for the leases that are not settled."""
    ((first,),), _ = sql.execute(connection, _FIRST_END, experiment.id)
    if first is not None:
        _await_windows(experiment, float(first))


def grant_lease(
    connection: Connection, experiment: ServedExperiment, held: int, wanted: int
) -> HeldLease | None:
    """Lease at most `wanted` further slots to this process, after its own decision.

    None while leases have one slot, or if the process holds as many unused slots as a lease has.
    Call while holding the experiment's row. The lease holds once the transaction is committed.
    """
    counters, runner = experiment.counters, experiment.runner
    pools = arm_slots.find_pools(runner.state)
    size = int(pools.size[runner.slot_of(counters.last_arm)])
    length = min(lease_length(size, experiment.definition.deciders) - 1, wanted)
    if held >= length:
        return None
    runs: list[SlotRun] = []
    for _ in range(length):
        if not (arm_slots.continues_batch(runner.state) or not pools.no_draw[0]):
            break
        round, choice = experiment.next_slot(Offer())
        if runs and runs[-1][2:] == tuple(choice):
            runs[-1] = runs[-1]._replace(slots=runs[-1].slots + 1)
        else:
            runs.append(SlotRun(round, 1, *choice))
    if not runs:
        return None
    ends = counters.time + experiment.lease_seconds
    lease = HeldLease(secrets.token_urlsafe(16), runs, ends, experiment.window_end)
    counters.leased = (counters.leased or 0) + lease.granted
    _await_windows(experiment, ends)
    stored = json.dumps([list(run) for run in runs])
    values = lease.id, experiment.id, stored, lease.granted, ends
    sql.execute_many(connection, _INSERT, [values])
    return lease


def use_leases(connection: Connection, leases: list[HeldLease]) -> bool:
    """Store how far leases are used; returns False if one of them was settled."""
    rows = [
        (each.used, each.anonymous, json.dumps(each.others), each.id, each.stored)
        for each in sorted(leases, key=lambda each: each.id)
    ]
    return sql.execute_many(connection, USE_LEASE, rows) == len(rows)
