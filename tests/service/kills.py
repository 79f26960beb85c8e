"""kill -9 of any process, again and again: nothing lost, nothing counted twice, nothing redrawn.

    python -m tests.service.kills --seconds 600

Three processes decide for one experiment by leases on a PostgreSQL of their own, all on loopback
addresses. Every half second to three seconds one of the three is killed, or PostgreSQL with all its
processes. Which of the three is the owner changes all the time. It prints counts, and stops.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import psutil
from sqlalchemy import func, select

from balaclava.service.service import Service
from balaclava.service.store.schema import decisions
from tests.service.conftest import postgres_process
from tests.service.server_process import HTTP, Server, keyless_settings

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
        self.releases: dict[tuple[int, float], float] = {}  # arm, rewards: the released mean
        self.faults: list[str] = []
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._call, args=(n,), daemon=True) for n in range(4)
        ]
        self._threads.append(threading.Thread(target=self._read, daemon=True))

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
                answer = HTTP.post(f"{address}{path}", json=body, timeout=30)
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

    def _read(self) -> None:
        """A mean of so many rewards is drawn once: other noise would make it another number."""
        while not self._stop.is_set():
            address = random.choice(self._servers).address
            with contextlib.suppress(httpx.TransportError):
                answer = HTTP.get(f"{address}/v1/experiments/shop/results", timeout=30)
                for arm in answer.json()["arms"] if answer.status_code == 200 else ():
                    key = arm["arm"], arm["rewards"]
                    if arm["rewards"] and self.releases.setdefault(key, arm["mean"]) != arm["mean"]:
                        self.faults.append(f"{key} was released twice")
            time.sleep(0.05)

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


def kill_postgres(database: Any) -> None:
    """Kill PostgreSQL with all its processes, and start it again."""
    postmaster = psutil.Process(database.get_pid())
    family = [postmaster, *postmaster.children(recursive=True)]
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)
    psutil.wait_procs(family, timeout=30)
    deadline = time.monotonic() + 60
    while True:
        try:
            database.start()
            return
        except (subprocess.CalledProcessError, RuntimeError):  # its memory is still in use
            assert time.monotonic() < deadline
            time.sleep(0.2)


def check_kills(
    folder: Path, url: str, seconds: float, database: Any = None, least: int = 1
) -> Counter[str]:
    """Kill processes for so long, and at least so often; returns what happened, in numbers.

    With `database`, PostgreSQL is killed too. Raises if anything was lost, counted twice or drawn
    again.
    """
    servers = [Server(keyless_settings(folder, url)) for _ in range(3)]
    for server in servers:
        server.start()
    created = HTTP.post(f"{servers[0].address}/v1/experiments", json=EXPERIMENT)
    assert created.status_code == 201, created.text
    callers, counts = Callers(servers), Counter[str]()
    callers.start()
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0 or (
        (len(callers.answers) < LEAST or counts.total() < least) and left > -30 - 5 * least
    ):
        time.sleep(random.uniform(0.5, 3.0))
        victim = random.choice([*servers, *servers, None] if database else servers)
        if victim is None:
            kill_postgres(database)
        else:
            victim.kill()
            victim.start(until="/healthz")
        counts["processes" if victim else "PostgreSQL"] += 1
    callers.stop()
    time.sleep(7.0)  # leases and windows end
    for server in servers:
        server.stop()
    assert callers.faults == [], callers.faults[:5]
    assert counts.total() >= least
    service = Service.open(url, ledger=str(folder / "ledger"), secrets=str(folder / "key"))
    try:
        experiment = service.committed("shop")
        check_counts(callers, experiment)
        with service.storage.reading() as connection:
            table = decisions.c
            waited = table.closes - table.made < WINDOW + TERM - 0.01  # in a lease
            by_lease = connection.scalar(select(func.count()).where(waited, table.learns))
        expired = experiment.counters.rounds - sum(experiment.counters.learning)
        # A slow machine has no leases in some seconds: requests are further apart than a term.
        assert by_lease + expired > 0 or seconds < 60.0
    finally:
        service.close()
    counts.update(
        {
            "requests": len(callers.answers),
            "decisions": sum(map(len, callers.answers.values())),
            "of these by leases": by_lease,
            "slots that expired": expired,
            "rewards acknowledged": len(callers.acknowledged),
            "rewards without an answer": len(callers.unsure),
            "releases compared": len(callers.releases),
        }
    )
    return counts


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


def main() -> None:
    """Run it on a temporary PostgreSQL, and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as folder, postgres_process() as database:
        counts = check_kills(Path(folder), database.get_uri(), seconds, database)
    for what, count in counts.items():
        print(f"{what}: {count:,}")
    print("nothing was lost, counted twice or drawn again")


if __name__ == "__main__":
    main()
