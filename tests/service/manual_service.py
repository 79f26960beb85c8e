"""A service whose clock, randomness and ids the test controls.

All of it is put around the application by the test process; nothing that the server takes in can.
"""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from balaclava.service.engine import served_experiment as experiments
from balaclava.service.engine.jobs import WriteJob
from balaclava.service.engine.unit_of_work import Prefetch, UnitOfWork
from balaclava.service.engine.writer import Clock
from balaclava.service.http.app import create_app
from balaclava.service.service import Service

START = 1_800_000_000.0
SHOP: dict[str, Any] = {
    "name": "shop",
    "policy": "dp-imed",
    "parameters": {"epsilon": 4.0},
    "arms": ["plain", "map"],
    "reward_window": 5.0,
    "default_reward": 0.0,
}


class ManualClock(Clock):
    """Stands still until the test moves it."""

    def __init__(self) -> None:
        super().__init__()
        self.moment = START

    def now(self) -> float:
        return self.moment

    def catch_up(self, moment: float) -> None:
        self.moment = max(self.moment, moment)


class EmptyJob(WriteJob):
    """Changes nothing: its answer proves that the writer has seen the time."""

    def apply(self, work: UnitOfWork) -> None:
        return None


class CloseAll(WriteJob):
    """Close ended windows, and answer."""

    def prefetch(self, wanted: Prefetch) -> None:
        wanted.due = True

    def apply(self, work: UnitOfWork) -> None:
        """`UnitOfWork.load` has closed them."""


class ManualService:
    """A service without keys, and a client of it."""

    def __init__(self, folder: Path, rng: Any, patch: pytest.MonkeyPatch) -> None:
        self._folder, self._patch = folder, patch
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "service.key").write_bytes(b"k" * 32)
        ids = (f"{number:022d}" for number in itertools.count())
        patch.setattr(experiments, "SystemRandomness", lambda: rng)
        patch.setattr(
            experiments, "new_decision_ids", lambda count: list(itertools.islice(ids, count))
        )
        patch.setattr(
            "balaclava.service.store.ledger.time",
            SimpleNamespace(time=lambda: START, monotonic=time.monotonic),
        )
        self.clock = ManualClock()
        self.metric: str | None = None
        self.open()

    def open(self) -> None:
        self._patch.setattr("balaclava.service.service.Clock", lambda: self.clock)
        self.service = Service.open(str(self._folder / "service.db"))
        app = create_app(self.service, keys=False)
        self.client = TestClient(app, base_url="http://localhost", cookies={"balaclava_visit": "v"})
        self.client.__enter__()  # one event loop for all requests

    def close(self) -> None:
        self.client.__exit__(None, None, None)

    def restart(self) -> None:
        self.close()
        self.open()

    def wait(self, seconds: float) -> None:
        self.clock.moment += seconds
        self.service.run_job(EmptyJob())
        deadline = time.monotonic() + 30
        while any(each.overdue for each in self.service.writer._cache.values()):
            assert time.monotonic() < deadline
            self.service.run_job(EmptyJob())

    def send(self, id: str, value: float) -> Any:
        body: dict[str, Any] = {"value": value}
        if self.metric is not None:  # a guardrail's reading, which follows the reward
            body["metrics"] = {self.metric: value}
        return self.client.put(f"/v1/decisions/{id}/reward", json=body)


def plain(answer: Any) -> tuple[Any, ...]:
    """All of an answer that can be seen."""
    headers = {name: value for name, value in answer.headers.items() if name != "date"}
    return str(answer.request.url), answer.status_code, headers, answer.text


def metrics(text: str) -> list[str]:
    """Without how long it took, and when the process began."""
    noise = ("_bucket{", "_sum", "_created")
    return [line for line in text.splitlines() if not any(each in line for each in noise)]
