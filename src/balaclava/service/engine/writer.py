"""The writer: batches queued jobs, applies them, commits, and only then answers."""

import asyncio
import contextlib
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from balaclava.service.engine.cleanup import CleanUp
from balaclava.service.engine.jobs import CloseWindows, NoteTime, WriteJob
from balaclava.service.engine.leasing.granting import RETURN_LEASE
from balaclava.service.engine.leasing.held_leases import LeaseBook
from balaclava.service.engine.served_experiment import ServedExperiment
from balaclava.service.engine.unit_of_work import (
    LeaseLostError,
    OverdueWindowsError,
    Prefetch,
    SegmentTakenError,
    UnitOfWork,
)
from balaclava.service.problems import Problem
from balaclava.service.store.ledger import Ledger
from balaclava.service.store.sql import COUNT_COMMIT, execute_many, fetch
from balaclava.service.store.storage import DATABASE_ERRORS, Storage, driver_message

log = logging.getLogger("balaclava.service")

# Decisions and rewards. 10,000 is the largest request; a full queue answers 503.
MOST_WAITING = 50_000
_MOST_PER_COMMIT = 10_000
_MOST_JOBS = 512  # jobs per commit
_MOST_RETRIES = 3  # of a commit by leases that another process has settled
# Seconds
_TICK = 0.5  # between two searches for ended windows
_NOTE = 3600.0  # between two notes of the time
_CATCH_UP = 1.0  # for which a request waits for ended windows to be closed
_AFTER_FAULT = 0.2  # before the next commit: the database needs time to recover
_NOT_COMMITTED = "the database did not confirm the commit; retry with the same request_id"

Waiter = Future[Any] | asyncio.Future[Any]  # of a thread, or of a request's event loop
_Waiting = tuple[WriteJob, Waiter]


class Clock:
    """The service's time, in seconds since 1970. It never goes back."""

    def __init__(self) -> None:
        self._start = time.time() - time.monotonic()

    def now(self) -> float:
        """The time, by the monotonic clock: setting the machine's clock has no effect."""
        return self._start + time.monotonic()

    def catch_up(self, moment: float) -> None:
        """Advance to a later time, such as that of another process."""
        self._start += max(moment - self.now(), 0.0)


class Writer:
    """A thread between the requests and the database.

    Experiments in memory are those of the last commit. If a commit fails, they are discarded and
    read again: noise that was drawn but not committed is never used.
    """

    def __init__(self, storage: Storage, ledger: Ledger, clock: Clock) -> None:
        self._storage, self._ledger, self._clock = storage, ledger, clock
        self._counter = ""  # of this process's commits
        self._cache: dict[int, ServedExperiment] = {}
        self._leases = None if storage.one_process else LeaseBook()
        self._queue: deque[_Waiting] = deque()
        self._weight = 0
        self._wake = threading.Condition()
        self._stopping = False
        self._unrecorded: dict[str, int] = {}  # versions that the ledger must record
        self._next_tick = self._next_note = 0.0
        self.observe_commit: Callable[[float], None] = lambda seconds: None
        self.committed_at = self.failed_at = -math.inf  # by the monotonic clock
        self._thread = threading.Thread(target=self._run, name="balaclava-writer", daemon=True)

    def start(self) -> None:
        self._counter = self._storage.new_commit_counter()
        self._thread.start()

    def stop(self) -> None:
        """Finish the queue, and stop the thread."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join()

    @property
    def waiting(self) -> int:
        """Number of decisions and rewards in the queue."""
        return self._weight

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def submit(self, job: WriteJob) -> Future[Any]:
        """Queue a job; the future gets the answer after the commit."""
        future: Future[Any] = Future()
        self.submit_for(future, job)
        return future

    def submit_for(self, waiter: Waiter, job: WriteJob) -> None:
        """Queue a job for an existing future."""
        with self._wake:
            if self._stopping:
                raise Problem(503, "the service is stopping; retry", retry_after=5)
            if self._weight and self._weight + job.weight > MOST_WAITING:
                raise Problem(503, "the queue is full; retry", retry_after=1)
            self._weight += job.weight
            self._queue.append((job, waiter))
            self._wake.notify()

    def _run(self) -> None:
        while batch := self._next_batch():
            try:
                self._commit(batch)
            except Exception:
                log.exception("the writer failed")
                self._cache.clear()
                self._answer(batch, [Problem(500, "internal error; nothing was recorded")])
        with contextlib.suppress(Problem, *DATABASE_ERRORS):
            self._return_leases()
            self._record()
            self._storage.note_recorded(self._counter)

    def _return_leases(self) -> None:
        """Let other processes settle the leases of this one at once."""
        unused = [] if self._leases is None else self._leases.all_leases()
        if unused:
            with self._storage.writing() as connection:
                execute_many(connection, RETURN_LEASE, [(lease.id,) for lease in unused])

    def _next_batch(self) -> list[_Waiting]:
        """Take the next jobs, with `CloseWindows` at each tick; none after `stop`."""
        with self._wake:
            while not self._queue and not self._stopping and self._until_tick() > 0:
                self._wake.wait(self._until_tick())
            batch: list[_Waiting] = []
            if self._until_tick() <= 0 and not self._stopping:
                # By the clock only: a tick for each job would reveal that rewards arrived.
                self._next_tick = (self._clock.now() // _TICK + 1) * _TICK
                batch.append((CloseWindows(), Future()))
                batch.append((CleanUp(), Future()))
                if self._clock.now() >= self._next_note:
                    self._next_note = self._clock.now() + _NOTE
                    batch.append((NoteTime(), Future()))
            weight = 0
            while self._queue and len(batch) < _MOST_JOBS:
                job = self._queue[0][0]
                if batch and weight + job.weight > _MOST_PER_COMMIT:
                    break
                weight += job.weight
                batch.append(self._queue.popleft())
            self._weight -= weight
            return batch

    def _until_tick(self) -> float:
        return self._next_tick - self._clock.now()

    def _commit(self, batch: list[_Waiting]) -> None:
        """Commit a batch. If a job raises, answer it, and commit the others."""
        retries = _MOST_RETRIES
        while batch:
            work: UnitOfWork | None = None
            answers: list[Any] = []
            began = time.perf_counter()
            try:
                self._record()  # the last commit, if the ledger failed after it
                with self._storage.writing() as connection:
                    work = self._new_work(connection)
                    prefetch = Prefetch()
                    for job, _ in batch:
                        job.prefetch(prefetch)
                    work.load(prefetch)
                    for job, _ in batch:
                        try:
                            answers.append(job.apply(work))
                        except (Problem, OverdueWindowsError) as problem:
                            answers.append(problem)
                    wrote = work.store()
                    unrecorded = self._checked_versions(work, wrote)
                now = work.now
                work.note_committed()
                work = None  # what is in memory is committed
                self._unrecorded.update(unrecorded)
                self._storage.require_in_place()
                self._record()
            except Problem as problem:  # of the ledger or the files: those of jobs are in `answers`
                self._refuse(batch, work, problem, problem.detail)
                return
            except (LeaseLostError, IntegrityError) as error:
                used_leases = self._discard(work)
                if (used_leases or isinstance(error, SegmentTakenError)) and retries > 0:
                    retries -= 1
                    continue  # by the rows of the experiments
                refusal = Problem(503, _NOT_COMMITTED, retry_after=1)
                self._refuse(batch, work, refusal, type(error).__name__)
                return
            except DATABASE_ERRORS as error:
                refusal = Problem(503, _NOT_COMMITTED, retry_after=1)
                self._refuse(batch, work, refusal, driver_message(error))
                return
            except Exception:
                self._discard(work)
                if len(answers) >= len(batch):
                    raise
                log.exception("a request failed")
                broken = batch.pop(len(answers))
                self._answer([broken], [Problem(500, "internal error; nothing was recorded")])
                continue
            self._clock.catch_up(now)
            if wrote:
                self.committed_at = time.monotonic()
                self.observe_commit(time.perf_counter() - began)
            self._answer(batch, answers)
            return

    def _new_work(self, connection: Connection) -> UnitOfWork:
        now = self._clock.now()
        return UnitOfWork(self._storage, connection, self._cache, now, self._ledger, self._leases)

    def _checked_versions(self, work: UnitOfWork, wrote: bool) -> dict[str, int]:
        """Compare the database with the ledger; returns the versions to record after the commit."""
        loaded, now = work.versions()
        if wrote:
            (count,) = fetch(work.connection, COUNT_COMMIT, [self._counter]) or [("0",)]
            loaded[self._counter], now[self._counter] = int(count[0]) - 1, int(count[0])
        if not loaded:
            return {}
        unrecorded = self._ledger.check_commits(loaded)
        if work.created:
            self._ledger.prepare_creation(work.created)
        return {
            uid: version
            for uid, version in now.items()
            if uid in unrecorded or version != loaded.get(uid)
        }

    def _record(self) -> None:
        """Flush the versions of commits, before an answer leaves."""
        if self._unrecorded:
            self._ledger.record_commits(self._unrecorded)
            self._unrecorded = {}

    def _refuse(
        self, batch: list[_Waiting], work: UnitOfWork | None, problem: Problem, why: str
    ) -> None:
        self._discard(work)
        self.failed_at = time.monotonic()
        log.error("a commit failed: %s", why)
        self._answer(batch, [problem])
        time.sleep(_AFTER_FAULT)

    def _discard(self, work: UnitOfWork | None) -> bool:
        """Forget what is not committed in memory; returns whether leases were used."""
        for id in work.by_id if work else ():
            self._cache.pop(id, None)
        return work is not None and work.drop_leases()

    def _answer(self, batch: list[_Waiting], answers: list[Any]) -> None:
        if len(answers) == 1:
            answers = answers * len(batch)
        ready = []
        for (job, waiter), answer in zip(batch, answers, strict=True):
            if isinstance(answer, OverdueWindowsError):
                self._requeue(job, waiter)
            elif isinstance(job, CloseWindows):
                self._next_tick = 0.0 if answer is True else self._next_tick
            else:
                ready.append((waiter, answer))
        resolve(ready)

    def _requeue(self, job: WriteJob, waiter: Waiter) -> None:
        """Queue a job again, for a while: the next commit closes more windows first."""
        now = time.monotonic()
        job.since = job.since or now
        if now - job.since > _CATCH_UP:
            catching_up = "catching up: many reward windows ended while the service was down; retry"
            resolve([(waiter, Problem(503, catching_up, retry_after=1))])
            return
        with self._wake:
            if waiter.done():  # cancelled, or timed out
                return
            if not self._stopping:
                self._weight += job.weight
                self._queue.append((job, waiter))
                return
        resolve([(waiter, Problem(503, _NOT_COMMITTED, retry_after=5))])


def resolve(answers: Sequence[tuple[Waiter, Any]]) -> None:
    """Set the results of futures, waking each event loop once: a wake-up is slow."""
    loops: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = {}
    for waiter, answer in answers:
        if isinstance(waiter, Future):
            if waiter.set_running_or_notify_cancel():
                _set_result(waiter, answer)
        else:
            loops.setdefault(waiter.get_loop(), []).append((waiter, answer))
    for loop, waiting in loops.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(_resolve_all, waiting)


def _resolve_all(answers: Sequence[tuple[asyncio.Future[Any], Any]]) -> None:
    for waiter, answer in answers:
        if not waiter.done():  # the caller may have gone
            _set_result(waiter, answer)


def _set_result(waiter: Waiter, answer: Any) -> None:
    if isinstance(answer, Problem):
        waiter.set_exception(answer)
    else:
        waiter.set_result(answer)
