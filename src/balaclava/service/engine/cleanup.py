"""Deletion of what is no longer needed, in small steps: old decisions, and held rewards.

Whether and when a row is deleted depends on clocks, decisions and releases only.
"""

from sqlalchemy import Connection

from balaclava.service.engine.jobs import WriteJob
from balaclava.service.engine.served_experiment import ServedExperiment
from balaclava.service.engine.unit_of_work import Prefetch, UnitOfWork
from balaclava.service.engine.unreleased import awaits_release, end_batch, is_in_open_pool
from balaclava.service.store import sql
from balaclava.service.store.schema import OPEN

# Rows of an experiment and a tick, at two ticks a second; or as many as it decided in the last
# second, so that deletion is twice as fast as what it follows.
MOST_ROWS = 2_000
_AGAIN = 60.0  # seconds after which rows of an unreleased batch are checked again; a guess, flat
_FREE_SHARE = 4  # of SQLite's pages, one in so many may be free before the file shrinks
# Pages of SQLite, 4 KiB each: 40 MB free, and steps of 2 MB. Guesses.
_LEAST_FREE_PAGES, _SHRINK_PAGES = 10_000, 500


class CleanUp(WriteJob):
    """Delete some of what is due; the writer submits this by the clock."""

    def prefetch(self, wanted: Prefetch) -> None:
        wanted.cleanup = True

    def apply(self, work: UnitOfWork) -> None:
        for experiment in list(work.by_id.values()):
            due = experiment.next_cleanup
            if due is not None and due <= experiment.counters.time and not experiment.overdue:
                _clean_up(work, experiment)


def _clean_up(work: UnitOfWork, experiment: ServedExperiment) -> None:
    now = experiment.counters.time
    work.mark_changed(experiment)
    ((recent,),), _ = sql.execute(work.connection, sql.SINCE, experiment.id, now - 1.0)
    most = max(MOST_ROWS, int(recent))
    if not _drop_held_rewards(work, experiment, most):
        return  # the next tick continues
    experiment.guardrails.release_old(now - experiment.retention, experiment.runner.rng)
    if experiment.guardrails.released:
        experiment.update_breaker()
    deleted, waits = _delete_old(work, experiment, now - experiment.retention, most)
    ((oldest,),), _ = sql.execute(work.connection, sql.OLDEST_DECISION, experiment.id)
    if oldest is None:
        experiment.next_cleanup = None
    elif waits and not deleted:
        experiment.next_cleanup = now + _AGAIN
    else:
        experiment.next_cleanup = oldest + experiment.retention
    if deleted:
        _shrink(work.connection)


def _drop_held_rewards(work: UnitOfWork, experiment: ServedExperiment, most: int) -> bool:
    """Delete rewards whose batch is released; returns whether none is left."""
    place = -1, -1
    while True:
        rows, _ = sql.execute(work.connection, sql.HELD_BATCH, experiment.id, *place)
        if not rows:
            return True
        place = int(rows[0][0]), int(rows[0][1])
        if experiment.is_over or not awaits_release(experiment.runner, *place):
            batch = experiment.id, *place
            _, dropped = sql.execute(work.connection, sql.DROP_HELD, *batch, most)
            if dropped == most:
                return False


def _delete_old(
    work: UnitOfWork, experiment: ServedExperiment, before: float, most: int
) -> tuple[int, bool]:
    """Delete decisions made before a time; returns their number, and whether some must wait.

    Those of an open batch wait: the clock ends it, and it is released with its last window.
    """
    rows, _ = sql.execute(work.connection, sql.OLD_DECISIONS, experiment.id, before, most)
    waiting: set[tuple[int, int]] = set()
    decisions: list[str] = []
    requests: set[int] = set()
    for id, round, arm, phase, _, state, request in rows:
        now_closed = work.decisions.get(id)  # by this transaction
        if (state if now_closed is None else now_closed["state"]) == OPEN:
            waiting.add((arm, phase))
            continue
        if not experiment.is_over and is_in_open_pool(experiment.runner, arm, phase):
            if (arm, phase) not in waiting:
                end_batch(experiment.runner, arm, phase, round)
            if is_in_open_pool(experiment.runner, arm, phase):
                waiting.add((arm, phase))
                continue
        decisions.append(id)
        if request is not None:
            requests.add(request)
    sql.execute_for(work.connection, sql.DELETE_REQUESTS, sorted(requests))
    sql.execute_for(work.connection, sql.DELETE_DECISIONS, sorted(decisions))
    return len(decisions), bool(waiting)


def _shrink(connection: Connection) -> None:
    """Return free pages of SQLite to the disk, where they are many: new rows use the others."""
    if connection.dialect.name != "sqlite":
        return
    ((free,),), _ = sql.execute(connection, "PRAGMA freelist_count")
    ((pages,),), _ = sql.execute(connection, "PRAGMA page_count")
    if free > _LEAST_FREE_PAGES and free * _FREE_SHARE > pages:
        for _ in range(min(_SHRINK_PAGES, free)):  # the driver takes one step at a time
            sql.execute(connection, "PRAGMA incremental_vacuum(1)")
