"""A server in a process of its own, to be killed, and a client that loads it meanwhile."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx

from balaclava.privacy.mechanisms.laplace import laplace_release
from balaclava.privacy.randomness import SystemRandomness
from balaclava.service.aggregator_app import serve_aggregator
from balaclava.service.http.server import ServerSettings, serve
from tests.service.servers import free_port

laplace_release(SystemRandomness(), 0.0, 1.0, 1.0)  # loads the samplers, once for all forks
# One for all requests: to make one takes tens of milliseconds. A killed server leaves connections
# behind, so none is kept.
HTTP = httpx.Client(limits=httpx.Limits(max_keepalive_connections=0), timeout=60)
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload([__name__])

ARRIVAL, WINDOWS = "arrival", "windows"
# Released often, so that every life has some to lose.
OFTEN = {"epsilon": 20.0, "batch_ratio": 1.01, "index": "paper", "batches": "ratio"}
DEFINITIONS: list[dict[str, Any]] = [
    {
        "name": ARRIVAL,
        "policy": "dp-imed",
        "parameters": OFTEN,
        "arms": ["plain", "friendly", "map"],
        "reward_window": 1e6,
        "rewards_per_person": 2,
        "population": "us",
    },
    {
        "name": WINDOWS,
        "policy": "dp-imed",
        "parameters": OFTEN,
        "arms": ["plain", "map"],
        "reward_window": 0.5,
        "default_reward": 0.0,
    },
]


def _serve(settings: ServerSettings) -> None:
    serve(settings, lambda address, key: None)


def _aggregate(settings: ServerSettings) -> None:
    serve_aggregator(settings, lambda address, key: None)


class Server:
    """The service on a database; every life of it is a process.

    Its target is in this module, which is loaded before the fork: other modules take seconds.
    """

    target = staticmethod(_serve)

    def __init__(self, settings: ServerSettings) -> None:
        self.settings, self.process = settings, None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.settings.port}"

    def start(
        self, target: Callable[[ServerSettings], None] | None = None, until: str = "/readyz"
    ) -> None:
        """A new life; back when it answers."""
        target = target or self.target
        self.process = _PROCESSES.Process(target=target, args=(self.settings,), daemon=True)
        self.process.start()
        deadline = time.monotonic() + 120
        while True:
            try:
                if HTTP.get(f"{self.address}{until}").status_code == 200:
                    return
            except httpx.TransportError:
                pass
            assert self.process.is_alive(), "the server did not start"
            assert time.monotonic() < deadline, "the server is not ready"
            time.sleep(0.02)

    def kill(self) -> None:
        """Without a word."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()

    def stop(self) -> None:
        """In good order."""
        self.process.terminate()
        self.process.join(30)


class Aggregator(Server):
    """One of two aggregators."""

    target = staticmethod(_aggregate)


def keyless_settings(folder: Any, database: str | None = None) -> ServerSettings:
    """On a free port, without keys."""
    return ServerSettings(
        database=database or str(folder / "service.db"),
        ledger=str(folder / "ledger"),
        secrets=str(folder / "key"),
        port=free_port(),
        keys=False,
    )


class Load:
    """Asks for decisions and sends rewards until told to stop; keeps every answer.

    What was asked and not answered is asked again in the next life of the server, under the same
    request_id: whatever was answered twice must be the same.
    """

    def __init__(self, address: str, threads: int = 4) -> None:
        self.address, self._threads = address, threads
        self.requests: dict[tuple[str, str], Any] = {}  # experiment and request_id: the answer
        self.bodies: dict[tuple[str, str], dict[str, Any]] = {}
        self.rewarded: dict[str, set[str]] = {ARRIVAL: set(), WINDOWS: set()}  # and acknowledged
        self.sent: dict[str, str] = {}  # and not acknowledged
        self.releases: dict[tuple[Any, ...], float] = {}  # experiment, arm, rewards: the mean
        self.faults: list[str] = []
        self._number = 0
        self._lock = threading.Lock()

    def run(self, seconds: float, then: Callable[[], None]) -> None:
        """Load for a while, then whatever ends it."""
        stopping = threading.Event()
        works = [self._work] * self._threads + [self._read]
        threads = [threading.Thread(target=work, args=(stopping,)) for work in works]
        for thread in threads:
            thread.start()
        already, deadline = self._number, time.monotonic() + 60
        while self._number < already + 20 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(seconds)
        then()
        stopping.set()
        for thread in threads:
            thread.join()

    def _work(self, stopping: threading.Event) -> None:
        with httpx.Client(base_url=self.address, timeout=60) as client:
            try:
                while not stopping.is_set():
                    with self._lock:
                        number = self._number = self._number + 1
                    name = (ARRIVAL, WINDOWS)[number % 2]
                    body = {"request_id": f"r{number}", "count": 5 * (number % 4) + 1}
                    if name == ARRIVAL:
                        body["person"] = f"p{number // 3}"
                    self.bodies[name, body["request_id"]] = body
                    self.send(client, name, self.ask(client, name, body))
            except httpx.TransportError:
                pass  # it was killed

    def _read(self, stopping: threading.Event) -> None:
        with httpx.Client(base_url=self.address, timeout=60) as client:
            try:
                while not stopping.is_set():
                    self.look(client)
            except httpx.TransportError:
                pass

    def ask(self, client: httpx.Client, name: str, body: dict[str, Any]) -> list[Any]:
        answer = client.post(f"/v1/experiments/{name}/decisions", json=body)
        if answer.status_code == 503:
            return []
        if answer.status_code != 200:
            self.faults.append(f"{answer.status_code} {answer.text}")
            return []
        key = name, body["request_id"]
        if self.requests.setdefault(key, answer.json()) != answer.json():
            self.faults.append(f"{key} was answered differently")
        return answer.json()["decisions"]

    def send(self, client: httpx.Client, name: str, decisions: list[dict[str, Any]]) -> None:
        rewards = [
            {
                "decision_id": each["decision_id"],
                "value": float(random.random() < 0.3 + 0.3 * (each["label"] == "map")),
            }
            for each in decisions
        ]
        self.sent.update((each["decision_id"], name) for each in rewards)
        answer = client.post("/v1/rewards", json=rewards)
        for each in answer.json() if answer.status_code == 200 else ():
            if each.get("recorded"):
                self.rewarded[name].add(each["decision_id"])
                self.sent.pop(each["decision_id"], None)
            elif (each["status"], name) != (410, WINDOWS):
                self.faults.append(str(each))
        if answer.status_code not in (200, 503):
            self.faults.append(f"{answer.status_code} {answer.text}")

    def look(self, client: httpx.Client) -> None:
        """A mean over so many rewards is drawn once: with another noise it would be another."""
        for name in (ARRIVAL, WINDOWS):
            answer = client.get(f"/v1/experiments/{name}/results")
            if answer.status_code == 503:
                return
            for arm in answer.json()["arms"]:
                if arm["rewards"]:
                    key = name, arm["arm"], arm["rewards"]
                    if self.releases.setdefault(key, arm["mean"]) != arm["mean"]:
                        self.faults.append(f"{key} was released twice")

    def catch_up(self, client: httpx.Client) -> None:
        """After a crash: ask again, and send what was not acknowledged."""
        self.look(client)
        answered = random.sample(sorted(self.requests), min(100, len(self.requests)))
        for key in {*answered, *(self.bodies.keys() - self.requests.keys())}:
            self.ask(client, key[0], self.bodies[key])
        for (name, _), answer in list(self.requests.items()):
            again = [each for each in answer["decisions"] if each["decision_id"] in self.sent]
            if again:
                self.send(client, name, again)
