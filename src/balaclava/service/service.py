"""The service without HTTP: opened on a database, asked by Python."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select, update
from sqlalchemy.exc import DBAPIError

from balaclava.privacy.mechanisms.laplace import laplace_release
from balaclava.privacy.randomness import SystemRandomness
from balaclava.service.credentials import ApiKey, Role, Vault, key_digest
from balaclava.service.documents import (
    experiment_document,
    privacy_document,
    results_document,
)
from balaclava.service.engine.clock import Clock
from balaclava.service.engine.definition import ExperimentDefinition
from balaclava.service.engine.jobs import (
    CreateExperiment,
    CreateKey,
    MakeDecisions,
    ReceivedReward,
    RecordRewards,
    RevokeKey,
    SetExperimentState,
    WriteJob,
)
from balaclava.service.engine.served_experiment import CONFIDENCE, ServedExperiment
from balaclava.service.engine.unit_of_work import read_experiment
from balaclava.service.engine.writer import Writer
from balaclava.service.problems import Problem, StartError
from balaclava.service.store.ledger import CommitCount, Ledger
from balaclava.service.store.schema import STATES, decisions, experiments, keys, snapshots
from balaclava.service.store.storage import Storage, driver_message

ANSWER_SECONDS = 30.0
_KEYS_SECONDS = 1.0  # after which keys are read again: another process may have revoked one
_NEW_KEYS_SECONDS = 0.05  # after which a key that is not known is looked for again


def _give_up(answer: asyncio.Future[Any]) -> None:
    if not answer.done():
        answer.set_exception(
            Problem(
                503,
                "the database took too long; it may still record this: send it again, with the "
                "same request_id",
                retry_after=5,
            )
        )


class Service:
    """Everything that is behind the endpoints."""

    def __init__(
        self, storage: Storage, ledger: Ledger, vault: Vault, *, root_path: str = ""
    ) -> None:
        self.storage, self.ledger, self.vault = storage, ledger, vault
        self.root_path = root_path
        self.clock = Clock()
        self.writer = Writer(storage, ledger, self.clock)
        self._seen: dict[str, ServedExperiment] = {}  # as of their versions, for reading only
        self._keys: dict[str, ApiKey] = {}
        self._keys_read = -_KEYS_SECONDS
        self._lock = threading.Lock()

    @classmethod
    def open(
        cls,
        database: str = "balaclava.db",
        *,
        ledger: str | None = None,
        secrets: str | None = None,
        restored: bool = False,
        root_path: str = "",
    ) -> Service:
        """Open a database, its ledger and its secret key; refuse what does not belong together."""
        storage = Storage.open(database)
        file = storage.engine.url.database if storage.one_process else None
        stem = str(Path(file).with_suffix("")) if file else "balaclava"
        try:
            vault = Vault.open(Path(secrets or f"{stem}.key"), new=not storage.has_key())
            storage.require_key(vault)
            try:
                opened = Ledger.open(ledger or f"{stem}.ledger")
            except DBAPIError as error:
                raise StartError(f"the ledger cannot be used: {driver_message(error)}") from None
            service = cls(storage, opened, vault, root_path=root_path)
            service._require_current(restored)
        except BaseException:
            storage.close()
            raise
        laplace_release(SystemRandomness(), 0.0, 1.0, 1.0)  # loads the samplers: takes seconds
        service.writer.start()
        return service

    def _require_current(self, restored: bool) -> None:
        """Refuse a database that is behind its ledger, unless it was put back on purpose.

        Other processes may be at work: what the ledger had before the database was read must be
        in it, and what is in it the ledger must have now.
        """
        before = self.ledger.commit_counts()
        with self.storage.reading() as connection:
            rows = connection.execute(
                select(
                    experiments.c.uid,
                    experiments.c.version,
                    experiments.c.definition,
                    experiments.c.books,
                )
            ).all()
        counts = self.ledger.commit_counts()
        versions = {row.uid: row.version for row in rows}
        if any(
            uid not in counts or version > counts[uid].intended for uid, version in versions.items()
        ):
            raise StartError(
                "the ledger does not know all that is in the database: it is another one, or was "
                "put back from a backup, and what was charged meanwhile would be forgotten; put "
                "back the newest one"
            )
        for row in rows:
            self.clock.catch_up(json.loads(row.books)["time"])
        behind = [uid for uid, count in before.items() if versions.get(uid, 0) < count.least]
        if not behind:
            return
        if not restored:
            raise StartError(
                f"the database is behind its ledger in {len(behind)} experiment(s): it was put "
                "back from a backup, or is a replica that lagged; people have seen what it does "
                "not know. Start with --restored to go on with it: what was unfinished is then "
                "charged a second time"
            )
        self._continue_restored(behind, {row.uid: row.definition for row in rows}, counts)

    def _continue_restored(
        self, behind: list[str], definitions: dict[str, str], counts: dict[str, CommitCount]
    ) -> None:
        """Charge again what was put back. Of what is in the database the versions go on from the
        ledger's: no other process may take a copy that it still holds for the one that is there.
        """
        for uid in behind:
            if uid not in definitions:
                self.ledger.note_lost(uid)
            else:
                definition = ExperimentDefinition.from_json(definitions[uid])
                charge = definition.person_guarantee(definition.make_policy())
                epsilon, delta = (charge.epsilon, charge.delta) if charge.private else (0.0, 0.0)
                self.ledger.charge_restore(
                    definition.population, definition.name, uid, epsilon, delta
                )
        versions = {uid: counts[uid].intended + 1 for uid in behind if uid in definitions}
        self.ledger.reset_commit_counts({uid: versions.get(uid, 0) for uid in behind})
        with self.storage.writing() as connection:
            for uid, version in sorted(versions.items()):
                mine = update(experiments).where(experiments.c.uid == uid)
                connection.execute(mine.values(version=version))

    def close(self) -> None:
        """Finish what was taken in, and let go of the database."""
        self.writer.stop()
        self.storage.close()
        self.ledger.close()

    # Writing

    def run_job(self, job: WriteJob) -> Any:
        """Do a job, and wait until it is on the disk."""
        return self.writer.submit(job).result(ANSWER_SECONDS)

    async def await_job(self, job: WriteJob) -> Any:
        """The same, while others are served."""
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        self.writer.submit_for(answer, job)
        patience = loop.call_later(ANSWER_SECONDS, _give_up, answer)
        try:
            return await answer
        finally:
            patience.cancel()

    async def decide(
        self, name: str, count: int, request_id: str | None, person: str | None
    ) -> str:
        """Decisions, in JSON."""
        return str(await self.await_job(MakeDecisions(self.vault, name, count, request_id, person)))

    async def reward(self, outcomes: list[ReceivedReward]) -> list[dict[str, bool] | Problem]:
        """Rewards and reports, an answer for each."""
        return await self.await_job(RecordRewards(outcomes))

    async def create(self, definition: ExperimentDefinition) -> bool:
        """A new experiment; False if it was there already."""
        return await self.await_job(CreateExperiment(self.ledger, definition))

    async def set_state(self, name: str, verb: str) -> None:
        """Pause, resume or finish."""
        await self.await_job(SetExperimentState(name, verb))

    async def create_key(self, role: Role, label: str) -> dict[str, Any]:
        """A new key, shown once."""
        made = await self.await_job(CreateKey(role, label))
        await asyncio.to_thread(self._expire_keys)
        return made

    async def revoke_key(self, id: str) -> None:
        """A key that is not accepted any more, from this moment on."""
        await self.await_job(RevokeKey(id))
        await asyncio.to_thread(self._expire_keys)

    # Reading

    def experiments(self) -> list[dict[str, Any]]:
        """Every experiment that can be read, oldest first; of the others the log says why."""
        wanted = select(experiments.c.name, experiments.c.version).order_by(experiments.c.id)
        with self.storage.reading() as connection:
            rows = connection.execute(wanted).all()
            listed = []
            for row in rows:
                with contextlib.suppress(Problem):
                    listed.append(self._at_version(connection, *row))
        restores = self.ledger.restores()
        return [experiment_document(each, restores.get(each.definition.uid, 0)) for each in listed]

    def experiment(self, name: str) -> dict[str, Any]:
        """What it is, how far it is, what it promises."""
        experiment = self.committed(name)
        return experiment_document(experiment, self.ledger.charged(experiment.definition.uid)[2])

    def results(self, name: str, confidence: float = CONFIDENCE) -> dict[str, Any]:
        """What is known."""
        return results_document(self.committed(name), confidence)

    def privacy(self, name: str) -> dict[str, Any]:
        """What is promised, and what it cost."""
        return privacy_document(self.committed(name), self.ledger)

    def history(self, name: str, points: int = 300) -> dict[str, Any]:
        """Shares and released means over time, at most so many points."""
        experiment = self.committed(name)
        mine = snapshots.c.experiment == experiment.id
        with self.storage.reading() as connection:
            ids = list(
                connection.scalars(select(snapshots.c.id).where(mine).order_by(snapshots.c.id))
            )
            step = max(1, -(-len(ids) // max(points - 1, 1)))
            chosen = sorted({*ids[::step], *ids[-1:]})
            wanted = select(snapshots).where(snapshots.c.id.in_(chosen)).order_by(snapshots.c.id)
            rows = connection.execute(wanted).all()
        contents = [json.loads(row.content) for row in rows]
        nothing = [None] * experiment.policy.arms
        return {
            "decisions": [row.decisions for row in rows],
            "at": [row.at for row in rows],
            "arms": experiment.definition.arms,
            "shares": [
                [count / row.decisions for count in content["counts"]]
                for row, content in zip(rows, contents, strict=True)
            ],
            **{
                what: [content.get(what, nothing) for content in contents]
                for what in ("means", "low", "high")
            },
        }

    def decision(self, id: str) -> dict[str, Any]:
        """What became of a decision: for admins, and never its reward."""
        with self.storage.reading() as connection:
            wanted = (
                select(decisions, experiments.c.name)
                .join(experiments, experiments.c.id == decisions.c.experiment)
                .where(decisions.c.id == id)
            )
            row = connection.execute(wanted).first()
        if row is None:
            raise Problem(404, "there is no such decision")
        state = "rewarded" if row.kind is not None else STATES[row.state]
        return {
            "decision_id": row.id,
            "experiment": row.name,
            "arm": row.arm,
            "state": state,
            "made": row.made,
            "closes": row.closes,
        }

    def committed(self, name: str) -> ServedExperiment:
        """The experiment as of its last commit; not to be changed."""
        with self.storage.reading() as connection:
            version = connection.scalar(
                select(experiments.c.version).where(experiments.c.name == name)
            )
            if version is None:
                raise Problem(404, "there is no such experiment")
            return self._at_version(connection, name, version)

    def _at_version(self, connection: Connection, name: str, version: int) -> ServedExperiment:
        """The experiment of a version that the connection sees; read if it is not known yet."""
        known = self._seen.get(name)
        if known is None or known.version != version:
            row = connection.execute(select(experiments).where(experiments.c.name == name)).one()
            known = self._seen[name] = read_experiment(row)
        return known

    def ready(self) -> bool:
        """Whether decisions can be made."""
        try:
            with self.storage.reading() as connection:
                connection.execute(select(1))
        except DBAPIError:
            return False
        return self.writer.alive

    # Ledger and keys

    def ledger_document(self) -> dict[str, Any]:
        """Populations and everything that was charged."""
        budgets = self.ledger.budgets().values()
        return {
            "populations": [budget.document() for budget in budgets],
            "entries": self.ledger.entries(),
        }

    def list_keys(self) -> list[dict[str, Any]]:
        """Every key but for the key itself."""
        wanted = select(keys.c.id, keys.c.role, keys.c.label, keys.c.created, keys.c.revoked)
        with self.storage.reading() as connection:
            return [dict(row._mapping) for row in connection.execute(wanted.order_by("created"))]

    def cached_key(self, text: str) -> ApiKey | None:
        """The same as `check_key` where nothing has to be read for it; None otherwise."""
        fresh = self.clock.now() - self._keys_read < _KEYS_SECONDS
        return self._keys.get(key_digest(text)) if fresh else None

    def check_key(self, text: str) -> ApiKey | None:
        """Whose key it is; None if nobody's."""
        self._read_keys(_KEYS_SECONDS)
        digest = key_digest(text)
        if digest not in self._keys:
            self._read_keys(_NEW_KEYS_SECONDS)  # it may be new
        return self._keys.get(digest)

    def key(self, id: str) -> ApiKey | None:
        """A valid key by its id, for sessions."""
        self._read_keys(_KEYS_SECONDS)
        return next((key for key in self._keys.values() if key.id == id), None)

    def _read_keys(self, age: float) -> None:
        """Read the keys, unless what is known is not as old as that."""
        if self.clock.now() - self._keys_read < age:
            return
        with self._lock:
            now = self.clock.now()
            if now - self._keys_read < age:
                return  # somebody else has, while this one waited
            with self.storage.reading() as connection:
                rows = connection.execute(select(keys).where(keys.c.revoked.is_(None))).all()
            self._keys = {row.digest: ApiKey(row.id, row.role, row.label) for row in rows}
            self._keys_read = now

    def _expire_keys(self) -> None:
        """They have changed; what is being read now may be of before."""
        with self._lock:
            self._keys_read = -_KEYS_SECONDS
