"""Two aggregators and a decider as processes, each killed at random moments under load."""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import httpx
import pytest

from balaclava.privacy.secret_shares import reward_steps, split
from balaclava.service import share_messages as messages
from balaclava.service.http.server import ServerSettings
from balaclava.service.service import Service
from balaclava.service.store.schema import AWAITED, GIVEN_UP, OPEN, REWARDED
from tests.service.aggregation.share_pair import share_body
from tests.service.server_process import HTTP, OFTEN, Aggregator, Server, keyless_settings

pytestmark = pytest.mark.crash

WINDOW = 1.5  # seconds
EPSILON = 1e6  # next to no noise, so that rewards can be counted
EXPERIMENT: dict[str, Any] = {
    "name": "shop",
    "policy": "dp-imed",
    # Releases for every life to lose, of batches that grow: an arm has at most 32 open ones.
    "parameters": {
        **OFTEN,
        "epsilon": EPSILON,
        "first_batch": 6,
        "batch_ratio": 1.05,
        "trust": "split",
    },
    "arms": ["plain", "map"],
    "reward_window": WINDOW,
    "default_reward": 0.0,
}
BITS = messages.task_bits(EPSILON)


class Devices:
    """Threads that ask the decider, and send shares until they are acknowledged or too late."""

    def __init__(self, decider: Server, aggregators: list[Aggregator], uid: str) -> None:
        self._decider, self._aggregators, self._uid = decider, aggregators, uid
        self.rewards: dict[str, float] = {}  # of decisions whose shares were sent, perhaps
        self.acknowledged: set[str] = set()  # by both
        self.faults: list[str] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(3)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while not self._stop.is_set():
            try:
                path = f"{self._decider.address}/v1/experiments/shop/decisions"
                answer = HTTP.post(path, json={"count": 8}, timeout=10)
            except httpx.TransportError:
                time.sleep(0.02)
                continue
            learning = [each for each in answer.json().get("decisions", ()) if each["learns"]]
            for each in learning:
                if random.random() < 0.9:  # the others never send
                    self._send(each)
            if not learning:
                time.sleep(0.1)  # until a batch is released

    def _send(self, decision: dict[str, Any]) -> None:
        id = decision["decision_id"]
        self.rewards[id] = reward = float(random.random() < 0.3 + 0.4 * decision["arm"])
        pair = split(reward_steps(reward), BITS)
        sent = [self._send_share(side, decision, pair[side]) for side in (0, 1)]
        if all(sent):
            self.acknowledged.add(id)

    def _send_share(self, side: int, decision: dict[str, Any], share: int) -> bool:
        address = self._aggregators[side].address
        path = f"{address}/v1/tasks/{self._uid}/shares/{decision['decision_id']}"
        body = share_body(share, decision["ticket"], EPSILON, BITS)
        end = time.monotonic() + 0.5 * WINDOW
        while time.monotonic() < end:
            try:
                answer = HTTP.put(path, json=body, timeout=10)
            except httpx.TransportError:
                time.sleep(0.02)
                continue
            if answer.status_code not in (200, 410, 503):
                self.faults.append(f"{answer.status_code} {answer.text}")
            if answer.status_code != 503:
                return answer.status_code == 200
        return False


class Observer:
    """Asks for releases again, as the decider does, and compares them with what it saw before."""

    def __init__(self, database: str, aggregators: list[Aggregator], keys: list[str], uid: str):
        self._database, self._aggregators, self._keys = database, aggregators, keys
        self._uid = uid
        self.seen: dict[str, list[Any]] = {}  # by label: what both released

    def batches(self) -> dict[str, list[str]]:
        """The ids of batches that the decider has closed."""
        batches: dict[str, list[str]] = defaultdict(list)
        connection = sqlite3.connect(f"file:{self._database}?mode=ro", uri=True)
        query = "SELECT arm, phase, id FROM decisions WHERE state IN (?, ?) ORDER BY round"
        for arm, phase, id in connection.execute(query, (REWARDED, GIVEN_UP)):
            batches[f"{arm}.{phase}"].append(id)
        connection.close()
        return batches

    def look(self, most: int) -> None:
        batches = self.batches()
        for label in random.sample(sorted(batches), min(most, len(batches))):
            ids = {"ids": batches[label]}
            fixed = [self._ask(side, "PUT", label, ids) for side in (0, 1)]
            sums = [
                self._ask(side, "POST", f"{label}/release", {**ids, **fixed[1 - side]})
                for side in (0, 1)
            ]
            assert self.seen.setdefault(label, sums) == sums, "a batch was released twice"
            assert sums[0]["agreed"] == sums[1]["agreed"], "the sets of both differ"

    def _ask(self, side: int, method: str, path: str, body: Any) -> Any:
        address = f"{self._aggregators[side].address}/v1/tasks/{self._uid}/batches/{path}"
        headers = {"authorization": f"Bearer {self._keys[side]}"}
        answer = HTTP.request(method, address, json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()


def check_kills(folder: Path, kills: int, pause: float) -> None:
    folders = [folder / name for name in ("one", "other", "decider")]
    for each in folders:
        each.mkdir()
    aggregators = [Aggregator(keyless_settings(each)) for each in folders[:2]]
    decider = Server(keyless_settings(folders[2]))
    servers = [*aggregators, decider]
    for server in servers:
        server.start()
    definition = EXPERIMENT | {"aggregators": [each.address for each in aggregators]}
    made = HTTP.post(f"{decider.address}/v1/experiments", json=definition)
    assert made.status_code == 201, made.text
    tasks = HTTP.get(f"{decider.address}/v1/experiments/shop/tasks").json()["tasks"]
    for server, each in zip(aggregators, tasks, strict=True):
        task = each["task"] | {"peer_key": "p" * 32}
        added = HTTP.put(f"{server.address}/v1/tasks/{each['uid']}", json=task)
        assert added.status_code == 201, added.text
    uid, keys = tasks[0]["uid"], [each["task"]["decider_key"] for each in tasks]
    devices = Devices(decider, aggregators, uid)
    observer = Observer(decider.settings.database, aggregators, keys, uid)
    devices.start()
    for kill in range(kills):
        time.sleep(random.uniform(0.5, 1.0) * pause)
        victim = servers[kill % 3]
        victim.kill()
        victim.start()
        observer.look(3)
    devices.stop()
    wait_until_closed(observer)
    observer.look(10_000)
    for server in servers:
        server.stop()
    assert devices.faults == []
    check_counts(decider.settings, devices, observer)


def wait_until_closed(observer: Observer) -> None:
    """Wait for the last windows, and then as long as releases come."""
    time.sleep(WINDOW)
    count, still = -1, 0
    while still < 4:
        time.sleep(0.6)
        closed = len(observer.batches())
        count, still = closed, still + 1 if closed == count else 0


def check_counts(settings: ServerSettings, devices: Devices, observer: Observer) -> None:
    """Every reward that both acknowledged is in one sum, and every sum has its rewards alone."""
    files = {"ledger": settings.ledger, "secrets": settings.secrets}
    service = Service.open(settings.database, **files)
    try:
        pools = service.committed("shop").runner.state
        assert not list(pools.faults(10**9))
        with service.storage.reading() as connection:
            query = "SELECT id, state, arm || '.' || phase FROM decisions WHERE learns = 1"
            rows = connection.exec_driver_sql(query).all()
    finally:
        service.close()
    states = {id: state for id, state, _ in rows}
    assert set(states.values()) <= {OPEN, REWARDED, GIVEN_UP, AWAITED}
    counted = [id for id, state in states.items() if state == REWARDED]
    assert int(pools.rewards.sum()) == len(counted)
    total = float((pools.pooled * pools.rewards).sum())
    assert total == pytest.approx(sum(devices.rewards[id] for id in counted), abs=0.01)
    lost = [id for id in devices.acknowledged if states[id] == GIVEN_UP]
    assert lost == []
    assert sum(each[0]["size"] for each in observer.seen.values()) == len(counted)
    assert len(observer.seen) >= 4
    assert len(devices.acknowledged & set(counted)) >= 20


def test_each_process_is_killed(tmp_path: Path) -> None:
    check_kills(tmp_path, 3, 1.0)


@pytest.mark.slow
def test_a_hundred_kills(tmp_path: Path) -> None:
    check_kills(tmp_path, 100, 0.6)
