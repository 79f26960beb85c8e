"""What goes wrong around a service: the disk, the database, the clock, the clients."""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from balaclava.privacy.randomness import SystemRandomness
from balaclava.service.engine import unit_of_work, writer
from balaclava.service.engine.definition import ExperimentDefinition
from balaclava.service.engine.jobs import (
    CreateExperiment,
    MakeDecisions,
    ReceivedReward,
    RecordRewards,
)
from balaclava.service.http import middleware
from balaclava.service.http.app import create_app
from balaclava.service.http.server import ServerSettings, serve
from balaclava.service.problems import Problem, StartError
from balaclava.service.service import Service
from balaclava.service.store.storage import make_engine
from tests.service import server_process
from tests.service.conftest import postgres_process
from tests.service.manual_service import SHOP, ManualService
from tests.service.server_process import DEFINITIONS, Load, Server, keyless_settings
from tests.service.test_crashes import check_counts

Opener = Callable[..., Service]


def prepared(server: Server) -> Load:
    """A server with its experiments."""
    server.start()
    with httpx.Client(base_url=server.address, timeout=60) as client:
        client.put("/v1/populations/us", json={"epsilon": 100.0})
        for definition in DEFINITIONS:
            assert client.post("/v1/experiments", json=definition).status_code == 201
    return Load(server.address)


def check_after(server: Server, load: Load) -> None:
    with httpx.Client(base_url=server.address, timeout=60) as client:
        load.catch_up(client)
        assert load.faults == []
        check_counts(client, load)


# The database


@pytest.mark.slow
@pytest.mark.crash
def test_postgresql_restarted_under_load(tmp_path: Path) -> None:
    with postgres_process() as database:
        server = Server(keyless_settings(tmp_path, database.get_uri()))
        load = prepared(server)

        def restart() -> None:
            pid = database.get_pid()
            os.kill(pid, signal.SIGQUIT)  # at once, as in a crash
            while Path(f"/proc/{pid}").exists():
                time.sleep(0.05)
            database.start()
            deadline = time.monotonic() + 60
            while httpx.get(f"{server.address}/readyz").status_code != 200:
                assert time.monotonic() < deadline
                time.sleep(0.1)

        for _ in range(5):
            load.run(random.uniform(0.1, 0.5), restart)
            check_after(server, load)
        server.stop()


def _serve_on_a_full_disk(settings: ServerSettings) -> None:
    place = Path(settings.database)
    largest = max(f.stat().st_size for f in place.parent.iterdir() if f.is_file())
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest + 100_000, resource.RLIM_INFINITY))
    serve(settings, lambda address, key: None)


@pytest.mark.crash
def test_the_disk_is_full(tmp_path: Path) -> None:
    """What is not taken is answered with 503; what was taken is there when there is room."""
    server = Server(keyless_settings(tmp_path))
    load = prepared(server)
    server.kill()
    server.start(_serve_on_a_full_disk)
    statuses: list[int] = []

    def fill() -> None:
        with httpx.Client(base_url=server.address, timeout=60) as client:
            body = {"count": 500}
            for _ in range(30):
                answer = client.post("/v1/experiments/windows/decisions", json=body)
                statuses.append(answer.status_code)
                if answer.status_code == 503:
                    assert "retry-after" in answer.headers
                    ready = client.get("/readyz")
                    assert (ready.status_code, "retry-after" in ready.headers) == (503, True)
                    break
            assert client.get("/v1/experiments/windows/results").status_code == 200
            assert client.get("/healthz").status_code == 200

    fill()
    assert statuses[-1] == 503
    decided = 500 * statuses.count(200)
    server.kill()
    server.start()
    with httpx.Client(base_url=server.address, timeout=60) as client:
        results = client.get("/v1/experiments/windows/results").json()
        assert results["decisions"] == decided
        assert client.post("/v1/experiments/windows/decisions", json={}).status_code == 200
    load.run(0.0, server.kill)
    server.start()
    with httpx.Client(base_url=server.address, timeout=60) as client:
        load.catch_up(client)
    assert load.faults == []
    server.stop()


def _serve_without_room(settings: ServerSettings) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, resource.RLIM_INFINITY))
    serve(settings, lambda address, key: None)


@pytest.mark.crash
def test_an_experiment_that_the_disk_has_no_room_for(tmp_path: Path) -> None:
    """It is not ready, it says so without traffic, and what it did not create costs nothing."""
    server = Server(keyless_settings(tmp_path))
    prepared(server)
    server.stop()
    server.start(_serve_without_room, until="/healthz")
    arms = [f"arm {number} {'x' * 400}" for number in range(200)]
    with httpx.Client(base_url=server.address, timeout=60) as client:
        for _ in range(2):
            time.sleep(1.5)  # after the last small commit that fitted: now it tries for itself
            assert client.get("/readyz").status_code == 503
        for name in ("large", "large", "larger"):
            large = DEFINITIONS[0] | {"name": name, "arms": arms}
            assert client.post("/v1/experiments", json=large).status_code == 503
        (population,) = client.get("/v1/populations").json()["populations"]
        # "arrival", and one that may be created yet: each 20 for 2 rewards
        assert population["spent_epsilon"] == 80.0
    server.kill()
    server.start()
    with httpx.Client(base_url=server.address, timeout=60) as client:
        small = DEFINITIONS[0] | {"name": "small"}
        assert client.post("/v1/experiments", json=small).status_code == 201
        (population,) = client.get("/v1/populations").json()["populations"]
        assert population["spent_epsilon"] == 80.0  # of "arrival" and "small"
    server.stop()


@pytest.mark.crash
@pytest.mark.parametrize("deleted", ["service.db", "service.db-wal", "ledger", "ledger-wal"])
def test_files_deleted_under_the_service(tmp_path: Path, deleted: str) -> None:
    """Nothing is acknowledged that no file holds."""
    server = Server(keyless_settings(tmp_path))
    prepared(server)
    with httpx.Client(base_url=server.address, timeout=60) as client:
        decide = "/v1/experiments/windows/decisions"
        assert client.post(decide, json={}).status_code == 200
        (tmp_path / deleted).unlink()
        answer = client.post(decide, json={})
        assert (answer.status_code, "deleted" in answer.json()["detail"]) == (503, True)
        assert client.get("/readyz").status_code == 503
        charged = client.put("/v1/populations/them", json={"epsilon": 1.0})
        assert charged.status_code == (503 if "ledger" in deleted else 200)
    server.stop()


def _open_as_nobody(database: str, answers: Any) -> None:
    make_engine(database).connect().close()  # its modules may lie where other users cannot read
    if os.getuid() == 0:
        os.setuid(65534)
    try:
        Service.open(database)
    except StartError as error:
        answers.put(str(error))
    else:
        answers.put("opened")


def test_a_read_only_file_is_refused(open_service: Opener, tmp_path: Path) -> None:
    open_service().close()
    folder = Path("/tmp") / f"balaclava-{os.getpid()}-{random.randrange(10**9)}"
    shutil.copytree(tmp_path, folder)
    os.chmod(folder, 0o777)
    for file in folder.iterdir():
        os.chmod(file, 0o666 if file.suffix == ".lock" else 0o444)
    answers = server_process._PROCESSES.Queue()
    other = server_process._PROCESSES.Process(
        target=_open_as_nobody, args=(str(folder / "service.db"), answers)
    )
    other.start()
    assert "cannot write" in answers.get(timeout=60)
    other.join()
    shutil.rmtree(folder)


def test_a_database_that_does_not_answer(open_service: Opener, monkeypatch: Any) -> None:
    """A full queue answers 503, requests time out, and then the service continues."""
    service = open_service()
    service.run_job(CreateExperiment(service.ledger, ExperimentDefinition.checked(**SHOP)))
    monkeypatch.setattr(writer, "MOST_WAITING", 50)
    held = threading.Event()
    release = threading.Event()

    class Stuck(MakeDecisions):
        def apply(self, work: Any) -> Any:
            held.set()
            release.wait(30)
            return super().apply(work)

    first = service.writer.submit(Stuck(service.vault, "shop"))
    assert held.wait(30)
    futures, refusals = [], []
    for _ in range(80):
        try:
            futures.append(service.writer.submit(MakeDecisions(service.vault, "shop")))
        except Problem as problem:
            refusals.append((problem.status, problem.retry_after))
    assert (len(futures), set(refusals)) == (50, {(503, 1)})
    monkeypatch.setattr("balaclava.service.service.ANSWER_SECONDS", 0.05)
    monkeypatch.setattr(writer, "MOST_WAITING", 51)
    with pytest.raises(Problem, match="did not answer in time") as late:
        asyncio.run(service.decide("shop", 1, None, None))
    assert (late.value.status, late.value.retry_after) == (503, 5)
    release.set()
    assert first.result(30)
    assert all(len(json.loads(future.result(30))["decisions"]) == 1 for future in futures)


# Time


def test_a_clock_that_is_set_back_or_forward(manual_services: Callable[..., ManualService]) -> None:
    """A restart with another clock: time continues, and every window ends."""
    manual = manual_services(SystemRandomness())
    manual.client.post("/v1/experiments", json=SHOP)
    results = "/v1/experiments/shop/results"

    def decide() -> str:
        answer = manual.client.post("/v1/experiments/shop/decisions", json={})
        return str(answer.json()["decisions"][0]["decision_id"])

    first = decide()
    manual.clock.moment -= 86_400.0
    manual.restart()
    second = decide()
    manual.wait(4.0)
    assert manual.client.get(results).json()["windows"] == {"open": 2, "over": 0}
    assert manual.send(first, 1.0).status_code == 200
    manual.wait(1.5)
    assert manual.client.get(results).json()["windows"] == {"open": 0, "over": 2}
    assert manual.send(second, 1.0).status_code == 410
    third = decide()
    manual.clock.moment += 86_400.0
    manual.restart()
    manual.wait(0.5)
    assert manual.send(third, 1.0).status_code == 410
    assert manual.client.get(results).json()["windows"] == {"open": 0, "over": 3}


def test_the_edges_of_a_window(manual_services: Callable[..., ManualService]) -> None:
    manual = manual_services(SystemRandomness())
    for name, default in (("default", 0.0), ("none", None)):
        manual.client.post("/v1/experiments", json=SHOP | {"name": name, "default_reward": default})
    ids = {}
    for name in ("default", "none"):
        answer = manual.client.post(f"/v1/experiments/{name}/decisions", json={"count": 3})
        ids[name] = [each["decision_id"] for each in answer.json()["decisions"]]
    manual.clock.moment += 4.999
    for name in ids:
        assert manual.send(ids[name][0], 1.0).status_code == 200
    manual.clock.moment += 0.001
    for name in ids:
        for id in ids[name][:2]:  # one with a reward and one without: the same answer
            assert manual.send(id, 1.0).status_code == 410
    manual.restart()
    manual.wait(3_600.0)  # it was down for longer than the window
    states = [
        [manual.client.get(f"/v1/decisions/{id}").json()["state"] for id in ids[name]]
        for name in ids
    ]
    assert states == [["rewarded", "defaulted", "defaulted"], ["rewarded", "given up", "given up"]]


def test_a_finished_experiment_keeps_no_rewards(
    manual_services: Callable[..., ManualService],
) -> None:
    manual = manual_services(SystemRandomness())
    manual.client.post("/v1/experiments", json=SHOP)
    answer = manual.client.post("/v1/experiments/shop/decisions", json={"count": 3})
    for each in answer.json()["decisions"]:
        manual.send(each["decision_id"], 0.625)
    manual.client.post("/v1/experiments/shop/finish")
    manual.wait(6.0)
    with manual.service.storage.reading() as connection:
        values = connection.exec_driver_sql("SELECT kind, value FROM decisions").all()
    assert set(values) == {(None, None)}
    assert len(manual.client.post("/v1/experiments/shop/decisions", json={}).json()) == 1


def test_it_says_that_it_is_catching_up(open_service: Opener, monkeypatch: Any) -> None:
    """After a downtime a decision waits for ended windows a second, not half a minute."""
    monkeypatch.setattr(writer, "_CATCH_UP", 0.0)
    monkeypatch.setattr(unit_of_work, "_MOST_CLOSED", 10)
    query = unit_of_work._STILL_OPEN.replace("10001", "11")
    monkeypatch.setattr(unit_of_work, "_STILL_OPEN", query)
    service = open_service()
    definition = SHOP | {"reward_window": 100.0}
    service.run_job(CreateExperiment(service.ledger, ExperimentDefinition.checked(**definition)))
    service.run_job(MakeDecisions(service.vault, "shop", 2_000))
    service.clock._start += 200.0
    asked = [service.writer.submit(MakeDecisions(service.vault, "shop")) for _ in range(20)]
    with pytest.raises(Problem, match="catching up") as late:
        [each.result(30) for each in asked]
    assert (late.value.status, late.value.retry_after) == (503, 1)
    deadline = time.monotonic() + 60
    while service.results("shop")["windows"]["over"] < 2_000:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert service.run_job(MakeDecisions(service.vault, "shop"))


# The clients


def test_a_body_that_does_not_come_to_an_end(open_service: Opener, monkeypatch: Any) -> None:
    monkeypatch.setattr(middleware, "BODY_SECONDS", 0.05)
    app = create_app(open_service(), keys=False)
    sent: list[Any] = []

    async def receive() -> Any:
        if not sent_half:
            sent_half.append(True)
            return {"type": "http.request", "body": b'{"count"', "more_body": True}
        await asyncio.sleep(60)

    async def send(message: Any) -> None:
        sent.append(message)

    sent_half: list[bool] = []
    scope = {
        **{"type": "http", "method": "POST", "path": "/v1/experiments/shop/decisions"},
        **{"headers": [(b"host", b"localhost"), (b"content-type", b"application/json")]},
        "query_string": b"",
        **{"root_path": "", "http_version": "1.1", "scheme": "http", "server": ("here", 80)},
    }
    asyncio.run(app(scope, receive, send))
    assert sent[0]["status"] == 408


@pytest.mark.crash
def test_clients_that_misbehave(tmp_path: Path) -> None:
    """Cut off half way; never reading; thirty-two with the same reward: others are served."""
    server = Server(keyless_settings(tmp_path))
    prepared(server)
    client = httpx.Client(base_url=server.address, timeout=60)
    decide = "/v1/experiments/arrival/decisions"
    (decision,) = client.post(decide, json={"person": "ann"}).json()["decisions"]
    for _ in range(20):
        cut_off = socket.create_connection(("127.0.0.1", server.settings.port))
        body = (
            b"POST "
            + decide.encode()
            + b" HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99\r\n\r\n{"
        )
        cut_off.sendall(body)
        cut_off.close()
    deaf = []
    for _ in range(20):
        deaf.append(socket.create_connection(("127.0.0.1", server.settings.port)))
        deaf[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf[-1].settimeout(0.2)
        try:
            for _ in range(200):
                deaf[-1].sendall(b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n")
        except TimeoutError:
            pass
    address = f"{server.address}/v1/decisions/{decision['decision_id']}/reward"

    def reward(number: int) -> tuple[int, str]:
        answer = httpx.put(address, json={"value": number % 2}, timeout=60)
        return answer.status_code, answer.text

    with ThreadPoolExecutor(32) as pool:
        assert set(pool.map(reward, range(32))) == {(200, '{"recorded":true}')}
    results = client.get("/v1/experiments/arrival/results").json()
    assert (results["decisions"], results["windows"]["states"]["rewarded"]) == (1, 1)
    for each in deaf:
        each.close()
    assert client.get("/readyz").status_code == 200
    server.stop()


# A great many


@pytest.mark.slow
def test_rewards_out_of_order(open_service: Opener) -> None:
    service = open_service()
    definition = SHOP | {"default_reward": None, "reward_window": 1e6}
    service.run_job(CreateExperiment(service.ledger, ExperimentDefinition.checked(**definition)))
    ids = []
    for _ in range(10):
        answer = service.run_job(MakeDecisions(service.vault, "shop", 10_000))
        ids += [each["decision_id"] for each in json.loads(answer)["decisions"]]
    random.Random(1).shuffle(ids)
    for start in range(0, len(ids), 5_000):
        outcomes = [ReceivedReward(id, "reward", 0.5) for id in ids[start : start + 5_000]]
        assert all(each == {"recorded": True} for each in service.run_job(RecordRewards(outcomes)))
    results = service.results("shop")
    assert results["windows"]["states"]["rewarded"] == 100_000
    assert results["windows"]["open"] == 0


def resident_memory() -> float:
    """Of this process, in megabytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


@pytest.mark.slow
def test_a_million_open_decisions(open_service: Opener) -> None:
    """They cost neither memory nor time at a restart, and their windows end all the same."""
    service = open_service()
    definition = SHOP | {"reward_window": 1e5}
    service.run_job(CreateExperiment(service.ledger, ExperimentDefinition.checked(**definition)))
    for _ in range(100):
        service.run_job(MakeDecisions(service.vault, "shop", 10_000))
    service.close()
    before = resident_memory()  # a peak of other tests would hide what this one takes
    service = open_service()
    assert service.results("shop")["windows"] == {"open": 1_000_000, "over": 0}
    assert len(json.loads(service.run_job(MakeDecisions(service.vault, "shop")))["decisions"]) == 1
    service.clock._start += 2e5
    deadline = time.monotonic() + 1_800
    most = 0.0
    while service.results("shop")["windows"]["open"]:
        assert time.monotonic() < deadline
        most = max(most, resident_memory())
        time.sleep(0.2)
    # SQLite's cache takes 64 MB, and the rows of a commit, 10,000 at most, 25 MB. All rows at once
    # would take 1,600 MB.
    assert most < before + 200
