"""One of two aggregators: it adds up shares of rewards that it cannot read, and adds noise.

The contract of an honest aggregator. It protects every reward by epsilon, even if the other
aggregator, the decider and all other devices work against it:

1. Of a decision it takes the first share. Any later one gets the same answer: an answer that
   depended on the stored share would let the other aggregator, which knows its own share, test
   a guess of the reward.
2. A decision belongs to at most one batch, for good, from the moment that the batch's set is fixed.
   A share that comes later is refused. In the set of another batch the decision counts as missing.
3. A batch has one set. Another set for the same label is refused, before and after the release.
4. The other aggregator's set is compared before noise is drawn. Both add up the decisions whose
   shares both have.
5. The sum of a batch is released once, with the full discrete Laplace noise for epsilon. The commit
   that stores the release also deletes the batch's shares, and comes before the answer. Repetitions
   get the stored release. A crash before the commit loses a draw that was never seen.
6. A task that its operator ended releases nothing more, and its shares are deleted.
7. A database that was restored from a backup is noticed by its ledger. It may have forgotten
   releases: with `--restored` its tasks end, and nothing of them is released again.

Privacy.
    The others know the other shares of all decisions, so that from this aggregator's sum they
    learn the sum of the batch's rewards with its noise. One reward is in at most one release and
    moves it by at most one range: the discrete Laplace mechanism, epsilon-private for any choice
    of sets, which may depend on earlier releases. `privacy/secret_shares.proof.md` has the proof.

Not protected: that the server sees which decisions sent a share, and when. Devices send for every
decision, at a time that does not depend on the reward.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import update

from balaclava.privacy.secret_shares import GRID_STEPS, noisy_sum, share_text
from balaclava.service import share_messages as messages
from balaclava.service.engine.jobs import RECORDED, WriteJob
from balaclava.service.engine.unit_of_work import UnitOfWork
from balaclava.service.problems import Problem
from balaclava.service.store import schema, sql
from balaclava.service.store.ledger import CREATED, Ledger
from balaclava.service.store.storage import Storage

RELEASED = "released"  # events in the ledger
ENDED = "ended"

_TASK = "SELECT id, document, ended FROM tasks WHERE uid IN (*)"
_ADD_TASK = "INSERT INTO tasks (uid, document, ended) VALUES (?, ?, 0)"
_ADD_SHARE = "INSERT INTO shares (task, decision, share) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_STORED = "SELECT decision, batch, share IS NOT NULL FROM shares WHERE task = ? AND decision IN (*)"
_BATCH = (
    "SELECT id, proposed, missing, agreed, size, noisy_sum FROM share_batches "
    "WHERE task = ? AND label IN (*)"
)
_ADD_BATCH = (
    "INSERT INTO share_batches (task, label, proposed, missing) VALUES (?, ?, ?, ?) RETURNING id"
)
_CLAIM = (  # a decision without a share is claimed, too: one that comes later is refused
    "INSERT INTO shares (task, decision, batch) VALUES (?, ?, ?) "
    "ON CONFLICT (task, decision) DO UPDATE SET batch = excluded.batch WHERE shares.batch IS NULL"
)
_SUMMABLE = "SELECT decision, share FROM shares WHERE batch IN (*) AND share IS NOT NULL"
_RELEASE = "UPDATE share_batches SET agreed = ?, size = ?, noisy_sum = ? WHERE id = ?"
_DELETE_SHARES = "UPDATE shares SET share = NULL WHERE batch = ? AND share IS NOT NULL"
_END_TASK = "UPDATE tasks SET ended = 1 WHERE id = ?"
_DELETE_SHARES_OF_TASK = "UPDATE shares SET share = NULL WHERE task = ? AND share IS NOT NULL"


@dataclass(frozen=True)
class ShareTask:
    """What an aggregator knows of an experiment. Keys are not displayed."""

    uid: str
    side: int  # 0 or 1: which of the two aggregators this one is
    epsilon: float  # of this aggregator's noise
    range: list[float]  # of rewards; devices clip them to it
    default: float  # what devices share where no reward came
    modulus_bits: int
    decider_digest: str
    ticket_key: str
    peer_key: str

    @property
    def public(self) -> dict[str, Any]:
        """What anyone may know."""
        hidden = ("decider_digest", "ticket_key", "peer_key")
        return {name: value for name, value in asdict(self).items() if name not in hidden}


def find_task(work: UnitOfWork, uid: str) -> tuple[int, ShareTask, bool]:
    """A task's row: its id, its content, and whether it ended."""
    for id, document, ended in sql.fetch(work.connection, _TASK, [uid]):
        return int(id), ShareTask(**json.loads(document)), bool(ended)
    raise Problem(404, "this aggregator was not given the task; its operator adds it")


def end_tasks(database: str) -> None:
    """End all tasks of a restored database, before its ledger accepts it again."""
    storage = Storage.open(database)
    try:
        with storage.writing() as connection:
            connection.execute(update(schema.tasks).values(ended=1))
            connection.execute(update(schema.shares).values(share=None))
    finally:
        storage.close()


@dataclass
class ReadTask(WriteJob):
    uid: str

    def apply(self, work: UnitOfWork) -> ShareTask:
        """The task, as committed."""
        return find_task(work, self.uid)[1]


@dataclass
class AddTask(WriteJob):
    ledger: Ledger
    task: ShareTask
    by: str

    def apply(self, work: UnitOfWork) -> bool:
        """Add the task; returns whether it is new."""
        document = json.dumps(asdict(self.task), sort_keys=True)
        for _, known, _ in sql.fetch(work.connection, _TASK, [self.task.uid]):
            if known != document:
                raise Problem(
                    409, "the aggregator has this task with other values; nothing was changed"
                )
            return False
        note = f"task of an aggregator, epsilon {self.task.epsilon!r}, {self.by}"
        self.ledger.note(CREATED, None, self.task.uid, note, self.by)
        sql.execute_many(work.connection, _ADD_TASK, [(self.task.uid, document)])
        work.mark_written()
        return True


@dataclass
class EndTask(WriteJob):
    """End a task: nothing is released any more, and shares that were not released are deleted."""

    ledger: Ledger
    uid: str
    by: str

    def apply(self, work: UnitOfWork) -> dict[str, Any]:
        """End it, if it has not ended."""
        task, content, ended = find_task(work, self.uid)
        if not ended:
            self.ledger.note(ENDED, None, self.uid, "task of an aggregator", self.by)
            sql.execute_many(work.connection, _END_TASK, [(task,)])
            sql.execute_many(work.connection, _DELETE_SHARES_OF_TASK, [(task,)])
            work.mark_written()
        return content.public


@dataclass
class RecordShare(WriteJob):
    """Record the share of a decision, whose ticket was checked."""

    uid: str
    decision_id: str
    share: str

    def apply(self, work: UnitOfWork) -> dict[str, bool]:
        """Record the first share; a later one gets the same answer."""
        task, _, ended = find_task(work, self.uid)
        if ended:
            raise _ended()
        stored = sql.fetch(work.connection, _STORED, [self.decision_id], task)
        if any(batch is not None for _, batch, _ in stored):
            raise Problem(410, "the batch of this decision is fixed; nothing was recorded")
        sql.execute_many(work.connection, _ADD_SHARE, [(task, self.decision_id, self.share)])
        work.mark_written()
        return RECORDED


@dataclass
class FixBatch(WriteJob):
    """Fix the set of a batch: the proposed decisions that have a share."""

    uid: str
    label: str
    ids: Collection[str]

    def apply(self, work: UnitOfWork) -> dict[str, Any]:
        """Fix it; returns the missing decisions, and the statement for the other aggregator."""
        task, content, ended = find_task(work, self.uid)
        proposed = messages.ids_digest(self.ids)
        known = sql.fetch(work.connection, _BATCH, [self.label], task)
        if known:
            if known[0][1] != proposed:
                raise Problem(409, "this batch has another set of decisions; nothing was changed")
            missing = json.loads(known[0][2])
        elif ended:
            raise _ended()
        else:
            missing = self._claim(work, task, proposed)
        word = messages.statement(
            content.peer_key, self.uid, content.side, self.label, self.ids, missing
        )
        return {"missing": missing, "statement": word}

    def _claim(self, work: UnitOfWork, task: int, proposed: str) -> list[str]:
        """Let the decisions belong to this batch, unless they belong to one; those missing."""
        stored = sql.fetch(work.connection, _STORED, self.ids, task)
        held = {id for id, batch, shared in stored if shared and batch is None}
        missing = sorted(set(self.ids) - held)
        row = task, self.label, proposed, json.dumps(missing)
        ((batch,),), _ = sql.execute(work.connection, _ADD_BATCH, *row)
        claims = [(task, id, batch) for id in sorted(self.ids)]
        sql.execute_many(work.connection, _CLAIM, claims)
        work.mark_written()
        return missing


@dataclass
class ReleaseBatch(WriteJob):
    """Release a fixed batch, without the decisions that the other aggregator lacks."""

    ledger: Ledger
    uid: str
    label: str
    ids: Collection[str]  # proposed
    missing: Sequence[str]  # at the other aggregator
    statement: str  # of the other aggregator

    def apply(self, work: UnitOfWork) -> dict[str, Any]:
        """Draw the noise once; repetitions get the stored release."""
        task, content, ended = find_task(work, self.uid)
        known = sql.fetch(work.connection, _BATCH, [self.label], task)
        if not known or known[0][1] != messages.ids_digest(self.ids):
            raise Problem(409, "this set of decisions was not fixed for this batch; fix it first")
        self._check_statement(content)
        batch, _, own_missing, released, size, total = known[0]
        agreed = set(self.ids) - set(json.loads(own_missing)) - set(self.missing)
        digest = messages.ids_digest(agreed)
        if released is None:
            if ended:
                raise _ended()
            size, total = self._release(work, content, int(batch), agreed, digest)
        elif released != digest:
            raise Problem(409, "this batch was released with another set; nothing was changed")
        return {"size": size, "agreed": digest, "noisy_sum": total}

    def _check_statement(self, content: ShareTask) -> None:
        other = 1 - content.side
        expected = messages.statement(
            content.peer_key, self.uid, other, self.label, self.ids, self.missing
        )
        if not hmac.compare_digest(expected.encode(), self.statement.encode()):
            raise Problem(
                403,
                "the statement is not the other aggregator's word on these decisions; check that "
                "both have the same peer_key, and that one is side 0 and the other side 1",
            )

    def _release(
        self, work: UnitOfWork, content: ShareTask, batch: int, agreed: set[str], digest: str
    ) -> tuple[int, str]:
        """Store the sum of the agreed shares with noise, and delete the batch's shares."""
        rows = sql.fetch(work.connection, _SUMMABLE, [batch])
        bits = content.modulus_bits
        summed = (messages.read_share(share, bits) for id, share in rows if id in agreed)
        total = share_text(noisy_sum(summed, GRID_STEPS, content.epsilon, bits), bits)
        note = f"batch {self.label} of {len(agreed)} decisions, epsilon {content.epsilon!r}"
        self.ledger.note(RELEASED, None, self.uid, note)
        sql.execute_many(work.connection, _RELEASE, [(digest, len(agreed), total, batch)])
        sql.execute_many(work.connection, _DELETE_SHARES, [(batch,)])
        work.mark_written()
        return len(agreed), total


def _ended() -> Problem:
    return Problem(
        410,
        "the task ended, by its operator or because this aggregator's database was restored and "
        "may have forgotten releases; create a new experiment",
    )
