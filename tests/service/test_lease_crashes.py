"""Several processes decide for one experiment, and are killed: nothing lost, nothing twice."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import func, select

from balaclava.service.service import Service
from balaclava.service.store.schema import decisions
from tests.service.server_process import Server, keyless_settings

pytestmark = pytest.mark.crash

CAP = 3
LEAST = 15  # requests, so that a slow machine leases too
WINDOW, TERM = 2.0, 2.0  # seconds: of a reward, and of a lease
EXPERIMENT: dict[str, Any] = {
    "name": "shop",
    "policy": "dp-imed",
    # Sums of rewards are released almost without noise, so that they can be counted.
    "parameters": {"epsilon": 1e6, "first_batch": 400},
    "arms": ["plain", "map"],
    "reward_window": WINDOW,
    "default_reward": 0.0,
    "rewards_per_person": CAP,
    "deciders": 3,
}


class Callers:
    """Threads that ask any process, and ask another one when it does not answer."""

    def __init__(self, servers: list[Server]) -> None:
        self._servers = servers
        self.answers: dict[str, Any] = {}  # by request_id
        self.persons: dict[str, str] = {}
        self.acknowledged: dict[str, float] = {}  # rewards by decision
        self.unsure: dict[str, float] = {}  # sent, without an answer
        self.faults: list[str] = []
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._call, args=(n,), daemon=True) for n in range(4)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def post(self, path: str, body: Any) -> Any:
        """The answer of some process; the same request goes to another one until one answers."""
        end, last = time.monotonic() + 60, "no connection"
        while time.monotonic() < end:
            address = random.choice(self._servers).address
            try:
                answer = httpx.post(f"{address}{path}", json=body, timeout=30)
            except httpx.TransportError:
                time.sleep(0.02)
                continue
            if answer.status_code != 503:
                if answer.status_code != 200:
                    self.faults.append(f"{answer.status_code} {answer.text}")
                return answer.json()
            last = answer.text
            time.sleep(0.05)
        self.faults.append(f"{path} was never answered: {last}")
        return {"decisions": []} if path.endswith("decisions") else []

    def _call(self, thread: int) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            request = f"{thread} {number}"
            count = random.choice((1, 1, 2, 5, 5, 100))
            body: dict[str, Any] = {"request_id": request, "count": count}
            if number % 2:
                body["person"] = self.persons[request] = f"p{number // 3}"
                body["count"] = min(count, 5)
            answer = self.post("/v1/experiments/shop/decisions", body)
            self.answers[request] = answer["decisions"]
            if random.random() < 0.1:
                again = self.post("/v1/experiments/shop/decisions", body)
                if again != answer:
                    self.faults.append(f"{request} was answered differently")
            self._reward([each["decision_id"] for each in answer["decisions"] if each["learns"]])

    def _reward(self, ids: list[str]) -> None:
        rewards = [{"decision_id": id, "value": float(random.random() < 0.5)} for id in ids]
        if not rewards:
            return
        sent = {each["decision_id"]: each["value"] for each in rewards}
        self.unsure.update(sent)
        for id, answer in zip(sent, self.post("/v1/rewards", rewards), strict=False):
            if answer.get("recorded"):
                self.acknowledged[id] = self.unsure.pop(id)
            elif answer["status"] != 410:  # 410 after a lost answer: it may have counted
                self.faults.append(str(answer))


def check_kills(folder: Path, database: str, seconds: float) -> None:
    servers = [Server(keyless_settings(folder, database)) for _ in range(3)]
    for server in servers:
        server.start()
    created = httpx.post(f"{servers[0].address}/v1/experiments", json=EXPERIMENT, timeout=60)
    assert created.status_code == 201, created.text
    callers, kills = Callers(servers), 0
    callers.start()
    end = time.monotonic() + seconds
    while time.monotonic() < end or (len(callers.answers) < LEAST and time.monotonic() < end + 30):
        time.sleep(random.uniform(0.5, 2.0))
        victim = random.choice(servers)
        victim.kill()
        victim.start()
        kills += 1
    callers.stop()
    time.sleep(7.0)  # leases and windows end
    for server in servers:
        server.stop()
    assert callers.faults == []
    assert kills > 0
    service = Service.open(database, ledger=str(folder / "ledger"), secrets=str(folder / "key"))
    try:
        experiment = service.committed("shop")
        check_counts(callers, experiment)
        with service.storage.reading() as connection:
            table = decisions.c
            waited = table.closes - table.made < WINDOW + TERM - 0.01  # in a lease
            by_lease = connection.scalar(select(func.count()).where(waited, table.learns))
        expired = experiment.counters.rounds - sum(experiment.counters.learning)
        assert by_lease + expired > 0
    finally:
        service.close()


def check_counts(callers: Callers, experiment: Any) -> None:
    """Every answered decision once, every acknowledged reward once, and every cap kept."""
    made = [each for answer in callers.answers.values() for each in answer]
    assert len({each["decision_id"] for each in made}) == len(made)
    assert sum(experiment.counters.decisions) == len(made)
    learned = sum(each["learns"] for each in made)
    assert sum(experiment.counters.learning) == learned
    assert experiment.counters.closed == experiment.counters.rounds >= learned
    persons: dict[str, int] = {}
    for request, person in callers.persons.items():
        count = sum(each["learns"] for each in callers.answers.get(request, ()))
        persons[person] = persons.get(person, 0) + count
    assert max(persons.values()) == CAP
    pools = experiment.runner.state
    assert not list(pools.faults(experiment.counters.rounds))
    total = float((pools.pooled * pools.rewards).sum() + pools.sums.sum())
    least = sum(callers.acknowledged.values())
    assert least - 0.01 <= total <= least + sum(callers.unsure.values()) + 0.01
    assert least > 0


def test_processes_killed_for_some_seconds(tmp_path: Path, postgres: str) -> None:
    check_kills(tmp_path, postgres, 4.0)


@pytest.mark.slow
def test_processes_killed_for_a_minute(tmp_path: Path, postgres: str) -> None:
    check_kills(tmp_path, postgres, 60.0)
