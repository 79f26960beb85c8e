"""A fast route answers exactly as FastAPI does."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.responses import PlainTextResponse
from starlette.testclient import TestClient
from starlette.types import Message

from balaclava.service.http.app import create_app
from balaclava.service.http.fast_routes import fast_router
from balaclava.service.http.payloads import DecisionsIn
from balaclava.service.http.server import first_key
from balaclava.service.service import Service
from tests.service.manual_service import SHOP

WAYS = ("application/json", "application/json; charset=utf-8")  # the fast route, FastAPI
DECISIONS, REWARDS = "/v1/experiments/shop/decisions", "/v1/rewards"
UNKNOWN = "/v1/decisions/0123456789012345678901/reward"


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Send a request both ways, with an admin key by default; returns both answers."""
    service = Service.open(str(tmp_path_factory.mktemp("ways") / "service.db"))
    key = first_key(service)

    with TestClient(create_app(service), base_url="http://localhost") as client:

        def ask(method: str, path: str, body: Any, **headers: str) -> list[tuple[Any, ...]]:
            answers = []
            for way in WAYS:
                sent = {"authorization": f"Bearer {key}", "content-type": way, **headers}
                answer = client.request(method, path, content=body, headers=sent)
                answers.append((answer.status_code, dict(answer.headers), answer.content))
            return answers

        made = client.post("/v1/experiments", json=SHOP, headers={"authorization": f"Bearer {key}"})
        assert made.status_code == 201
        yield ask


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
        ("POST", REWARDS, f"[{'{},' * 10_000}{{}}]", 422),
        ("POST", REWARDS, " " * 1_000_001, 413),
    ],
)
def test_both_handlers_answer_the_same(
    ways: Any, method: str, path: str, body: str | bytes, status: int
) -> None:
    fast, complete = ways(method, path, body)
    assert fast == complete
    assert fast[0] == status


@pytest.mark.parametrize("key", ["", "Bearer", "Bearer wrong", "Basic eDp5"])
def test_both_handlers_ask_for_a_key(ways: Any, key: str) -> None:
    fast, complete = ways("POST", DECISIONS, "{}", authorization=key)
    assert fast == complete
    assert fast[0] == 401


def test_a_body_in_chunks_is_one_body() -> None:
    """Each chunk is one byte, for the fast handler and for FastAPI's."""

    async def endpoint(name: str, payload: DecisionsIn) -> PlainTextResponse:
        return PlainTextResponse(f"{name} {payload.count}")

    async def ask(content_type: bytes, body: bytes) -> list[Message]:
        app = FastAPI()
        app.post("/{name}")(endpoint)
        app.add_middleware(fast_router, routes=app.routes[-1:])
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/shop",
            "query_string": b"",
            "headers": [(b"content-type", content_type)],
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

    for way in WAYS:
        start, body = asyncio.run(ask(way.encode(), b'{"count": 2}'))
        assert (start["status"], body["body"]) == (200, b"shop 2")
        assert asyncio.run(ask(way.encode(), b'{"count": 0}'))[0]["status"] == 422


def test_the_application_starts_and_stops_behind_the_router(tmp_path: Path) -> None:
    service = Service.open(str(tmp_path / "service.db"))
    with TestClient(create_app(service)):
        assert service.writer.alive
    assert not service.writer.alive
