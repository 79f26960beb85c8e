"""The service without HTTP: what the endpoints and the dashboard call."""

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
    plan_document,
    privacy_document,
    results_document,
)
from balaclava.service.engine import jobs
from balaclava.service.engine.definition import ExperimentDefinition
from balaclava.service.engine.served_experiment import RESULTS_CONFIDENCE, ServedExperiment
from balaclava.service.engine.unit_of_work import read_experiment
from balaclava.service.engine.writer import Clock, Writer
from balaclava.service.problems import Problem, StartError
from balaclava.service.store.ledger import CommitCount, Ledger
from balaclava.service.store.schema import STATES, decisions, experiments, keys, snapshots
from balaclava.service.store.storage import Storage, driver_message

# Seconds
ANSWER_SECONDS = 30.0  # timeout of a write
_KEYS_SECONDS = 1.0  # age of cached API keys: another process may revoke one
_NEW_KEYS_SECONDS = 0.05  # the same, for an unknown key, which may be new


def _time_out(answer: asyncio.Future[Any]) -> None:
    if not answer.done():
        answer.set_exception(
            Problem(
                503,
                "the database did not answer in time and may still record the request; retry with "
                "the same request_id",
                retry_after=5,
            )
        )


class Service:
    """A database, its ledger, its secret key, and the writer on them."""

    def __init__(
        self, storage: Storage, ledger: Ledger, vault: Vault, *, root_path: str = ""
    ) -> None:
        self.storage, self.ledger, self.vault = storage, ledger, vault
        self.root_path = root_path
        self.clock = Clock()
        self.writer = Writer(storage, ledger, self.clock)
        self._committed: dict[str, ServedExperiment] = {}  # committed copies, for reading only
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
        """Open a database with its ledger and its secret key, and start the writer.

        The ledger (a path or URL) and the secret key (a path) are by default beside the database.
        With `restored`, a database may be behind its ledger: unfinished batches are charged again.
        Raises `StartError` if the three do not belong together, or cannot be used.
        """
        storage = Storage.open(database)
        file = storage.engine.url.database if storage.one_process else None
        stem = str(Path(file).with_suffix("")) if file else "balaclava"
        try:
            vault = Vault.open(Path(secrets or f"{stem}.key"), new=not storage.has_key())
            storage.require_key(vault)
            try:
                opened = Ledger.open(ledger or f"{stem}.ledger")
            except DBAPIError as error:
                raise StartError(f"cannot use the ledger: {driver_message(error)}") from None
            service = cls(storage, opened, vault, root_path=root_path)
            service._require_current(restored)
        except BaseException:
            storage.close()
            raise
        laplace_release(SystemRandomness(), 0.0, 1.0, 1.0)  # the first call takes seconds
        service.writer.start()
        return service

    def _require_current(self, restored: bool) -> None:
        """Raise if the database is behind its ledger, unless the operator restored it.

        Other processes may commit meanwhile. So the database must reach the counts read before
        it, and must not exceed those read after it.
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
                "the ledger is behind the database: it belongs to another one, or was restored "
                "from a backup and has lost charges; restore the newest ledger"
            )
        for row in rows:
            self.clock.catch_up(json.loads(row.books)["time"])
        behind = [uid for uid, count in before.items() if versions.get(uid, 0) < count.required]
        if not behind:
            return
        if not restored:
            raise StartError(
                f"the database is behind its ledger in {len(behind)} experiment(s): it was "
                "restored from a backup, or is a replica that lagged, and lacks releases that "
                "observers have seen. Start with --restored to continue; unfinished batches are "
                "then charged again"
            )
        self._continue_restored(behind, {row.uid: row.definition for row in rows}, counts)

    def _continue_restored(
        self, behind: list[str], definitions: dict[str, str], counts: dict[str, CommitCount]
    ) -> None:
        """Charge restored experiments again, and set their versions past the ledger's.

        The new version makes other processes discard their cached copies.
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
        self.writer.stop()
        self.storage.close()
        self.ledger.close()

    # Writing

    def run_job(self, job: jobs.WriteJob) -> Any:
        """Run a job, and block until it is on the disk."""
        return self.writer.submit(job).result(ANSWER_SECONDS)

    async def await_job(self, job: jobs.WriteJob) -> Any:
        """Run a job, and await its commit."""
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        self.writer.submit_for(answer, job)
        timeout = loop.call_later(ANSWER_SECONDS, _time_out, answer)
        try:
            return await answer
        finally:
            timeout.cancel()

    async def decide(
        self, name: str, count: int, request_id: str | None, person: str | None
    ) -> str:
        job = jobs.MakeDecisions(self.vault, name, count, request_id, person)
        return await self.await_job(job)

    async def reward(self, received: list[jobs.ReceivedReward]) -> list[dict[str, bool] | Problem]:
        return await self.await_job(jobs.RecordRewards(received))

    async def create(self, definition: ExperimentDefinition) -> bool:
        """Create an experiment; False if it exists already."""
        return await self.await_job(jobs.CreateExperiment(self.ledger, definition))

    async def set_state(self, name: str, verb: str) -> None:
        await self.await_job(jobs.SetExperimentState(name, verb))

    async def create_key(self, role: Role, label: str) -> dict[str, Any]:
        """Create an API key; returns it, once."""
        made = await self.await_job(jobs.CreateKey(role, label))
        await asyncio.to_thread(self._expire_keys)
        return made

    async def revoke_key(self, id: str) -> None:
        """Revoke an API key at once."""
        await self.await_job(jobs.RevokeKey(id))
        await asyncio.to_thread(self._expire_keys)

    # Reading

    def experiments(self) -> list[dict[str, Any]]:
        """All readable experiments, oldest first. Damaged ones are logged and left out."""
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
        experiment = self.committed(name)
        return experiment_document(experiment, self.ledger.charged(experiment.definition.uid)[2])

    def results(
        self, name: str, confidence: float = RESULTS_CONFIDENCE, **stopping: Any
    ) -> dict[str, Any]:
        """Released means; `stopping` may have `smallest_difference` and `participants`."""
        return results_document(self.committed(name), confidence, **stopping)

    def plan(
        self, name: str, confidence: float = RESULTS_CONFIDENCE, **stopping: Any
    ) -> dict[str, Any]:
        return plan_document(self.committed(name), confidence, **stopping)

    def privacy(self, name: str) -> dict[str, Any]:
        return privacy_document(self.committed(name), self.ledger)

    def history(self, name: str, points: int = 300) -> dict[str, Any]:
        """Shares of decisions and released means over time, in at most `points` points."""
        experiment = self.committed(name)
        mine = snapshots.c.experiment == experiment.id
        with self.storage.reading() as connection:
            stored = select(snapshots.c.id).where(mine).order_by(snapshots.c.id)
            ids = list(connection.scalars(stored))
            step = max(1, -(-len(ids) // max(points - 1, 1)))
            chosen = sorted({*ids[::step], *ids[-1:]})
            wanted = select(snapshots).where(snapshots.c.id.in_(chosen)).order_by(snapshots.c.id)
            rows = connection.execute(wanted).all()
        contents = [json.loads(row.content) for row in rows]
        missing = [None] * experiment.policy.arms
        return {
            "decisions": [row.decisions for row in rows],
            "at": [row.at for row in rows],
            "arms": experiment.definition.arms,
            "shares": [
                [count / row.decisions for count in content["counts"]]
                for row, content in zip(rows, contents, strict=True)
            ],
            **{
                what: [content.get(what, missing) for content in contents]
                for what in ("means", "low", "high")
            },
        }

    def decision(self, id: str) -> dict[str, Any]:
        """The state of a decision, without its reward."""
        with self.storage.reading() as connection:
            wanted = (
                select(decisions, experiments.c.name)
                .join(experiments, experiments.c.id == decisions.c.experiment)
                .where(decisions.c.id == id)
            )
            row = connection.execute(wanted).first()
        if row is None:
            raise Problem(404, "this decision does not exist")
        return {
            "decision_id": row.id,
            "experiment": row.name,
            "arm": row.arm,
            "state": "rewarded" if row.kind is not None else STATES[row.state],
            "made": row.made,
            "closes": row.closes,
        }

    def committed(self, name: str) -> ServedExperiment:
        """The experiment at its last commit. Do not change it."""
        with self.storage.reading() as connection:
            version = connection.scalar(
                select(experiments.c.version).where(experiments.c.name == name)
            )
            if version is None:
                raise Problem(404, "this experiment does not exist")
            return self._at_version(connection, name, version)

    def _at_version(self, connection: Connection, name: str, version: int) -> ServedExperiment:
        """The experiment at a version that the connection sees, cached."""
        known = self._committed.get(name)
        if known is None or known.version != version:
            row = connection.execute(select(experiments).where(experiments.c.name == name)).one()
            known = self._committed[name] = read_experiment(row)
        return known

    def ready(self) -> bool:
        """Whether the service can make decisions."""
        try:
            with self.storage.reading() as connection:
                connection.execute(select(1))
        except DBAPIError:
            return False
        return self.writer.alive

    # Ledger and keys

    def ledger_document(self) -> dict[str, Any]:
        return {
            "populations": [budget.document() for budget in self.ledger.budgets().values()],
            "entries": self.ledger.entries(),
        }

    def list_keys(self) -> list[dict[str, Any]]:
        wanted = select(keys.c.id, keys.c.role, keys.c.label, keys.c.created, keys.c.revoked)
        with self.storage.reading() as connection:
            return [dict(row._mapping) for row in connection.execute(wanted.order_by("created"))]

    def cached_key(self, text: str) -> ApiKey | None:
        """The result of `check_key` if it is cached, otherwise None."""
        current = self.clock.now() - self._keys_read < _KEYS_SECONDS
        return self._keys.get(key_digest(text)) if current else None

    def check_key(self, text: str) -> ApiKey | None:
        """The API key of this text, or None if it is unknown or revoked."""
        self._read_keys(_KEYS_SECONDS)
        digest = key_digest(text)
        if digest not in self._keys:
            self._read_keys(_NEW_KEYS_SECONDS)
        return self._keys.get(digest)

    def key(self, id: str) -> ApiKey | None:
        """The valid API key with this id, or None."""
        self._read_keys(_KEYS_SECONDS)
        return next((key for key in self._keys.values() if key.id == id), None)

    def _read_keys(self, age: float) -> None:
        """Read the keys if the cached ones are older than `age` seconds."""
        if self.clock.now() - self._keys_read < age:
            return
        with self._lock:
            now = self.clock.now()
            if now - self._keys_read < age:
                return  # another thread has read them
            with self.storage.reading() as connection:
                rows = connection.execute(select(keys).where(keys.c.revoked.is_(None))).all()
            self._keys = {row.digest: ApiKey(row.id, row.role, row.label) for row in rows}
            self._keys_read = now

    def _expire_keys(self) -> None:
        """Invalidate cached keys, after the current read: it may be outdated."""
        with self._lock:
            self._keys_read = -_KEYS_SECONDS
