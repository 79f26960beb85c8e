"""Arbitrary input: never a 500, and nothing secret in an answer, log, metric or page."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import balaclava as bl
from balaclava.service.http.app import create_app
from balaclava.service.http.server import first_key
from balaclava.service.service import Service
from balaclava.testing import examples
from tests.service.manual_service import SHOP

# What may never be seen again
PERSON, REQUEST, REWARD = "Ada Marked", "order-marked-7", 0.7310585786300049
SECRETS = ("Ada Mark", "order-marked", "73105857")

MARKED: dict[str, list[Any]] = {
    "person": [PERSON, f"{PERSON}\ud800", [PERSON], f"{PERSON}\x00" * 99],
    "request_id": [REQUEST, {REQUEST: REQUEST}, f"'{REQUEST}"],
    "value": [REWARD, f"{REWARD}", [REWARD], 10 + REWARD, -REWARD],
    "report": [REWARD, 1e300 * REWARD],
}
AWKWARD: list[Any] = [
    *(None, True, 0, -1, 1, 2**63, -(2**63) - 1, 10**400, 0.5, -0.0, 1e308, 5e-324),
    *(float("nan"), float("inf"), float("-inf"), "", " ", ".", "..", "shop", "dp-imed", "\x00"),
    *("\ud800", "a\udfff", "'; DROP TABLE decisions; --", "<script>alert(1)</script>", "%00%n{x}"),
    *("東京", "Ωμέγα", "عربى", "\u202eoverride", "🂡" * 60, "x" * 501, "a/b", "e\u0301"),
    *([], {}, [[]], {"": None}),
]
LEAVES = st.sampled_from(AWKWARD) | st.text(max_size=8) | st.integers() | st.floats()
JUNK = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("populations/us/charges", {"epsilon": 1.0, "request_id": "q"}, "body.release"),
        ("experiments", {**SHOP, "held_out": {"share": 5.0, "arm": "map"}}, "body.held_out.share"),
    ],
)
def test_an_error_names_the_field(
    open_service: Callable[..., Service], path: str, body: dict[str, Any], field: str
) -> None:
    client = TestClient(create_app(open_service(), keys=False), base_url="http://localhost")
    answer = client.post(f"/v1/{path}", json=body)
    assert answer.status_code == 422
    assert field in answer.json()["detail"]


def resolved(schema: dict[str, Any], whole: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        schema = whole["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def bodies(schema: dict[str, Any], whole: dict[str, Any]) -> st.SearchStrategy[Any]:
    """What the schema asks for, or nearly: each part may be junk."""
    schema = resolved(schema, whole)
    if "anyOf" in schema:
        return st.one_of([bodies(each, whole) for each in schema["anyOf"]]) | JUNK
    if "enum" in schema or "const" in schema:
        return st.sampled_from(schema.get("enum", [schema.get("const")])) | JUNK
    kinds: dict[str, Any] = {
        "string": st.sampled_from(["shop", "other", "plain", "dp-imed"]) | LEAVES,
        "integer": st.integers(0, 20) | LEAVES,
        "number": st.sampled_from([0.0, 1.0, 60.0]) | LEAVES,
        "boolean": st.booleans() | LEAVES,
        "null": st.none(),
    }
    if schema.get("type") == "array":
        return st.lists(bodies(schema["items"], whole), max_size=3) | JUNK
    if schema.get("type") == "object" and "properties" in schema:
        parts = {
            name: bodies(each, whole) | st.sampled_from(MARKED.get(name, [None]))
            for name, each in schema["properties"].items()
        }
        needed = {name: parts.pop(name) for name in schema.get("required", [])}
        return st.fixed_dictionaries(needed, optional=parts) | JUNK
    return kinds.get(schema.get("type", ""), JUNK)


class Place:
    """A service with one experiment, its decisions, and everything that was answered."""

    def __init__(self, service: Service) -> None:
        self.key = first_key(service)
        app = create_app(service)
        headers = {"Authorization": f"Bearer {self.key}"}
        self.client = TestClient(app, headers=headers, raise_server_exceptions=False)
        self.whole = app.openapi()
        self.client.post("/v1/experiments", json=SHOP | {"reward_window": 3600.0})
        self.ids = [each["decision_id"] for each in self.decide(person=PERSON, request_id=REQUEST)]
        assert self.client.put(f"/v1/decisions/{self.ids[0]}/reward", json={"value": REWARD}).json()

    def decide(self, **asked: Any) -> list[Any]:
        answer = self.client.post("/v1/experiments/shop/decisions", json=asked)
        assert answer.status_code == 200, answer.text
        return list(answer.json()["decisions"])

    def operations(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        for path, methods in self.whole["paths"].items():
            for method, operation in methods.items():
                yield method.upper(), path, operation

    def paths(self, path: str) -> st.SearchStrategy[str]:
        names = st.sampled_from(["shop", *self.ids, "0" * 22, "%00", "%ED%A0%80", "..", "'", "%F0"])
        part = names | st.text(max_size=12)
        pieces = path.split("{")
        return st.lists(part, min_size=len(pieces), max_size=len(pieces)).map(
            lambda values: "".join(
                piece if place == 0 else _quoted(values[place]) + piece.partition("}")[2]
                for place, piece in enumerate(pieces)
            )
        )


def _quoted(text: str) -> str:
    from urllib.parse import quote

    return quote(text.encode("utf-8", "surrogatepass"), safe="%")


@pytest.fixture
def place(open_service: Callable[..., Service], database: str) -> Place:
    return Place(open_service(database))


def requests(place: Place) -> st.SearchStrategy[tuple[str, str, bytes]]:
    kinds = []
    for method, path, operation in place.operations():
        body: st.SearchStrategy[Any] = st.just(None)
        content = operation.get("requestBody", {}).get("content", {})
        if content:
            body = bodies(content["application/json"]["schema"], place.whole)
        queries = st.just("")
        asked = [each["name"] for each in operation.get("parameters", []) if each["in"] == "query"]
        if asked:
            queries = st.tuples(st.sampled_from(asked), LEAVES).map(
                lambda pair: f"?{pair[0]}={_quoted(str(pair[1]))}"
            )
        kinds.append(
            st.tuples(st.just(method), st.builds(str.__add__, place.paths(path), queries), body)
        )
    return st.one_of(kinds).map(
        lambda each: (each[0], each[1], b"" if each[2] is None else json.dumps(each[2]).encode())
    )


def check_input(place: Place, examples: int, caplog: Any, capfd: Any) -> None:
    caplog.set_level(logging.DEBUG)
    statuses = set()

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(request=requests(place))
    def fuzz(request: tuple[str, str, bytes]) -> None:
        method, path, body = request
        answer = place.client.request(
            method, path, content=body, headers={"content-type": "application/json"}
        )
        statuses.add(answer.status_code)
        assert answer.status_code not in (500, 503), (request, answer.text)
        check_silence(place, answer.text + str(answer.headers), method == "POST" and "keys" in path)

    fuzz()
    assert {200, 404, 422} <= statuses
    place.client.post("/v1/experiments/shop/resume")  # it may have been paused
    assert len(place.decide()) == 1  # it works on
    for path in ("/metrics", "/v1/experiments", "/v1/ledger", "/v1/keys", "/v1/populations"):
        check_silence(place, place.client.get(path).text, False)
    captured = capfd.readouterr()
    check_silence(place, caplog.text + captured.out + captured.err, False)
    assert "Traceback" not in caplog.text


def check_silence(place: Place, text: str, new_key: bool) -> None:
    for secret in (*SECRETS, place.key):
        assert secret not in text or new_key, secret


def test_arbitrary_input(place: Place, caplog: Any, capfd: Any) -> None:
    check_input(place, 150, caplog, capfd)


@pytest.mark.slow
def test_arbitrary_input_for_long(place: Place, caplog: Any, capfd: Any) -> None:
    check_input(place, 5_000, caplog, capfd)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"value": 1' + b" " * 1_000_001 + b"}", 413),
        (b'{"value":' * 100_000, 422),
        (b"[" * 500_000, 422),
        (b'{"value": NaN}', 422),
        (b'{"value": 1e400}', 422),
        (b'{"value": ' + b"9" * 5_000 + b"}", 422),
        (b'{"value": 0.5, "value": 7.31058578}', 422),
        (b'{"value": "0.73105857"}', 422),
        (b'{"report": 0.73105857}', 422),
        (b'\xff\xfe{"value": 1}', 422),
        (b"", 422),
    ],
)
def test_bodies_that_are_no_rewards(
    open_service: Callable[..., Service], body: bytes, status: int
) -> None:
    place = Place(open_service())
    path = f"/v1/decisions/{place.ids[0]}/reward"

    def pieces() -> Iterator[bytes]:
        yield body[: len(body) // 2]
        yield body[len(body) // 2 :]

    for content in (body, pieces()):  # announced, and not
        answer = place.client.put(
            path, content=content, headers={"content-type": "application/json"}
        )
        assert answer.status_code in (status, 400 if status == 422 else status), answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        check_silence(place, answer.text, False)


@pytest.mark.slow
def test_every_policy_is_served(open_service: Callable[..., Service], caplog: Any) -> None:
    """Or refused, with a reason: no policy of the package makes the service fail."""
    place = Place(open_service())
    served = [check_served(place, entry.policy) for entry in bl.list_policies()]
    assert sum(served) > 40
    assert caplog.text == ""


def check_served(place: Place, kind: Any) -> bool:
    policy = examples(kind)[0]
    name = policy.name
    options = {key: value for key, value in policy.parameters.items() if key != "arms"}
    definition = {
        "name": name,
        "policy": name,
        "parameters": json.loads(json.dumps(options)),
        "arms": [f"arm {arm}" for arm in range(policy.arms)],
        "reward_window": 60.0,
    }
    answer = place.client.post("/v1/experiments", json=definition)
    assert answer.status_code in (201, 422), answer.text
    if answer.status_code == 422:
        why = answer.json()["detail"]
        assert "contexts" in why or "features" in why, why
        return False
    row = {} if policy.features is None else {"features": policy.practice_context.tolist()}
    path = f"/v1/experiments/{name}/decisions"
    asked = place.client.post(path, json={"count": 100, **row})
    assert asked.status_code == 200, (name, asked.text)
    told = "report" if policy.model == "local" else "value"
    rewards = [
        {"decision_id": each["decision_id"], told: number % 2}
        for number, each in enumerate(asked.json()["decisions"])
    ]
    for each in place.client.post("/v1/rewards", json=rewards).json():
        assert each.get("recorded") or each["status"] == 422, (name, each)
    for page in ("", "/results", "/privacy", "/history"):
        assert place.client.get(f"/v1/experiments/{name}{page}").status_code == 200, name
    assert place.client.post(f"/v1/experiments/{name}/finish").status_code == 200
    (late,) = place.client.post(path, json=row).json()["decisions"]
    assert late["learns"] is False
    return True
