"""The service without HTTP: what the endpoints and the dashboard call."""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select, update
from sqlalchemy.exc import DBAPIError

from balaclava.privacy.mechanisms.laplace import laplace_release
from balaclava.privacy.randomness import SystemRandomness
from balaclava.service import start_checks
from balaclava.service.credentials import ApiKey, Role, Vault, caller, key_digest
from balaclava.service.documents import (
    experiment_document,
    plan_document,
    privacy_document,
    results_document,
)
from balaclava.service.engine import jobs
from balaclava.service.engine.changes import EditExperiment
from balaclava.service.engine.definition import ExperimentDefinition
from balaclava.service.engine.erasure import (
    ErasePerson,
    persons_experiments,
    unapplied_erasures,
)
from balaclava.service.engine.served_experiment import RESULTS_CONFIDENCE, ServedExperiment
from balaclava.service.engine.unit_of_work import read_experiment
from balaclava.service.engine.writer import Clock, Writer
from balaclava.service.export import ExportFormat, export
from balaclava.service.problems import Problem, StartError
from balaclava.service.share_messages import task_documents
from balaclava.service.store.ledger import EXPORTED, Ledger
from balaclava.service.store.schema import (
    decision_state,
    decisions,
    ended_sessions,
    experiments,
    keys,
    snapshots,
)
from balaclava.service.store.storage import Storage, driver_message

# Seconds
ANSWER_SECONDS = 30.0  # timeout of a write
_KEYS_SECONDS = 1.0  # age of cached API keys: another process may revoke one
_NEW_KEYS_SECONDS = 0.05  # the same, for an unknown key, which may be new
_PROBE_SECONDS = 5.0  # timeout of a commit that tests readiness
_PROBE_AGE = 1.0  # after which a commit does not prove readiness


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


def _for_arms(values: list[Any], arms: int, missing: Any) -> list[Any]:
    """A value for each arm; those that came later have none."""
    return values + [missing] * (arms - len(values))


class Service:
    """A database, its ledger, its secret key, and the writer on them."""

    def __init__(
        self, storage: Storage, ledger: Ledger, vault: Vault, *, root_path: str = ""
    ) -> None:
        self.storage, self.ledger, self.vault = storage, ledger, vault
        self.root_path = root_path
        self.webhook_networks: tuple[str, ...] = ()  # of the operator's own
        self.telemetry = False  # whether requests have spans
        self.clock = Clock()
        self.writer = Writer(storage, ledger, self.clock)
        self._committed: dict[str, ServedExperiment] = {}  # committed copies, for reading only
        self._keys: dict[str, ApiKey] = {}
        self._keys_read = -_KEYS_SECONDS
        self._lock = threading.Lock()
        self._probing = threading.Lock()
        self._last_probe: str | None = None

    @classmethod
    def open(
        cls,
        database: str = "balaclava.db",
        *,
        ledger: str | None = None,
        secrets: str | None = None,
        restored: bool = False,
        accept_clock: bool = False,
        root_path: str = "",
        webhook_networks: Iterable[str] = (),
    ) -> Service:
        """Open a database with its ledger and its secret key, and start the writer.

        The ledger (a path or URL) and the secret key (a path) are by default beside the database.
        With `restored`, a database may be behind its ledger: unfinished batches are charged again.
        With `accept_clock`, the clock may be far ahead of the last commit. Raises `StartError` if
        the three do not belong together, or cannot be used.
        """
        if ledger and "://" not in ledger and not Path(ledger).absolute().parent.is_dir():
            raise StartError(f"the folder of the ledger {ledger} does not exist; make it first")
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
            service.webhook_networks = tuple(webhook_networks)
            start_checks.require_current(storage, opened, service.clock, restored, accept_clock)
        except BaseException:
            storage.close()
            raise
        service._apply_revocations()
        laplace_release(SystemRandomness(), 0.0, 1.0, 1.0)  # the first call takes seconds
        service.writer.start()
        try:
            service._replay_erasures()
        except BaseException:
            service.close()
            raise
        return service

    def _apply_revocations(self) -> None:
        """Revoke the keys that a restored database took for valid again."""
        revoked = self.ledger.revoked_keys()
        with self.storage.writing() as connection:
            valid = set(connection.scalars(select(keys.c.id).where(keys.c.revoked.is_(None))))
            for id in sorted(valid & revoked):
                mine = update(keys).where(keys.c.id == id)
                connection.execute(mine.values(revoked=time.time()))

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
        self,
        name: str,
        count: int,
        request_id: str | None,
        person: str | None,
        sticky: bool = False,
        available: Sequence[str] | None = None,
        features: Any = None,
        attributes: dict[str, Any] | None = None,
    ) -> str:
        job = jobs.MakeDecisions(
            self.vault, name, count, request_id, person, sticky, available, features, attributes
        )
        return await self.await_job(job)

    async def reward(self, received: list[jobs.ReceivedReward]) -> list[dict[str, bool] | Problem]:
        return await self.await_job(jobs.RecordRewards(received, caller.get().experiments))

    async def create(self, definition: ExperimentDefinition, by: str = jobs.BY_SERVICE) -> bool:
        """Create an experiment; False if it exists already."""
        return await self.await_job(jobs.CreateExperiment(self.ledger, definition, by))

    async def edit(self, name: str, changes: dict[str, Any], by: str) -> None:
        """Change what may change in an experiment."""
        await self.await_job(EditExperiment(self.ledger, name, changes, by))

    async def set_state(self, name: str, verb: str, by: str, arm: str | None = None) -> None:
        """Pause, resume or finish; a finished experiment serves the arm with the label `arm`."""
        await self.await_job(jobs.SetExperimentState(self.ledger, name, verb, by, arm))

    async def clone(self, name: str, changes: dict[str, Any], by: str) -> tuple[str, bool]:
        """Create an experiment like another one; returns its name, and whether it is new."""
        definition = await asyncio.to_thread(lambda: self.committed(name).clone(changes))
        return definition.name, await self.create(definition, by)

    async def create_key(self, role: Role, label: str, by: str, **more: Any) -> dict[str, Any]:
        """Create an API key; returns it, once."""
        made = await self.await_job(jobs.CreateKey(self.ledger, role, label, by, **more))
        await asyncio.to_thread(self._expire_keys)
        return made

    async def revoke_key(self, id: str, by: str) -> None:
        """Revoke an API key at once."""
        await self.await_job(jobs.RevokeKey(self.ledger, id, by))
        await asyncio.to_thread(self._expire_keys)

    async def erase(self, person: str, by: str) -> dict[str, Any]:
        """Erase a person's data in all experiments; says what was erased, and its limits."""
        digests = await asyncio.to_thread(persons_experiments, self.storage, self.vault, person)
        return await self.await_job(ErasePerson(self.ledger, digests, by))

    def _replay_erasures(self) -> None:
        """Erase again what a restored database brought back."""
        for erasure in unapplied_erasures(self.storage, self.ledger):
            self.run_job(erasure)

    # Reading

    def experiments(self, *, archived: bool = True, search: str = "") -> list[dict[str, Any]]:
        """Documents of the readable experiments, oldest first.

        Args:
            archived: Whether to list archived experiments, too.
            search: Text in the name, the owner or the purpose, in any case.

        Returns:
            The documents.
        """
        restores, text = self.ledger.restores(), search.casefold()
        documents = (
            experiment_document(each, restores.get(each.definition.uid, 0))
            for each in self.all_committed()
        )
        return [
            each
            for each in documents
            if caller.get().covers(each["name"])
            and (archived or not each["archived"])
            and any(text in (each[name] or "").casefold() for name in ("name", "owner", "purpose"))
        ]

    def all_committed(self) -> list[ServedExperiment]:
        """All experiments at their last commits, oldest first. Damaged ones are left out."""
        wanted = select(experiments.c.name, experiments.c.version).order_by(experiments.c.id)
        with self.storage.reading() as connection:
            rows = connection.execute(wanted).all()
            listed: list[ServedExperiment] = []
            for row in rows:
                try:
                    listed.append(self._at_version(connection, *row))
                except Problem as problem:
                    if problem.status != HTTPStatus.INTERNAL_SERVER_ERROR:  # not a damaged one
                        raise
        return listed

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

    def share_tasks(self, name: str) -> list[dict[str, Any]]:
        """What the operators of an experiment's aggregators need, with keys."""
        experiment = self.committed(name)
        if not experiment.definition.is_split:
            raise Problem(409, "this experiment has no aggregators")
        return task_documents(experiment.definition, experiment.policy, self.vault)

    def privacy(self, name: str) -> dict[str, Any]:
        return privacy_document(self.committed(name), self.ledger)

    def history(self, name: str, points: int = 300) -> dict[str, Any]:
        """Shares of decisions and released means over time, in at most `points` points."""
        with self.storage.reading() as connection:
            experiment = self._committed_in(connection, name)
            mine = snapshots.c.experiment == experiment.id
            stored = select(snapshots.c.id).where(mine).order_by(snapshots.c.id)
            ids = list(connection.scalars(stored))
            step = max(1, -(-len(ids) // max(points - 1, 1)))
            chosen = sorted({*ids[::step], *ids[-1:]})
            wanted = select(snapshots).where(snapshots.c.id.in_(chosen)).order_by(snapshots.c.id)
            rows = connection.execute(wanted).all()
        contents = [json.loads(row.content) for row in rows]
        arms = experiment.policy.arms
        return {
            "decisions": [row.decisions for row in rows],
            "at": [row.at for row in rows],
            "arms": experiment.arms,
            "shares": [
                _for_arms([count / row.decisions for count in content["counts"]], arms, 0.0)
                for row, content in zip(rows, contents, strict=True)
            ],
            **{
                what: [_for_arms(content.get(what, []), arms, None) for content in contents]
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
            "state": decision_state(row.kind, row.state),
            "made": row.made,
            "closes": row.closes,
        }

    def committed(self, name: str) -> ServedExperiment:
        """The experiment at its last commit. Do not change it."""
        with self.storage.reading() as connection:
            return self._committed_in(connection, name)

    def _committed_in(self, connection: Connection, name: str) -> ServedExperiment:
        version = connection.scalar(select(experiments.c.version).where(experiments.c.name == name))
        if version is None:
            raise Problem(404, "this experiment does not exist")
        return self._at_version(connection, name, version)

    def _at_version(self, connection: Connection, name: str, version: int) -> ServedExperiment:
        """The experiment at a version that the connection sees, cached."""
        known = self._committed.get(name)
        if known is None or known.version != version:
            row = connection.execute(select(experiments).where(experiments.c.name == name)).one()
            self.ledger.observe(row.uid, row.version)
            known = self._committed[name] = read_experiment(row, known)
        return known

    def ready(self) -> str | None:
        """Why the service cannot make decisions now; None if it can.

        Without a recent commit it makes one, of a random value of some pages. One at a time: a
        caller who does not get to try is told the last result.
        """
        if not self.writer.alive:
            return "the writer has stopped"
        if not self._probing.acquire(blocking=False):
            return self._last_probe
        try:
            recent = time.monotonic() - _PROBE_AGE
            if max(self.writer.committed_at, self.writer.failed_at) < recent:
                self._last_probe = self._probe()
            elif self.writer.failed_at > self.writer.committed_at:
                self._last_probe = "the last commit failed; the log says why"
            else:
                self._last_probe = None
            return self._last_probe
        finally:
            self._probing.release()

    def _probe(self) -> str | None:
        try:
            self.writer.submit(jobs.Probe()).result(_PROBE_SECONDS)
        except Problem as problem:
            return problem.detail
        except TimeoutError:
            return "the database does not answer"
        return None

    def export(
        self, name: str, form: ExportFormat, since: float, until: float, by: str
    ) -> Iterator[bytes]:
        """Definition, guarantee, releases and decisions; never rewards."""
        answer = export(self, name, form, since, until)
        self.ledger.note(EXPORTED, name, None, f"as {form}", by)
        return answer

    # Ledger and keys

    def audit_trail(self, after: int, limit: int) -> dict[str, Any]:
        """Who changed what, and when."""
        return {"entries": self.ledger.trail(after, limit)}

    def ledger_document(self) -> dict[str, Any]:
        return {
            "populations": [budget.document() for budget in self.ledger.budgets().values()],
            "entries": self.ledger.entries(),
        }

    def list_keys(self) -> list[dict[str, Any]]:
        wanted = select(*(column for column in keys.c if column.name != "digest"))
        with self.storage.reading() as connection:
            return [dict(row._mapping) for row in connection.execute(wanted.order_by("created"))]

    def has_admin_key(self) -> bool:
        """Whether a valid key has the role admin."""
        self._read_keys(0.0)
        return any(key.role == "admin" and key.valid for key in self._keys.values())

    def cached_key(self, text: str) -> ApiKey | None:
        """The result of `check_key` if it is cached, otherwise None."""
        current = self.clock.now() - self._keys_read < _KEYS_SECONDS
        key = self._keys.get(key_digest(text)) if current else None
        return key if key is not None and key.valid else None

    def check_key(self, text: str) -> ApiKey | None:
        """The API key of this text, or None if it is unknown or revoked."""
        self._read_keys(_KEYS_SECONDS)
        digest = key_digest(text)
        if digest not in self._keys:
            self._read_keys(_NEW_KEYS_SECONDS)
        key = self._keys.get(digest)
        return key if key is not None and key.valid else None

    def key(self, id: str) -> ApiKey | None:
        """The valid API key with this id, or None."""
        self._read_keys(_KEYS_SECONDS)
        return next((key for key in self._keys.values() if key.id == id and key.valid), None)

    def session_key(self, session: str) -> ApiKey | None:
        """The valid API key of a session that was not ended, or None."""
        id = self.vault.read_session(session)
        if id is None:
            return None
        ended = select(ended_sessions).where(ended_sessions.c.digest == key_digest(session))
        with self.storage.reading() as connection:
            if connection.execute(ended).first() is not None:
                return None
        return self.key(id)

    async def end_session(self, session: str) -> None:
        """End a session at once, in all processes."""
        await self.await_job(jobs.EndSession(session))

    def _read_keys(self, age: float) -> None:
        """Read the keys if the cached ones are older than `age` seconds."""
        if self.clock.now() - self._keys_read < age:
            return
        with self._lock:
            now = self.clock.now()
            if now - self._keys_read < age:
                return  # another thread has read them
            revoked = self.ledger.revoked_keys()
            with self.storage.reading() as connection:
                rows = connection.execute(select(keys).where(keys.c.revoked.is_(None))).all()
            self._keys = {
                row.digest: ApiKey(
                    row.id,
                    row.role,
                    row.label,
                    row.expires or math.inf,
                    None if row.experiments is None else frozenset(row.experiments),
                )
                for row in rows
                if row.id not in revoked
            }
            self._keys_read = now

    def _expire_keys(self) -> None:
        """Invalidate cached keys, after the current read: it may be outdated."""
        with self._lock:
            self._keys_read = -_KEYS_SECONDS
