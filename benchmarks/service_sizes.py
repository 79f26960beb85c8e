"""The service on a year of one experiment: memory, a restart, and every page and endpoint.

    python benchmarks/service_sizes.py                    # 10^7 decisions, 10^6 of them open
    python benchmarks/service_sizes.py --decisions 100000 --open 10000

Decisions, persons and chart snapshots are written straight into the tables. The policy learns from
the first 20,000, which arrive over HTTP. Ten million decisions take 1.3 GB.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, text

from balaclava.service.store.schema import OPEN, REWARDED
from balaclava.service.store.sql import DECISIONS, SNAPSHOTS, UPSERT_PERSON, execute_many
from balaclava.service.store.storage import Storage
from service import EXPERIMENT, Server, cpu_of, memory_of, running, say

FIRST, PICTURES, AT_ONCE = 20_000, 10_000, 100_000
DAY = 86_400.0
_SERVER = """
import sys, json
from balaclava.service.http.server import ServerSettings, serve
serve(ServerSettings(**json.loads(sys.argv[1])), lambda address, key: print(flush=True))
"""
EVENTS = EXPERIMENT | {"reward_window": 365 * DAY, "rewards_per_person": 3}
READ = (
    *("/v1/experiments", "/v1/experiments/shop", "/v1/experiments/shop/results"),
    *("/v1/experiments/shop/privacy", "/v1/experiments/shop/history", "/v1/ledger", "/v1/keys"),
    *("/v1/experiments/shop/history?points=2000", "/v1/populations", "/metrics", "/readyz"),
    *("/", "/live", "/experiments/shop", "/experiments/shop/live", "/experiments/shop/history"),
    *("/ledger", "/keys", "/openapi.json"),
)


def learn_some(server: Server) -> None:
    """Make the first decisions and rewards over HTTP."""
    server.call("POST", "/v1/experiments", EVENTS)
    for _ in range(FIRST // 1_000):
        answer = server.call("POST", "/v1/experiments/shop/decisions", {"count": 1_000})
        rewards = [
            {"decision_id": each["decision_id"], "value": float(each["arm"] == 2)}
            for each in answer["decisions"]
        ]
        server.call("POST", "/v1/rewards", rewards)


def fill(database: str, decisions: int, still_open: int) -> str:
    """Write the rest of the year; returns the id of an open decision.

    Ids ascend, which makes writing fast and does not change look-ups.
    """
    storage, now = Storage.open(database), time.time()
    row = {"experiment": 1, "phase": 0, "learns": 1, "propensity": 0.25}
    for start in range(FIRST, decisions, AT_ONCE):
        rows = [
            {
                **row,
                "id": f"{number:022d}",
                "round": number + 1,
                "arm": number % 4,
                "made": now - 300 * DAY * (1 - number / decisions),
                "closes": now + 65 * DAY + 300 * DAY * number / decisions,
                "state": OPEN if number >= decisions - still_open else REWARDED,
            }
            for number in range(start, min(start + AT_ONCE, decisions))
        ]
        with storage.writing() as connection:
            DECISIONS.insert(connection, rows)
    with storage.writing() as connection:
        _fill_the_rest(connection, decisions, still_open, now)
    storage.close()
    return f"{decisions - 1:022d}"


def _fill_the_rest(connection: Connection, decisions: int, still_open: int, now: float) -> None:
    execute_many(connection, UPSERT_PERSON, [(1, f"{n:064d}", 3) for n in range(decisions // 10)])
    shown = {"counts": [1, 1, 1, 1], "means": [0.1, 0.1, 0.9, 0.1], "low": [0.0] * 4}
    content = json.dumps(shown | {"high": [1.0] * 4})
    snapshots_taken = [
        {
            "experiment": 1,
            "decisions": max(decisions * n // PICTURES, 1),
            "at": now - 300 * DAY * (1 - n / PICTURES),
            "content": content,
        }
        for n in range(PICTURES)
    ]
    SNAPSHOTS.insert(connection, snapshots_taken)
    counters = json.loads(connection.execute(text("SELECT books FROM experiments")).scalar_one())
    counters |= {"rounds": decisions, "over": decisions - still_open, "time": now}
    counters["decisions"] = counters["learning"] = [decisions // 4] * 4
    execute_many(
        connection, "UPDATE experiments SET books = ?, next_due = ?", [_due(counters, now)]
    )


def _due(counters: dict[str, Any], now: float) -> tuple[str, float]:
    return json.dumps(counters), now + 65 * DAY


def seconds(server: Server, path: str, method: str = "GET", body: Any = None) -> float:
    """The time of one request, in seconds."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.port}{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    began = time.perf_counter()
    with urllib.request.urlopen(request, timeout=120) as answer:
        answer.read()
    return time.perf_counter() - began


def measure(folder: Path, one: str, still_open: int) -> None:
    """A restart, memory, and every page and endpoint, each for the first time and again."""
    began = time.perf_counter()
    with running(_SERVER, folder, keys=False) as server:
        server.call("POST", "/v1/experiments/shop/decisions", {})
        took = f"{time.perf_counter() - began:.1f} s ({cpu_of(server.process.pid):.1f} s CPU)"
        say("restart to the first decision", took, "< 10 s")
        reads = [(path, "GET", None) for path in (*READ, f"/v1/decisions/{one}")]
        rewards = [{"decision_id": f"{int(one) - n:022d}", "value": 1} for n in range(10_000)]
        writes = [
            ("/v1/experiments/shop/decisions", "POST", {"request_id": "r", "person": "p"}),
            ("/v1/experiments/shop/decisions", "POST", {"request_id": "r", "person": "p"}),
            (f"/v1/decisions/{one}/reward", "PUT", {"value": 1}),
            ("/v1/experiments/shop/decisions", "POST", {"count": 10_000}),
            ("/v1/rewards", "POST", rewards[: min(still_open, 10_000)]),
        ]
        times = [(seconds(server, *call), call[1], call[0]) for call in (*reads, *writes, *reads)]
        for took, method, path in sorted(times, reverse=True)[:5]:
            say(f"among the slowest: {method} {path}", f"{took:.2f} s", "< 1 s")
        say(f"memory, {still_open:,} open", f"{memory_of(server.process.pid):,.0f} MB", "< 500 MB")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--decisions", type=int, default=10_000_000)
    parser.add_argument("--open", type=int, default=1_000_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        folder = Path(place)
        with running(_SERVER, folder, keys=False) as server:
            learn_some(server)
        began = time.perf_counter()
        one = fill(str(folder / "service.db"), asked.decisions, asked.open)
        size = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
        filled = f"{size / 1e9:.2f} GB, {time.perf_counter() - began:.0f} s"
        say(f"{asked.decisions:,} decisions on disk", filled)
        measure(folder, one, asked.open)


if __name__ == "__main__":
    main()
