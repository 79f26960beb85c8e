"""Exports: whole, in both formats, and without anything that depends on unreleased rewards."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pyarrow import parquet

from balaclava.service.service import Service
from tests.service.http.test_app import client_of, create, decide, reward

FIELDS = {"decision_id", "arm", "label", "learns", "propensity", "level", "made", "closes"}


@pytest.fixture
def both(open_service: Callable[..., Service], database: str) -> TestClient:
    return client_of(open_service(database))


def lines(client: TestClient, **query: Any) -> list[dict[str, Any]]:
    answer = client.get("/v1/experiments/shop/export", params=query)
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def test_an_export_has_every_decision_and_no_reward(
    both: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("balaclava.service.export._PAGE", 7)
    create(both, default_reward=0.0)
    made = decide(both, count=50, person="ann", request_id="one")
    made += decide(both, count=3)
    before = lines(both)
    for each in made[:9]:
        reward(both, each, 0.625)
    documents = lines(both)
    assert documents == before  # nothing in it follows unreleased rewards
    kinds = [each.pop("type") for each in documents]
    assert kinds == ["experiment", "privacy", "results", "history", *["decision"] * 53, "end"]
    assert documents[-1] == {"decisions": 53}
    decisions = documents[4:-1]
    assert all(set(each) == FIELDS for each in decisions)
    assert {each["decision_id"] for each in decisions} == {each["decision_id"] for each in made}
    text = json.dumps(documents)
    assert "ann" not in text.replace("annual", "")
    assert "0.625" not in text
    actions = [each["event"] for each in both.get("/v1/audit-trail").json()["entries"]]
    assert actions[-2:] == ["exported", "exported"]


def test_parquet_has_the_same_decisions(both: TestClient) -> None:
    create(both)
    made = decide(both, count=20)
    answer = both.get("/v1/experiments/shop/export?format=parquet")
    table = parquet.read_table(io.BytesIO(answer.content))
    assert set(table.column_names) == FIELDS
    ids = table.column("decision_id").to_pylist()
    assert sorted(ids) == sorted(each["decision_id"] for each in made)
    stored = json.loads(table.schema.metadata[b"balaclava.experiment"])
    assert stored["name"] == "shop"


def test_an_export_can_be_split_by_time(both: TestClient) -> None:
    create(both)
    decide(both, count=5)
    middle = lines(both)[4]["made"] + 1e-6
    decide(both, count=4)
    first, second = lines(both, until=middle), lines(both, since=middle)
    assert (first[-1]["decisions"], second[-1]["decisions"]) == (5, 4)


def test_what_cannot_be_exported_is_refused(both: TestClient) -> None:
    create(both)
    address = "/v1/experiments/shop/export"
    assert both.get(address, params={"format": "csv"}).status_code == 422
    assert both.get(address, params={"since": "nan"}).status_code == 422
    assert both.get("/v1/experiments/other/export").status_code == 404
