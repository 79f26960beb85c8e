"""The decider's side: it asks both aggregators for the noisy sum of each batch that is complete.

Nothing of a request is stored: an aggregator repeats its answers. So a decider that was killed asks
again, and gets what it would have got. While an aggregator does not answer, its batches stay open
and decisions continue without them. A batch that an aggregator refuses for good, because it knows
the label with other decisions (as after a restore of the decider), is given up.

Each experiment is collected in a thread of its own: a dishonest aggregator that answers byte by
byte, or never, holds up its own experiments alone.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

from balaclava._core.extras import require_extra
from balaclava.privacy.secret_shares import GRID_STEPS
from balaclava.service import share_messages as messages
from balaclava.service.engine.jobs import WriteJob
from balaclava.service.engine.served_experiment import ServedExperiment
from balaclava.service.engine.unit_of_work import Prefetch, UnitOfWork
from balaclava.service.engine.unreleased import settle_with_release, unsettled_decisions
from balaclava.service.problems import Problem
from balaclava.service.store import sql
from balaclava.service.store.schema import AWAITED, GIVEN_UP, REWARDED
from balaclava.service.store.storage import DATABASE_ERRORS

if TYPE_CHECKING:
    from balaclava.service.service import Service

log = logging.getLogger("balaclava.service")

# Seconds
SEARCH_SECONDS = (
    0.5  # between two searches for complete batches, as between two ticks of the writer
)
_LONGEST_BACKOFF = 60.0  # after an aggregator did not answer: waits double up to this
_RELEASE_SECONDS = 120.0  # timeout of an answer: a batch may have a million decisions
_LAST_BATCH_SECONDS = 5.0

_AWAITED_BATCHES = (
    "SELECT arm, phase, COUNT(*), MAX(round) FROM decisions "
    f"WHERE experiment = ? AND state = {AWAITED} GROUP BY arm, phase"
)
_IDS = (
    "SELECT id FROM decisions WHERE experiment = ? AND arm = ? AND phase = ? "
    f"AND state = {AWAITED} ORDER BY round"
)
_CLOSE = (
    f"UPDATE decisions SET state = {REWARDED}, value = NULL WHERE experiment = ? AND arm = ? "
    f"AND phase = ? AND state = {AWAITED}"
)
_GIVE_UP = f"UPDATE decisions SET state = {GIVEN_UP} WHERE id = ?"


class UnreachableError(Exception):
    """An aggregator does not answer, or not yet; the message says which and why."""


class RefusedError(Exception):
    """An aggregator refuses a batch for good."""


class CompleteBatch(NamedTuple):
    """A batch whose windows are all over."""

    arm: int
    phase: int
    decisions: int
    round: int  # the last one
    ids: list[str]

    @property
    def label(self) -> str:
        """Its name at the aggregators."""
        return f"{self.arm}.{self.phase}"


def complete_batches(service: Service, experiment: ServedExperiment) -> Iterator[CompleteBatch]:
    """The batches of an experiment that can be released: all their decisions await it."""
    with service.storage.reading() as connection:
        rows, _ = sql.execute(connection, _AWAITED_BATCHES, experiment.id)
    for arm, phase, count, round in rows:
        if unsettled_decisions(experiment.runner, arm, phase) == count:
            with service.storage.reading() as connection:
                ids, _ = sql.execute(connection, _IDS, experiment.id, arm, phase)
            yield CompleteBatch(arm, phase, count, round, [id for (id,) in ids])


@dataclass
class ApplyRelease(WriteJob):
    """Give the policy the noisy sum of a batch, which the aggregators released."""

    name: str
    batch: CompleteBatch
    missing: Sequence[str]  # decisions that are not in the sum
    noisy_sum: float  # in ranges of a reward

    def prefetch(self, wanted: Prefetch) -> None:
        wanted.names.add(self.name)

    def apply(self, work: UnitOfWork) -> bool:
        """Settle the batch; False if it is settled already, or the experiment finished."""
        experiment = work.experiment(self.name)
        batch = self.batch
        place = batch.arm, batch.phase
        open_decisions = unsettled_decisions(experiment.runner, *place)
        if experiment.is_over or open_decisions != batch.decisions:
            return False
        lost = len(self.missing)
        settle_with_release(experiment.runner, *place, batch.round, lost, self.noisy_sum)
        sql.execute(work.connection, _CLOSE, experiment.id, *place)
        sql.execute_many(work.connection, _GIVE_UP, [(id,) for id in self.missing])
        experiment.release_rest()
        experiment.clean_up_at(work.now)
        work.mark_changed(experiment)
        return True


class AggregatorClient:
    """One aggregator of an experiment, as its decider calls it."""

    def __init__(self, http: Any, url: str, uid: str, key: str) -> None:
        self._http, self._base = http, f"{url.rstrip('/')}/v1/tasks/{uid}/batches"
        self._headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        self._headers["accept-encoding"] = "identity"
        self.url = url

    def call(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The answer; raises `RefusedError` or `UnreachableError`."""
        import httpx

        terms = {"content": json.dumps(body), "headers": self._headers}
        try:
            with self._http.stream(method, f"{self._base}/{path}", **terms) as answer:
                if answer.status_code == HTTPStatus.CONFLICT:
                    raise RefusedError(self.url)
                if not answer.is_success:
                    raise UnreachableError(f"{self.url}: HTTP {answer.status_code}")
                content = json.loads(self._read(answer))
        except (httpx.HTTPError, ValueError, RecursionError) as error:
            raise UnreachableError(f"{self.url}: {type(error).__name__}") from None
        if not isinstance(content, dict):
            raise UnreachableError(f"{self.url}: an answer is not valid")
        return content

    def _read(self, answer: Any) -> bytes:
        """The body, as it came: a compressed one might unpack to any size."""
        body = bytearray()
        for part in answer.iter_raw():
            body += part
            if len(body) > messages.LARGEST_MESSAGE:
                raise UnreachableError(f"{self.url}: an answer is too large")
        return bytes(body)


def collect(
    clients: Sequence[AggregatorClient], batch: CompleteBatch, epsilon: float
) -> tuple[list[str], float]:
    """Let both aggregators release a batch; its missing decisions, and its noisy sum.

    One of them may be dishonest: for any answer the batch is released, waits or is given up.
    """
    asked = batch.ids[: messages.MOST_IN_BATCH]
    body, path = {"ids": asked}, f"{batch.label}/release"
    try:
        fixed = [each.call("PUT", batch.label, body) for each in clients]
        lacking = [[str(id) for id in each["missing"]] for each in fixed]
        words = [{"missing": lacking[n], "statement": fixed[n]["statement"]} for n in (1, 0)]
        sums = [
            each.call("POST", path, body | word) for each, word in zip(clients, words, strict=True)
        ]
        agreed = set(asked).difference(*lacking)
        if any(each["agreed"] != messages.ids_digest(agreed) for each in sums):
            raise RefusedError("the aggregators summed different decisions")
        releases = [each["noisy_sum"] for each in sums]
        total = messages.sum_of_rewards(releases, len(agreed), epsilon)
    except (KeyError, TypeError, ValueError) as error:
        raise UnreachableError(f"an answer is not valid: {type(error).__name__}") from None
    if total is None:
        raise RefusedError("its rewards and noise do not reach the released sum")
    return [id for id in batch.ids if id not in agreed], total / GRID_STEPS


class ShareCollector(threading.Thread):
    """Collects the releases of all experiments with aggregators, each in a thread of its own."""

    def __init__(self, service: Service) -> None:
        super().__init__(name="balaclava-collector", daemon=True)
        self._service = service
        self._stopping = threading.Event()
        self._later: dict[str, tuple[float, float]] = {}  # by uid: next attempt, wait before it
        self._working: dict[str, threading.Thread] = {}  # by uid
        self._http: Any = None

    def run(self) -> None:
        """Make a pass every so often, until stopped."""
        while not self._stopping.wait(SEARCH_SECONDS):
            with self._faults_logged():
                self.run_once()

    def stop(self) -> None:
        """End after the current batches; wait a little for them."""
        self._stopping.set()
        end = time.monotonic() + _LAST_BATCH_SECONDS
        for thread in (self, *self._working.values()):
            thread.join(max(end - time.monotonic(), 0.0))

    def run_once(self) -> None:
        """Start to collect what is complete, of experiments whose aggregators answered last."""
        self._working = {uid: each for uid, each in self._working.items() if each.is_alive()}
        for experiment in self._service.all_committed():
            definition = experiment.definition
            moment, _ = self._later.get(definition.uid, (0.0, 0.0))
            due = definition.is_split and not experiment.is_over
            if not due or definition.uid in self._working or time.monotonic() < moment:
                continue
            batches = complete_batches(self._service, experiment)
            for first in itertools.islice(batches, 1):
                terms = experiment, self._client(), itertools.chain([first], batches)
                thread = threading.Thread(target=self._collect_all, args=terms, daemon=True)
                self._working[definition.uid] = thread
                thread.start()

    def _collect_all(
        self, experiment: ServedExperiment, http: Any, batches: Iterator[CompleteBatch]
    ) -> None:
        uid = experiment.definition.uid
        with self._faults_logged():
            try:
                for batch in batches:
                    if self._stopping.is_set():
                        return
                    self._collect(experiment, http, batch)
                self._later.pop(uid, None)
            except UnreachableError as error:
                log.warning("experiment %d: releases wait for %s", experiment.id, error)
                _, wait = self._later.get(uid, (0.0, SEARCH_SECONDS))
                wait = min(2.0 * wait, _LONGEST_BACKOFF)
                self._later[uid] = time.monotonic() + wait, wait

    def _collect(self, experiment: ServedExperiment, http: Any, batch: CompleteBatch) -> None:
        definition, vault = experiment.definition, self._service.vault
        clients = [
            AggregatorClient(
                http, url, definition.uid, messages.decider_key(vault, definition, side)
            )
            for side, url in enumerate(definition.aggregators or ())
        ]
        try:
            terms = collect(clients, batch, experiment.policy.parameters["epsilon"])
        except RefusedError as error:
            log.error("experiment %d: batch given up: %s", experiment.id, error)
            terms = batch.ids, 0.0
        self._service.run_job(ApplyRelease(definition.name, batch, *terms))

    @contextlib.contextmanager
    def _faults_logged(self) -> Iterator[None]:
        """Log what goes wrong, and go on."""
        try:
            yield
        except (Problem, TimeoutError, *DATABASE_ERRORS):
            if not self._stopping.is_set():
                log.warning("releases wait: the database does not answer")
        except Exception:
            log.exception("collecting releases failed")

    def _client(self) -> Any:
        if self._http is None:
            require_extra("httpx", "asking aggregators")
            import httpx

            self._http = httpx.Client(timeout=httpx.Timeout(_RELEASE_SECONDS, connect=5.0))
        return self._http
