"""Changes of running experiments, and the trail that they leave, on both databases."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from balaclava.service.problems import StartError
from balaclava.service.service import Service
from balaclava.service.store.audit_trail import START_OF_CHAIN, entry_digest
from tests.service.http.test_app import SHOP, client_of, create

DAY = 86_400.0


@pytest.fixture
def both(open_service: Callable[..., Service], database: str) -> TestClient:
    return client_of(open_service(database))


def edit(client: TestClient, **changes: Any) -> Any:
    return client.patch("/v1/experiments/shop", json=changes)


def test_owner_purpose_and_retention_change_and_nothing_else(both: TestClient) -> None:
    before = create(both, owner="ann", purpose="first")
    assert before["retention"] == 3600.0 + 30 * DAY
    after = edit(both, owner="bob", retention=DAY).json()
    assert after == before | {"owner": "bob", "retention": DAY}
    assert edit(both, purpose="").json()["purpose"] == ""
    assert both.get("/v1/experiments/shop").json() == after | {"purpose": ""}
    # Creating it again is idempotent by the definition, which did not change.
    again = SHOP | {"owner": "ann", "purpose": "first"}
    assert both.post("/v1/experiments", json=again).status_code == 200
    assert both.post("/v1/experiments", json=SHOP | {"owner": "bob"}).status_code == 409


def test_lists_leave_out_what_is_archived_and_search_names_owners_and_purposes(
    both: TestClient,
) -> None:
    create(both, owner="Ann", purpose="which page sells")
    create(both, name="other")

    def listed(query: str = "") -> list[str]:
        answer = both.get(f"/v1/experiments{query}").json()
        return [each["name"] for each in answer["experiments"]]

    assert listed() == ["shop", "other"]
    assert listed("?search=ann") == listed("?search=PAGE") == ["shop"]
    assert edit(both, archived=True).json()["archived"]
    assert listed() == ["other"]
    assert listed("?archived=true") == ["shop", "other"]
    assert listed("?search=shop") == []
    assert edit(both, archived=False).status_code == 200
    assert listed() == ["shop", "other"]


@pytest.mark.parametrize("changes", [{}, {"arms": ["a"]}, {"retention": 3599.0}, {"owner": 3}])
def test_other_changes_are_refused(both: TestClient, changes: dict[str, Any]) -> None:
    create(both)
    assert edit(both, **changes).status_code == 422
    assert both.patch("/v1/experiments/other", json={"owner": "x"}).status_code == 404


def test_a_retention_shorter_than_the_window_is_refused_at_creation(both: TestClient) -> None:
    answer = both.post("/v1/experiments", json=SHOP | {"retention": 60.0})
    assert answer.status_code == 422
    assert "reward_window" in answer.json()["detail"]
    assert create(both, retention=DAY)["retention"] == DAY


def test_each_change_has_an_actor_and_the_digest_of_the_one_before(both: TestClient) -> None:
    create(both)
    edit(both, owner="bob")
    edit(both, owner="bob")  # changes nothing
    both.post("/v1/experiments/shop/pause")
    both.put("/v1/populations/us", json={"epsilon": 2.0})
    create(both, name="second", population="us")
    entries = both.get("/v1/audit-trail").json()["entries"]
    events = ["key made", "created", "edited", "pause", "population", "charge"]
    assert [each["event"] for each in entries] == events
    (actor,) = {each["actor"] for each in entries[1:]}
    assert actor.startswith("by key ")
    digest = START_OF_CHAIN
    for entry in entries:
        assert entry["previous"] == digest
        content = {k: v for k, v in entry.items() if k not in ("actor", "previous", "digest")}
        digest = entry_digest(digest, entry["actor"], content)
        assert entry["digest"] == digest
    page = both.get("/v1/audit-trail", params={"after": entries[1]["id"], "limit": 2}).json()
    assert page["entries"] == entries[2:4]


def test_a_changed_trail_is_noticed(open_service: Callable[..., Service], tmp_path: Path) -> None:
    service = open_service()
    client = client_of(service)
    create(client)
    edit(client, owner="bob")
    assert service.ledger.require_intact() == 3
    with contextlib.closing(sqlite3.connect(tmp_path / "ledger.db")) as ledger, ledger:
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            ledger.execute("UPDATE links SET actor = 'eve'")
        ledger.execute("DROP TRIGGER entries_no_UPDATE")
        ledger.execute("UPDATE entries SET note = 'owner = eve' WHERE event = 'edited'")
    with pytest.raises(StartError, match="was changed"):
        service.ledger.require_intact()
