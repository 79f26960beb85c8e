"""Checks before the service starts: the database against its ledger, and the clock."""

import json
import logging
from typing import NamedTuple

from sqlalchemy import select, update

from balaclava.service.engine.definition import ExperimentDefinition
from balaclava.service.engine.jobs import TIME
from balaclava.service.engine.writer import Clock
from balaclava.service.problems import StartError
from balaclava.service.store.ledger import CommitCount, Ledger
from balaclava.service.store.schema import experiments, meta
from balaclava.service.store.storage import Storage, is_counter

log = logging.getLogger("balaclava.service")

# Seconds
_LARGEST_CLOCK_JUMP = 30 * 86_400.0  # after the last commit: longer than a service is stopped
_CLOCK_TOLERANCE = 60.0


class LedgerComparison(NamedTuple):
    """The database and its ledger."""

    definitions: dict[str, str]  # of experiments, as JSON
    versions: dict[str, int]  # of experiments, and of each process's commits
    counts: dict[str, CommitCount]
    behind: list[str]  # what lacks a commit that the ledger knows
    last: float  # the time of the last commit

    @property
    def unrecorded(self) -> dict[str, int]:
        """Versions that a crash kept from the ledger. Other processes may have written since."""
        new = CommitCount(0, 0)
        known = self.counts
        return {uid: each for uid, each in self.versions.items() if each > known.get(uid, new).done}

    @property
    def experiments_behind(self) -> list[str]:
        return [uid for uid in self.behind if not is_counter(uid)]


def compare(storage: Storage, ledger: Ledger) -> LedgerComparison:
    """Compare the database with its ledger; raises if the ledger is behind.

    Other processes may commit meanwhile. So the database must reach the counts read before it,
    and must not exceed those read after it by more than a commit of each process.
    """
    before = ledger.commit_counts()
    with storage.reading() as connection:
        columns = (experiments.c[name] for name in ("uid", "version", "definition", "books"))
        rows = connection.execute(select(*columns)).all()
        processes = storage.commit_counters(connection)
        recorded = storage.recorded_counters(connection)
        noted = connection.scalar(select(meta.c.value).where(meta.c.name == TIME))
    counts = ledger.commit_counts()
    versions = {row.uid: row.version for row in rows}
    new = CommitCount(0, 0)
    lags = [count - counts.get(uid, new).intended for uid, count in processes.items()]
    lag = sum(each > 0 for each in lags)  # commits that a crash kept from the ledger
    if (
        max(lags, default=0) > 1
        or any(counts.get(uid, new).intended < count for uid, count in recorded.items())
        or any(
            uid not in counts or version > counts[uid].intended + lag
            for uid, version in versions.items()
        )
    ):
        raise StartError(
            "the ledger is behind the database: it belongs to another one, or was restored from a "
            "backup and has lost charges; restore the newest ledger"
        )
    versions |= processes
    return LedgerComparison(
        {row.uid: row.definition for row in rows},
        versions,
        counts,
        [uid for uid, count in before.items() if versions.get(uid, 0) < count.required],
        max([*(float(json.loads(row.books)["time"]) for row in rows), float(noted or 0.0)]),
    )


def require_current(
    storage: Storage, ledger: Ledger, clock: Clock, restored: bool, accept_clock: bool
) -> None:
    """Raise if the database is behind its ledger, unless it is `restored`, or the clock jumped."""
    comparison = compare(storage, ledger)
    set_clock(clock, comparison.last, accept_clock)
    if not comparison.behind:
        ledger.record_commits(comparison.unrecorded)
        return
    if not restored:
        raise StartError(
            "the database is behind its ledger, in "
            f"{len(comparison.experiments_behind)} experiment(s): it was restored "
            "from a backup, or is a replica that lagged, and lacks rewards, keys or releases that "
            "were acknowledged. Start with --restored to continue; unfinished batches of these "
            "experiments are then charged again"
        )
    _continue_restored(storage, ledger, comparison)


def set_clock(clock: Clock, last: float, accept: bool = False) -> None:
    """Continue after the last commit; raise if the clock is too far ahead of it."""
    ahead = clock.now() - last
    if last and ahead > _LARGEST_CLOCK_JUMP and not accept:
        raise StartError(
            f"the clock is {ahead / 86_400:,.0f} days ahead of the last commit. If it is wrong, "
            "every open window would end now, and time would not go back: set the clock. If it is "
            "right, start with --accept-clock"
        )
    if ahead < -_CLOCK_TOLERANCE:
        log.warning(
            "the clock is %.0f seconds behind the last commit; the service's time continues from "
            "there",
            -ahead,
        )
    clock.catch_up(last)


def _continue_restored(storage: Storage, ledger: Ledger, comparison: LedgerComparison) -> None:
    """Charge restored experiments again, and set all versions past the ledger's.

    The new version makes other processes discard their cached copies.
    """
    behind = comparison.experiments_behind
    for uid in behind:
        if uid not in comparison.definitions:
            ledger.note_lost(uid)
        else:
            definition = ExperimentDefinition.from_json(comparison.definitions[uid])
            charge = definition.person_guarantee(definition.make_policy())
            epsilon, delta = (charge.epsilon, charge.delta) if charge.private else (0.0, 0.0)
            ledger.charge_restore(definition.population, definition.name, uid, epsilon, delta)
    if not behind:
        ledger.note_restore()
    lost = {uid: 0 for uid in behind if uid not in comparison.definitions}
    after = {
        uid: comparison.counts[uid].intended + 1 for uid in comparison.behind if uid not in lost
    }
    ledger.reset_commit_counts(after | lost)
    with storage.writing() as connection:
        commits = {uid: version for uid, version in after.items() if is_counter(uid)}
        storage.set_commit_counters(connection, commits)
        for uid in sorted(after.keys() - commits.keys()):
            mine = update(experiments).where(experiments.c.uid == uid)
            connection.execute(mine.values(version=after[uid]))
