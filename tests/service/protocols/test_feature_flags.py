"""Flags by OFREP: the protocol's own forms, and a stock OpenFeature provider from PyPI."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from balaclava.client import Client
from balaclava.service.service import Service
from tests.service.http.test_app import client_of, create
from tests.service.servers import in_a_thread

WINDOWS = {"default_reward": 0.0}
BULK = "/ofrep/v1/evaluate/flags"


@pytest.fixture
def flags(open_service: Callable[..., Service], database: str) -> TestClient:
    client = client_of(open_service(database))
    create(client, **WINDOWS)
    return client


def evaluate(client: TestClient, key: str = "shop", **context: Any) -> httpx.Response:
    return client.post(f"{BULK}/{key}", json={"context": context})


def bulk(client: TestClient, person: str = "ann", tag: str = "") -> httpx.Response:
    headers = {"If-None-Match": tag}
    return client.post(BULK, json={"context": {"targetingKey": person}}, headers=headers)


def test_the_first_evaluation_decides_and_all_others_repeat_it(flags: TestClient) -> None:
    first = evaluate(flags, targetingKey="ann", plan="free").json()
    assert first["key"] == "shop"
    assert first["reason"] == "SPLIT"
    assert first["value"] == first["variant"] in ("plain", "friendly", "map")
    assert first["metadata"]["learns"] is True
    assert all(evaluate(flags, targetingKey="ann").json() == first for _ in range(3))
    assert flags.get("/v1/experiments/shop").json()["decisions"] == 1
    state = flags.get(f"/v1/decisions/{first['metadata']['decision_id']}").json()
    assert state["state"] == "open"
    path = f"/v1/decisions/{first['metadata']['decision_id']}/reward"
    assert flags.put(path, json={"value": 1.0}).json() == {"recorded": True}


def test_all_flags_at_once_decide_nothing(flags: TestClient) -> None:
    create(flags, name="other", arms=["true", "false"], **WINDOWS)
    answer = bulk(flags)
    unknown = {"reason": "UNKNOWN", "metadata": {"exposed": False}}
    assert answer.json() == {"flags": [{"key": "shop", **unknown}, {"key": "other", **unknown}]}
    assert flags.get("/v1/experiments/shop").json()["decisions"] == 0
    assert bulk(flags, tag=answer.headers["ETag"]).status_code == 304
    assert bulk(flags, tag=f'"x", W/{answer.headers["ETag"]}').content == b""
    exposed = evaluate(flags, "other", targetingKey="ann").json()
    assert exposed["value"] is (exposed["variant"] == "true")
    changed = bulk(flags, tag=answer.headers["ETag"])
    assert changed.json()["flags"][1] == exposed
    assert bulk(flags, "bob").json() == answer.json()


def test_a_reward_changes_neither_flags_nor_their_tag(flags: TestClient) -> None:
    """By arrival too, where a reward changes the experiment's version at once."""
    create(flags, name="arrival")
    made = evaluate(flags, "arrival", targetingKey="ann").json()["metadata"]["decision_id"]
    before = bulk(flags)
    flags.put(f"/v1/decisions/{made}/reward", json={"value": 1.0})
    assert bulk(flags).headers["ETag"] == before.headers["ETag"]
    assert bulk(flags, tag=before.headers["ETag"]).status_code == 304


def test_states_of_an_experiment(flags: TestClient) -> None:
    known = evaluate(flags, targetingKey="ann").json()
    flags.post("/v1/experiments/shop/pause")
    assert evaluate(flags, targetingKey="ann").json() == known
    assert evaluate(flags, targetingKey="bob").json()["reason"] == "DISABLED"
    assert "value" not in evaluate(flags, targetingKey="bob").json()
    flags.post("/v1/experiments/shop/resume")
    flags.post("/v1/experiments/shop/finish")
    for person in ("ann", "bob"):
        answer = evaluate(flags, targetingKey=person).json()
        assert answer["reason"] == "STATIC"
        assert answer["value"] == known["value"]  # the leader is the last arm that learned
    assert flags.get("/v1/experiments/shop").json()["decisions"] == 1


def test_a_retired_arm_is_served_no_more(flags: TestClient) -> None:
    first = evaluate(flags, targetingKey="ann").json()
    flags.patch("/v1/experiments/shop", json={"retire_arms": [first["variant"]]})
    (peeked,) = bulk(flags).json()["flags"]
    assert peeked["reason"] == "UNKNOWN"
    again = evaluate(flags, targetingKey="ann").json()
    assert again["variant"] != first["variant"]
    assert again["metadata"]["learns"] is False
    assert evaluate(flags, targetingKey="ann").json() == again
    flags.post("/v1/experiments/shop/pause")
    flags.patch("/v1/experiments/shop", json={"retire_arms": [again["variant"]]})
    assert evaluate(flags, targetingKey="ann").json()["reason"] == "DISABLED"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"context": {}}', "TARGETING_KEY_MISSING"),
        (b'{"context": {"targetingKey": ""}}', "TARGETING_KEY_MISSING"),
        (b'{"context": {"targetingKey": 7}}', "INVALID_CONTEXT"),
        (b'{"context": {"targetingKey": "%s"}}' % (b"x" * 501), "INVALID_CONTEXT"),
        (b"{}", "INVALID_CONTEXT"),
        (b"", "INVALID_CONTEXT"),
        (b"{", "PARSE_ERROR"),
    ],
)
def test_errors_have_the_protocols_form(
    open_service: Callable[..., Service], body: bytes, code: str
) -> None:
    client = client_of(open_service())
    create(client)
    for path in (BULK, f"{BULK}/shop"):
        headers = {"Content-Type": "application/json"}
        answer = client.post(path, content=body, headers=headers)
        assert answer.status_code == 400
        assert answer.json()["errorCode"] == code
        assert answer.json()["errorDetails"]
        assert answer.json().get("key") == ("shop" if path != BULK else None)
    assert evaluate(client, "no such flag", targetingKey="ann").status_code == 404
    missing = evaluate(client, "no such flag", targetingKey="ann").json()
    assert (missing["key"], missing["errorCode"]) == ("no such flag", "FLAG_NOT_FOUND")
    refused = client.post(BULK, json={}, headers={"Authorization": "Bearer x"})
    assert refused.status_code == 401


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    with in_a_thread(tmp_path_factory.mktemp("flags")) as (address, key, _):
        with Client(address, key) as client:
            create_by(client, "page", ["plain", "map"])
            create_by(client, "new-checkout", ["true", "false"])
        yield address, key


def create_by(client: Client, name: str, arms: list[str]) -> None:
    client.create_experiment(
        name, "dp-imed", arms, parameters={"epsilon": 1.0}, reward_window=60.0, default_reward=0.0
    )


def test_a_stock_provider_from_pypi(server: tuple[str, str]) -> None:
    stock = pytest.importorskip("openfeature.contrib.provider.ofrep")
    from openfeature import api
    from openfeature.evaluation_context import EvaluationContext
    from openfeature.exception import ErrorCode

    address, key = server
    provider = stock.OFREPProvider(
        address, headers_factory=lambda: {"Authorization": f"Bearer {key}"}, timeout=30.0
    )
    api.set_provider(provider)
    flags = api.get_client()
    shown = {}
    for person in ("ann", "bob"):
        context = EvaluationContext(person, {"plan": "free"})
        page = flags.get_string_details("page", "code default", context)
        assert page.error_code is None, page.error_message
        assert page.value == page.variant in ("plain", "map")
        assert page.reason == "SPLIT"
        assert flags.get_string_value("page", "code default", context) == page.value
        shown[person] = page
        assert isinstance(flags.get_boolean_value("new-checkout", False, context), bool)
        assert flags.get_boolean_details("page", False, context).error_code is (
            ErrorCode.TYPE_MISMATCH
        )
    with Client(address, key) as client:  # the metadata leads to the reward
        for page in shown.values():
            client.reward(page.flag_metadata["decision_id"], 1.0)
        assert client.experiment("page")["decisions"] == 2
    without = flags.get_string_details("page", "code default", EvaluationContext(None))
    assert without.value == "code default"
    assert without.error_code is ErrorCode.TARGETING_KEY_MISSING
    unknown = flags.get_string_details("no such", "code default", EvaluationContext("ann"))
    assert unknown.error_code is ErrorCode.FLAG_NOT_FOUND
    api.shutdown()
