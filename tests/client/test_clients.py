"""The client: what it sends, when it sends it again, and what it says."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import math
import pydoc
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from pathlib import Path
from typing import Any

import httpx
import pytest

from balaclava.client import AsyncClient, Client, ServiceDecision, calls
from balaclava.client.calls import FIRST_WAIT, LONGEST_WAIT, attempts
from balaclava.errors import (
    ParameterError,
    RewardError,
    ServiceConflictError,
    ServiceError,
    ServiceKeyError,
    ServiceLookupError,
    ServiceRequestError,
    ServiceUnavailableError,
    WindowOverError,
)
from tests.service.servers import FaultyProxy, Process, in_a_thread

DECIDE = calls.decide("page", None, "r", 1)
DECISION = {"decision_id": "d", "arm": 0, "label": "a", "propensity": 0.5, "learns": True}
CUT = httpx.ReadError("cut off")


def answer(status: int, document: Any = None, **headers: str) -> httpx.Response:
    return httpx.Response(
        status,
        json=document,
        headers={name.replace("_", "-"): text for name, text in headers.items()},
        request=httpx.Request("POST", "http://service/v1"),
    )


GOOD = answer(200, {"decisions": [DECISION]})
BUSY = {"type": "about:blank", "title": "", "status": 503, "detail": "more is waiting"}


def play(
    outcomes: list[Any], call: Any = DECIDE, patience: float = 30.0
) -> tuple[list[float], Any]:
    """What is waited before each attempt, on a clock that only waiting moves, and the end."""
    waits: list[float] = []
    steps = attempts(call, patience, clock=lambda: sum(waits), chance=lambda: 1.0)
    waits.append(next(steps)[0])
    for outcome in outcomes:
        try:
            waits.append(steps.send(outcome)[0])
        except StopIteration as end:
            return waits, end.value
        except ServiceError as error:
            return waits, error
    raise AssertionError("it would go on")


# When it is sent again


def test_an_answer_is_not_asked_for_twice() -> None:
    assert play([GOOD]) == ([0.0], [ServiceDecision("d", 0, "a", 0.5, True)])


@pytest.mark.parametrize(
    "fault", [CUT, httpx.ConnectError("no"), httpx.ReadTimeout("slow"), answer(502), answer(504)]
)
def test_what_may_pass_is_tried_again_ever_less_often(fault: Any) -> None:
    waits, end = play([*[fault] * 8, GOOD])
    assert waits == [0.0, *(min(FIRST_WAIT * 2**k, LONGEST_WAIT) for k in range(8))]
    assert end[0].decision_id == "d"


@pytest.mark.parametrize("text", ["7", formatdate(4e9, usegmt=True), "soon", "-3"])
def test_the_service_says_when_to_come_back(text: str) -> None:
    waits, end = play([answer(503, BUSY, retry_after=text), GOOD], patience=1e12)
    if text == "7":
        assert waits[1] == 7.0 + FIRST_WAIT
    else:
        assert (waits[1] > 1e6) == text.endswith("GMT")
    assert end[0].decision_id == "d"


def test_patience_ends() -> None:
    waits, end = play([answer(503, BUSY)] * 99, patience=3.0)
    assert sum(waits) <= 3.0
    assert isinstance(end, ServiceUnavailableError)
    assert end.status == 503
    assert "more is waiting; retry later with request_id='r'" in str(end)
    _, end = play([answer(503, BUSY, retry_after="60")], patience=3.0)
    assert "after 1 attempt:" in str(end)
    _, end = play([CUT] * 99, calls.reward("d", "value", 0.731058), patience=1.0)
    assert "send the same request again later" in str(end)
    assert "731058" not in str(end)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((401, ServiceKeyError), (403, ServiceKeyError), (404, ServiceLookupError)),
        *((409, ServiceConflictError), (410, WindowOverError), (413, ServiceRequestError)),
        *((422, ServiceRequestError), (429, ServiceRequestError), (500, ServiceError)),
    ],
)
def test_what_is_wrong_is_said_at_once(status: int, kind: type[ServiceError]) -> None:
    waits, end = play([answer(status, {"detail": "do that", "status": status})])
    assert (waits, type(end), end.status) == ([0.0], kind, status)
    assert str(end) == f"do that (HTTP {status})"


@pytest.mark.parametrize("document", ["a page", ["detail"], {"detail": 3}, None])
def test_an_answer_from_another_server(document: Any) -> None:
    _, end = play([answer(404, document)])
    assert "not from a balaclava service" in str(end)
    _, end = play([httpx.Response(200, text="<html>", request=GOOD.request)])
    assert "not JSON" in str(end)
    _, end = play([answer(307, document, location="https://elsewhere")])
    assert end.status == 307  # a key is not sent elsewhere


def test_another_number_of_decisions_than_was_asked_for() -> None:
    _, end = play([answer(200, {"decisions": [DECISION] * 2})])
    assert isinstance(end, ServiceError)


def test_what_would_be_done_twice_is_not_sent_twice() -> None:
    call = calls.Call("POST", calls.path("keys"), calls.unchanged, {}, idempotent=False)
    waits, end = play([httpx.ConnectError("no"), CUT], call)
    assert len(waits) == 2  # nobody had heard the first
    assert "check whether the service did it" in str(end)
    _, end = play([answer(503, BUSY)], call)
    assert isinstance(end, ServiceError)


# What is sent


def test_requests() -> None:
    one, other = calls.decide("ä/b", "ann", None, 3), calls.decide("ä/b", "ann", None, 3)
    assert one.path == "/v1/experiments/%C3%A4%2Fb/decisions"
    assert one.body["request_id"] != other.body["request_id"]
    assert (one.body["count"], one.body["person"]) == (3, "ann")
    assert "person" not in DECIDE.body
    pairs = [(str(number), 1.0) for number in range(5_001)]
    assert [len(call.body) for call in calls.rewards(pairs, "value")] == [5_000, 1]
    assert [call.body for call in calls.rewards({"d": 0.5}, "report")] == [
        [{"decision_id": "d", "report": 0.5}]
    ]
    assert calls.rewards([], "value") == []


def test_what_cannot_be_sent() -> None:
    for bad in (math.nan, math.inf, "0.731058", None):
        with pytest.raises(RewardError) as error:
            calls.reward("d", "value", bad)  # type: ignore[arg-type]
        assert "731058" not in str(error.value)
    for bad in (None, 3, ""):
        with pytest.raises(ParameterError, match="decision_id"):
            calls.reward(bad, "value", 1.0)  # type: ignore[arg-type]
    for url in ("service", "ftp://service", None):
        with pytest.raises(ParameterError, match="such as http"):
            Client(url)  # type: ignore[arg-type]
    for key in ("", "a\nb", "ключ"):
        with pytest.raises(ParameterError, match="not repeated") as error:
            Client("http://service", key)
        assert key not in str(error.value) or not key
    with pytest.raises(ParameterError, match="patience"):
        Client("http://service", patience=-1.0)


def test_both_clients_offer_the_same() -> None:
    def signatures(kind: type) -> dict[str, str]:
        return {
            name: str(inspect.signature(getattr(kind, name)))
            for name in dir(kind)
            if not name.startswith("_")
        }

    assert signatures(Client) == signatures(AsyncClient)
    assert len(signatures(Client)) == 35


def test_a_client_can_ask_for_all_that_the_service_takes() -> None:
    """Each field of a decisions request and of a key, and each path but those of other tools."""
    from balaclava.service.http.payloads import DecisionsIn, KeyIn

    decide, key = (
        inspect.signature(each).parameters for each in (Client.decide, Client.create_key)
    )
    assert set(DecisionsIn.model_fields) <= set(decide)
    assert set(KeyIn.model_fields) <= set(key)


def test_which_requests_are_raw_http(service: tuple[str, str]) -> None:
    documented = httpx.get(f"{service[0]}/openapi.json").json()["paths"]
    source = Path(inspect.getfile(Client)).read_text() + Path(calls.__file__).read_text()
    parts = {path: [p for p in path.split("/")[2:] if "{" not in p] for path in documented}
    raw = {
        path
        for path, words in parts.items()
        if not path.startswith("/v1/") or not all(f'"{word}"' in source for word in words)
    }
    assert raw == {
        *("/v1/snapshot", "/v1/audit-trail", "/v1/experiments/{name}/tasks"),
        *("/ofrep/v1/evaluate/flags", "/ofrep/v1/evaluate/flags/{key}"),
        *("/healthz", "/readyz", "/metrics", "/report.js"),
    }


def test_help_shows_each_call_with_its_answer() -> None:
    for kind in (Client, AsyncClient):
        text = pydoc.render_doc(kind, renderer=pydoc.plaintext)
        assert re.search(
            r"results\(self, experiment: .*confidence: .*= 0.95, .*\) -> .*Document", text
        )
        assert "Read released means with intervals" in text
        assert "Exchange" not in text.split("Data descriptors")[0]
        assert inspect.iscoroutinefunction(kind.results) == (kind is AsyncClient)
        assert kind.decide.__doc__ == Client.decide.__doc__


# Against a service


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    with in_a_thread(tmp_path_factory.mktemp("service")) as (address, key, _):
        yield address, key


@pytest.fixture
def client(service: tuple[str, str]) -> Iterator[Client]:
    with Client(*service) as client:
        yield client


NUMBERS = itertools.count()


@pytest.fixture
def name(client: Client) -> str:
    """Of a new experiment."""
    return create(client)


def create(client: Client, **more: Any) -> str:
    name = f"página {next(NUMBERS)}"
    client.create_experiment(
        name,
        **{
            **{"policy": "dp-imed", "arms": ["list", "map"], "parameters": {"epsilon": 1.0}},
            **{"reward_window": 3600.0, "default_reward": 0.0, **more},
        },
    )
    return name


def test_a_label_in_place_of_a_list_is_refused_and_is_not_taken_for_its_letters(
    client: Client,
) -> None:
    name = create(client, arms=["a", "b", "ab"])
    for change in ({"add": "new"}, {"retire": "ab"}):
        with pytest.raises(ServiceError, match="valid list"):
            client.change_arms(name, **change)
    with pytest.raises(ServiceError, match="valid list"):
        client.decide(name, available="ab")
    told = client.experiment(name)
    assert (told["arms"], told["decisions"]) == (["a", "b", "ab"], 0)


def test_sticky_decisions_keep_their_arm(client: Client, service: tuple[str, str]) -> None:
    name = create(client, arms=[f"arm {i}" for i in range(20)])
    made = [client.decide(name, "ann", sticky=True) for _ in range(6)]
    assert len({each.label for each in made}) == 1
    assert [each.learns for each in made] == [True, *[False] * 5]
    assert {each.first_decision_id for each in made} == {made[0].decision_id}

    async def again() -> str:
        async with AsyncClient(*service) as other:
            return (await other.decide(name, "ann", sticky=True)).label

    assert asyncio.run(again()) == made[0].label


def test_what_an_administrator_needs(client: Client, name: str) -> None:
    decision = client.decide(name, "erased one")
    client.reward(decision, 1.0)
    assert client.decision(decision)["state"]
    rows = client.export(name).decode().splitlines()
    assert any(decision.decision_id in row for row in rows)
    assert not any(decision.decision_id in row for row in client.export(name, until=1.0).decode())
    with pytest.raises(ServiceRequestError, match="format"):
        client.export(name, "xlsx")
    assert client.edit(name, archived=True)["archived"]
    assert name not in [each["name"] for each in client.experiments(search=name)]
    assert [each["name"] for each in client.experiments(archived=True, search=name)] == [name]
    assert client.erase("erased one")
    key = client.create_key("decide", lifetime=60.0, experiments=[name])
    assert key["role"] == "decide"
    hook = client.set_webhook("desk", "https://example.org/hook", ["winner"], "0123456789abcdef")
    assert client.webhooks() == [hook]
    client.delete_webhook("desk")
    assert client.webhooks() == []


def test_a_day_with_a_client(client: Client, name: str) -> None:
    decision = client.decide(name, "ann")
    assert decision.label == ["list", "map"][decision.arm]
    assert (decision.learns, client.decide(name, "ann").learns) == (True, False)
    client.reward(decision, 1.0)
    client.reward(decision.decision_id, 0.0)
    several = client.decide(name, count=3)
    assert len({decision.decision_id for decision in several}) == 3
    recorded = client.rewards([*((one, 1) for one in several), ("nobody's", 1.0)])
    assert [each.recorded for each in recorded] == [True, True, True, False]
    assert (recorded[3].status, recorded[3].decision_id) == (404, "nobody's")
    assert client.experiment(name)["decisions"] == client.results(name, 0.9)["decisions"] == 5
    assert client.plan(name, 0.9, participants=9)["may_stop"]["reason"] is None
    assert client.results(name, smallest_difference=0.1)["may_stop"]["sentence"]
    assert client.privacy(name)["guarantee"]["epsilon"] == 1.0
    assert client.history(name, points=10)["arms"] == ["list", "map"]
    assert name in [each["name"] for each in client.experiments()]
    assert client.pause(name)["state"] == "paused"
    with pytest.raises(ServiceConflictError):
        client.decide(name)
    assert client.resume(name)["state"] == "running"
    assert client.finish(name)["state"] == "finished"


def test_what_admins_do(client: Client, name: str, service: tuple[str, str]) -> None:
    assert client.decision(client.decide(name))["state"] == "open"
    client.set_population("town", 3.0)
    create(client, population="town")
    assert [each["left_epsilon"] for each in client.populations()] == [2.0]
    entries = client.ledger()["entries"]
    assert [each["event"] for each in entries if each["population"] == "town"] == (
        ["population", "charge"]
    )
    assert client.charge_release("town", "log of spring", 1.5)["left_epsilon"] == 0.5
    with pytest.raises(ServiceConflictError, match="too small"):
        client.charge_release("town", "log of spring", 1.5)
    key = client.create_key("read", "a reader")
    with Client(service[0], key["key"]) as reader:
        assert reader.results(name)["decisions"] == 1
        with pytest.raises(ServiceKeyError, match="'read'"):
            reader.decide(name)
        client.revoke_key(key["id"])
    revoked = {each["id"]: each["revoked"] for each in client.keys()}  # noqa: SIM118
    assert revoked[key["id"]] is not None


def test_reports(client: Client) -> None:
    import balaclava as bl

    policy = bl.policy("ldp-ucb-laplace", arms=2, epsilon=1.0)
    name = create(client, policy="ldp-ucb-laplace", default_reward=None)
    assert client.experiment(name)["report"] == policy.report_rule()
    one, other = client.decide(name, count=2)
    client.report(one, policy.report(1.0))
    assert [each.recorded for each in client.reports({other.decision_id: -3.5})] == [True]


def test_the_script_for_browsers(service: tuple[str, str]) -> None:
    answer = httpx.get(f"{service[0]}/report.js")  # without a key
    assert answer.headers["content-type"].startswith("text/javascript")
    assert "export async function reportOnce" in answer.text
    assert answer.headers["access-control-allow-origin"] == "*"


def test_what_is_refused(client: Client, name: str, service: tuple[str, str]) -> None:
    decision = client.decide(name)
    with pytest.raises(ServiceRequestError) as error:
        client.reward(decision, 7.31058)
    assert "731058" not in str(error.value).replace(".", "")
    for count in (0, -1, 10_001):
        with pytest.raises(ServiceRequestError, match="count"):
            client.decide(name, count=count)
    with pytest.raises(ServiceLookupError):
        client.decide("nothing")
    with pytest.raises(ServiceConflictError):
        client.create_experiment(name, "ucb1", ["list"], reward_window=1.0)
    client.decide(name, request_id="r")
    with pytest.raises(ServiceConflictError):
        client.decide(name, request_id="r", count=2)
    with Client(service[0], "nobody's") as stranger, pytest.raises(ServiceKeyError):
        stranger.experiments()
    late = create(client, reward_window=1e-3)
    decision = client.decide(late)
    while client.results(late)["windows"]["over"] == 0:
        pass
    with pytest.raises(WindowOverError):
        client.reward(decision, 1.0)


def test_the_same_with_an_event_loop(client: Client, name: str, service: tuple[str, str]) -> None:
    async def day() -> None:
        async with AsyncClient(*service) as other:
            decisions = await asyncio.gather(*(other.decide(name) for _ in range(20)))
            await asyncio.gather(*(other.reward(decision, 1.0) for decision in decisions))
            await other.rewards([(decision, 0.0) for decision in decisions])
            assert (await other.results(name))["decisions"] == 20
            with pytest.raises(ServiceLookupError):
                await other.decide("nothing")

    asyncio.run(day())


# Faults


FULL = "HTTP/1.1 503 Full\r\nRetry-After: 0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize("faults", [("refuse",), ("lose",), (FULL,), ("lose", "refuse", FULL)])
def test_a_bad_line(
    client: Client, name: str, service: tuple[str, str], faults: tuple[str, ...]
) -> None:
    """The answer comes in the end, and what was asked for was done once."""
    line = FaultyProxy(service[0], *faults)
    with Client(line.address, service[1]) as far:
        decision = far.decide(name)
        assert line.requests == len(faults) + 1
    assert client.results(name)["decisions"] == 1
    line = FaultyProxy(service[0], *faults)
    with Client(line.address, service[1]) as far:
        far.reward(decision, 1.0)
    assert client.decision(decision)["state"] == "rewarded"

    async def again() -> ServiceDecision:
        line = FaultyProxy(service[0], *faults)
        async with AsyncClient(line.address, service[1]) as far:
            return await far.decide(name)

    assert asyncio.run(again()).decision_id != decision.decision_id
    assert client.results(name)["decisions"] == 2


def test_an_unreachable_service(service: tuple[str, str]) -> None:
    line = FaultyProxy(service[0])
    line.close()
    with Client(line.address, patience=0.2) as client, pytest.raises(ServiceUnavailableError):
        client.experiments()


def silent_service() -> socket.socket:
    """Connections are accepted, and never answered."""
    return socket.create_server(("127.0.0.1", 0), backlog=64)


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n"


@pytest.mark.parametrize("head", [HEAD[:0], HEAD])
def test_an_answer_byte_by_byte_does_not_outlive_the_deadline(head: bytes) -> None:
    """A timeout of httpx is of one read: such an answer blocked for as long as it liked."""
    dripped = threading.Event()

    def drip(stream: socket.socket) -> None:
        with stream, contextlib.suppress(OSError):
            stream.sendall(head)
            for number in range(60):
                stream.sendall(b" " if head else HEAD[number : number + 1])
                time.sleep(0.2)
            dripped.set()

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=drip, args=listener.accept()[:1], daemon=True).start()

    with silent_service() as listener:
        threading.Thread(target=accept, daemon=True).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"

        async def decide() -> ServiceDecision:
            async with AsyncClient(url, deadline=0.3) as far:
                return await far.decide("page", default="map")

        with Client(url, deadline=0.3) as client:
            assert client.decide("page", default="list").label == "list"
            assert asyncio.run(decide()).label == "map"
            assert not dripped.is_set()  # after 12 seconds


def test_a_decision_has_a_deadline_and_a_default() -> None:
    """An unanswered client used to block for 28 seconds."""
    with silent_service() as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with Client(url, deadline=0.5) as client:
            began = time.monotonic()
            with pytest.raises(ServiceUnavailableError, match="request_id="):
                client.decide("page")
            made = client.decide("page", default="list")
            assert time.monotonic() - began < 10
            assert made == ServiceDecision("", -1, "list", None, learns=False)
            client.reward(made, 1.0)  # it has no effect, and is not sent
            client.report(made, 1.0)
            with pytest.raises(ParameterError, match="leave defaults out"):
                client.rewards([(made, 1.0)])
            assert client.decide("page", count=2, default="list") == [made, made]

        async def decide() -> ServiceDecision:
            async with AsyncClient(url, deadline=0.5) as far:
                decision = await far.decide("page", default="map")
                await far.reward(decision, 1.0)
                return decision

        assert asyncio.run(decide()).label == "map"
    assert inspect.signature(Client.__init__).parameters["deadline"].default <= 5.0
    with pytest.raises(ParameterError, match="deadline"):
        Client("http://service", deadline=0.0)


def test_a_default_hides_no_other_fault(client: Client, name: str) -> None:
    with pytest.raises(ServiceLookupError):
        client.decide("unknown", default="a")
    assert client.decide(name, default="other").decision_id


def test_the_same_from_many_at_once(client: Client, name: str) -> None:
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: client.decide(name, request_id="same"), range(16)))
        assert len({each.decision_id for each in answers}) == 1
        list(pool.map(lambda _: client.reward(answers[0], 1.0), range(16)))
    assert client.results(name)["decisions"] == 1


@pytest.mark.crash
@pytest.mark.slow
def test_a_service_that_is_killed_and_comes_back(tmp_path: Path) -> None:
    """A client that goes on all the while notices nothing, and nothing is lost or done twice."""
    arguments = ("--port", "0")
    acknowledged: list[ServiceDecision] = []
    with Process(*arguments, cwd=tmp_path) as first:
        address = first.wait_for(r"serves at (\S+)\n")
        key = first.wait_for(r"this once: (\S+)\n")
        with Client(address, key, patience=60.0, deadline=60.0) as client:
            name = create(client)
            enough, stop = threading.Event(), threading.Event()

            def visit() -> None:
                while not stop.is_set():
                    decision = client.decide(name)
                    client.reward(decision, 1.0)
                    acknowledged.append(decision)
                    if len(acknowledged) >= 20:
                        enough.set()

            visitors = [threading.Thread(target=visit) for _ in range(4)]
            for session in visitors:
                session.start()
            assert enough.wait(60.0)
            first.end(signal.SIGKILL)
            before = len(acknowledged)
            with Process("--port", address.rpartition(":")[2], cwd=tmp_path) as second:
                second.wait_for(r"serves at (\S+)\n")
                assert "admin key" not in second.output  # it was shown once
                while len(acknowledged) < before + 20:
                    assert any(session.is_alive() for session in visitors)
                stop.set()
                for session in visitors:
                    session.join()
                assert client.results(name)["decisions"] == len(acknowledged)
                states = {client.decision(each)["state"] for each in acknowledged}
                assert states == {"rewarded"}
                assert second.end() in (0, -signal.SIGTERM)
