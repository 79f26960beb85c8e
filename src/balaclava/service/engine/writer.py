"""The one who writes: takes what has gathered, applies it, commits, and only then answers."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from concurrent.futures import Future
from typing import Any

from balaclava.service.engine.answers import Waiter, resolve
from balaclava.service.engine.clock import Clock
from balaclava.service.engine.jobs import CloseWindows, WriteJob
from balaclava.service.engine.served_experiment import ServedExperiment
from balaclava.service.engine.unit_of_work import OverdueWindowsError, Prefetch, UnitOfWork
from balaclava.service.problems import Problem
from balaclava.service.store.ledger import Ledger
from balaclava.service.store.storage import DATABASE_ERRORS, Storage, driver_message

log = logging.getLogger("balaclava.service")

MOST_WAITING = 50_000  # decisions and rewards in the queue
_MOST_AT_ONCE = 10_000  # in one transaction
_MOST_JOBS = 512
_TICK = 0.5  # seconds between looks for windows that are over
_QUIET = 0.02  # seconds without a job, after which commits are noted as done
_AFTER_FAULT = 0.2
_NOT_TAKEN = (
    "the database did not take it; nothing was answered from it: send it again, with the same "
    "request_id"
)

_Waiting = tuple[WriteJob, Waiter]


class Writer:
    """A thread between the requests and the database.

    States in memory are those of the last commit. If a commit fails they are thrown away and read
    again, so that nothing that was drawn and not committed is ever used.
    """

    def __init__(self, storage: Storage, ledger: Ledger, clock: Clock) -> None:
        self._storage, self._ledger, self._clock = storage, ledger, clock
        self._cache: dict[int, ServedExperiment] = {}
        self._queue: deque[_Waiting] = deque()
        self._weight = 0
        self._wake = threading.Condition()
        self._stopping = False
        self._done: dict[str, int] = {}  # commits that are to be noted as done
        self._next_tick = 0.0
        self.commits = 0
        self._thread = threading.Thread(target=self._run, name="balaclava-writer", daemon=True)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def stop(self) -> None:
        """Finish what was taken, and end."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join()

    @property
    def waiting(self) -> int:
        """Decisions and rewards in the queue."""
        return self._weight

    @property
    def alive(self) -> bool:
        """Whether it works."""
        return self._thread.is_alive()

    def submit(self, job: WriteJob) -> Future[Any]:
        """Take a job in; its future has the answer once it is on the disk."""
        future: Future[Any] = Future()
        self.submit_for(future, job)
        return future

    def submit_for(self, waiter: Waiter, job: WriteJob) -> None:
        """The same, for one who waits already."""
        with self._wake:
            if self._stopping:
                raise Problem(503, "the service is stopping; try again", retry_after=5)
            if self._weight and self._weight + job.weight > MOST_WAITING:
                raise Problem(503, "more is waiting than can be taken in; try again", retry_after=1)
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
                self._answer(batch, [Problem(500, "an internal error; nothing was recorded")])
        self._note_done()

    def _next_batch(self) -> list[_Waiting]:
        """What has gathered; a look for windows where nothing has; nothing at the end."""
        with self._wake:
            if not self._queue and self._done and not self._stopping:
                self._wake.wait(_QUIET)
            if not self._queue and self._done:
                self._wake.release()
                try:
                    self._note_done()
                finally:
                    self._wake.acquire()
            while not self._queue and not self._stopping and self._until_tick() > 0:
                self._wake.wait(self._until_tick())
            batch: list[_Waiting] = []
            if self._until_tick() <= 0 and not self._stopping:
                # By the clock alone, and not whenever something came: that would tell of rewards.
                self._next_tick = (self._clock.now() // _TICK + 1) * _TICK
                batch.append((CloseWindows(), Future()))
            weight = 0
            while self._queue and len(batch) < _MOST_JOBS:
                job = self._queue[0][0]
                if batch and weight + job.weight > _MOST_AT_ONCE:
                    break
                weight += job.weight
                batch.append(self._queue.popleft())
            self._weight -= weight
            return batch

    def _until_tick(self) -> float:
        return self._next_tick - self._clock.now()

    def _commit(self, batch: list[_Waiting]) -> None:
        """One transaction; a job that breaks is left out of the next try."""
        while batch:
            work: UnitOfWork | None = None
            answers: list[Any] = []
            versions: dict[str, int] = {}
            try:
                with self._storage.writing() as connection:
                    work = UnitOfWork(self._storage, connection, self._cache, self._clock.now())
                    prefetch = Prefetch()
                    for job, _ in batch:
                        job.prefetch(prefetch)
                    work.load(prefetch)
                    for job, _ in batch:
                        try:
                            answers.append(job.apply(work))
                        except (Problem, OverdueWindowsError) as problem:
                            answers.append(problem)
                    versions = work.store()
                    if versions:
                        self._ledger.prepare_commits(versions)
            except Problem as problem:  # the ledger's: those of jobs are answers
                self._refuse(batch, work, problem, problem.detail)
                return
            except DATABASE_ERRORS as error:
                self._refuse(
                    batch, work, Problem(503, _NOT_TAKEN, retry_after=1), driver_message(error)
                )
                return
            except Exception:
                self._forget(work)
                if len(answers) >= len(batch):
                    raise
                log.exception("a request failed")
                broken = batch.pop(len(answers))
                self._answer([broken], [Problem(500, "an internal error; nothing was recorded")])
                continue
            self._clock.catch_up(work.now)
            self._done.update(versions)
            if not self._storage.one_process:
                self._note_done()  # a replica may lag by this very commit
            self.commits += bool(versions) or not isinstance(batch[-1][0], CloseWindows)
            self._answer(batch, answers)
            return

    def _refuse(
        self, batch: list[_Waiting], work: UnitOfWork | None, problem: Problem, why: str
    ) -> None:
        """Nothing of the batch was committed."""
        self._forget(work)
        log.error("a commit failed: %s", why)
        self._answer(batch, [problem])
        time.sleep(_AFTER_FAULT)

    def _forget(self, work: UnitOfWork | None) -> None:
        """Throw away what was computed and not committed."""
        for id in work.by_id if work else ():
            self._cache.pop(id, None)

    def _answer(self, batch: list[_Waiting], answers: list[Any]) -> None:
        if len(answers) == 1:
            answers = answers * len(batch)
        ready = []
        for (job, waiter), answer in zip(batch, answers, strict=True):
            if isinstance(answer, OverdueWindowsError):
                self._take_back(job, waiter)
            elif isinstance(job, CloseWindows):
                self._next_tick = 0.0 if answer is True else self._next_tick
            else:
                ready.append((waiter, answer))
        resolve(ready)

    def _take_back(self, job: WriteJob, waiter: Waiter) -> None:
        """Windows come first: the next transaction ends more of them."""
        with self._wake:
            if waiter.done():  # cancelled, or waited for long enough
                return
            if not self._stopping:
                self._weight += job.weight
                self._queue.append((job, waiter))
                return
        resolve([(waiter, Problem(503, _NOT_TAKEN, retry_after=5))])

    def _note_done(self) -> None:
        versions, self._done = self._done, {}
        if not versions:
            return
        try:
            self._ledger.confirm_commits(versions)
        except DATABASE_ERRORS as error:
            log.error("the ledger did not take a note: %s", driver_message(error))
