"""A fast route answers exactly as FastAPI does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse
from starlette.testclient import TestClient
from starlette.types import Message

from balaclava.service.http import fast_routes
from balaclava.service.http.app import FrontedApp, create_app
from balaclava.service.http.fast_routes import fast_router
from balaclava.service.http.middleware import RequestMiddleware
from balaclava.service.http.payloads import DecisionsIn
from balaclava.service.http.server import first_key
from balaclava.service.service import Service
from tests.service.manual_service import SHOP

DECISIONS, REWARDS = "/v1/experiments/shop/decisions", "/v1/rewards"
UNKNOWN = "/v1/decisions/0123456789012345678901/reward"


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[TestClient]]:
    """Clients with an admin key, of the application with its fast routes and of it without."""
    service = Service.open(str(tmp_path_factory.mktemp("ways") / "service.db"))
    headers = {"authorization": f"Bearer {first_key(service)}", "content-type": "application/json"}
    complete = create_app(service)
    assert isinstance(complete, FrontedApp)
    assert isinstance(complete.front, RequestMiddleware)
    complete.front._app = super(FrontedApp, complete).__call__
    apps = create_app(service), complete
    fast, slow = (TestClient(app, base_url="http://localhost", headers=headers) for app in apps)
    with fast:
        assert fast.post("/v1/experiments", json=SHOP).status_code == 201
        yield [fast, slow]


Answer = tuple[int, dict[str, str], bytes]


def ask(client: TestClient, method: str, path: str, body: Any, **headers: str) -> Answer:
    answer = client.request(method, path, content=body, headers=headers)
    return answer.status_code, dict(answer.headers), answer.content


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", DECISIONS, '{"request_id": "a", "count": 3}', 200),
        ("POST", DECISIONS, '{"request_id": "b", "person": "\\u00e4"}', 200),
        ("POST", DECISIONS, '{"count": 1, "request_id": "c", "count": 2}', 200),
        ("POST", DECISIONS, ' {"request_id"\n: "d"} ', 200),
        ("POST", "/v1/experiments/none/decisions", "{}", 404),
        ("POST", "/v1/experiments/a%2Fb/decisions", "{}", 404),
        ("POST", DECISIONS + "/", '{"request_id": "e"}', 200),  # sent on to the right address
        ("PUT", DECISIONS, "{}", 405),
        ("POST", DECISIONS, "", 422),
        ("POST", DECISIONS, "null", 422),
        ("POST", DECISIONS, '{"count": "1"}', 422),
        ("POST", DECISIONS, '{"count": 1.0}', 422),
        ("POST", DECISIONS, '{"count": true}', 422),
        ("POST", DECISIONS, '{"count": 0}', 422),
        ("POST", DECISIONS, '{"colour": 1}', 422),
        ("POST", DECISIONS, '{"person": "\\ud800"}', 422),
        ("POST", DECISIONS, b'{"person": "\xff"}', 400),
        ("POST", DECISIONS, "{" * 5_000, 422),
        ("PUT", UNKNOWN, '{"value": 1}', 404),
        ("PUT", UNKNOWN, '{"value": true}', 422),
        ("PUT", UNKNOWN, '{"value": "1"}', 422),
        ("PUT", UNKNOWN, '{"value": 1, "report": 1}', 422),
        ("PUT", UNKNOWN, "{}", 422),
        ("POST", REWARDS, "[]", 200),
        ("POST", REWARDS, '[{"decision_id": "x", "value": 1e400}]', 200),
        ("POST", REWARDS, '[{"decision_id": "x", "value": NaN}]', 200),
        ("POST", REWARDS, '[{"decision_id": "x"}]', 422),
        ("POST", REWARDS, f"[{'{},' * 300}{{}}]", 422),
        ("POST", REWARDS, " " * 1_000_001, 413),
    ],
)
def test_both_handlers_answer_the_same(
    clients: list[TestClient], method: str, path: str, body: str | bytes, status: int
) -> None:
    fast, complete = (ask(client, method, path, body) for client in clients)
    assert fast == complete
    assert fast[0] == status


@pytest.mark.parametrize("key", ["", "Bearer", "Bearer wrong", "Basic eDp5"])
def test_both_handlers_ask_for_a_key(clients: list[TestClient], key: str) -> None:
    fast, complete = (ask(client, "POST", DECISIONS, "{}", authorization=key) for client in clients)
    assert fast == complete
    assert fast[0] == 401


@pytest.mark.parametrize(
    "content_type",
    ["application/json; charset=utf-8", "Application/JSON", "application/merge-patch+json;a=b"],
)
def test_any_json_is_fast(clients: list[TestClient], content_type: str) -> None:
    body = f"[{'{},' * 9_000}{{}}]"  # refused by fast routes without a list of faults
    headers = {"content-type": content_type}
    fast, complete = (ask(client, "POST", REWARDS, body, **headers) for client in clients)
    assert fast[0] == complete[0] == 422
    assert b"fewer elements" in fast[2]
    assert b"fewer elements" not in complete[2]


MANY_FAULTS = {
    "rows": b'{"features": [%s[""]]}' % (b'[""],' * 150_000),
    "numbers": b'{"features": [%s""]}' % (b'"",' * 99_000),
    "named": b'{"features": {%s"a": ""}}' % b"".join(b'"%d": "",' % n for n in range(70_000)),
    "unknown": b'{%s"a": 1}' % b"".join(b'"%d": 1,' % n for n in range(80_000)),
    "wide": ("[" + "{}," * 9_000 + "{}]").ljust(40_000).encode("utf-16"),
}


@pytest.mark.parametrize("body", MANY_FAULTS.values(), ids=MANY_FAULTS)
def test_many_faults_are_not_listed(
    clients: list[TestClient], body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of a few hundred thousand faults took seconds, and blocked all requests."""
    listed = []
    errors = RequestValidationError.errors

    def counted(error: RequestValidationError) -> Any:
        listed.extend(errors(error))
        return listed

    monkeypatch.setattr(RequestValidationError, "errors", counted)
    for path in (DECISIONS, REWARDS):
        assert ask(clients[0], "POST", path, body)[0] == 422
    assert len(listed) <= 1_000


def test_without_a_key_no_body_is_read(
    clients: list[TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A body of 1 MB took seconds to refuse, for a caller without a key."""

    async def read(receive: Any) -> bytes:
        raise AssertionError("the body was read")

    monkeypatch.setattr(fast_routes, "_read", read)
    answer = ask(clients[0], "POST", DECISIONS, MANY_FAULTS["rows"], authorization="Bearer wrong")
    assert answer[0] == 401


def test_a_body_in_chunks_is_one_body() -> None:
    """Each chunk is one byte, for the fast handler and for FastAPI's."""

    async def endpoint(name: str, payload: DecisionsIn) -> PlainTextResponse:
        return PlainTextResponse(f"{name} {payload.count}")

    async def ask(fast: bool, body: bytes) -> list[Message]:
        app = FastAPI()
        app.post("/{name}")(endpoint)
        if fast:
            app.add_middleware(fast_router, routes=app.routes[-1:])
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/shop",
            "query_string": b"",
            "headers": [(b"content-type", b"application/json")],
        }
        chunks = [
            {"type": "http.request", "body": body[n : n + 1], "more_body": n + 1 < len(body)}
            for n in range(len(body))
        ]
        sent: list[Message] = []

        async def receive() -> Message:
            return chunks.pop(0)

        async def send(message: Message) -> None:
            sent.append(message)

        await app(scope, receive, send)
        return sent

    for fast in (True, False):
        start, body = asyncio.run(ask(fast, b'{"count": 2}'))
        assert (start["status"], body["body"]) == (200, b"shop 2")
        assert asyncio.run(ask(fast, b'{"count": 0}'))[0]["status"] == 422


def test_the_application_starts_and_stops_behind_the_router(tmp_path: Path) -> None:
    service = Service.open(str(tmp_path / "service.db"))
    with TestClient(create_app(service)):
        assert service.writer.alive
    assert not service.writer.alive
