"""The signed snapshot, and deciders without a database that serve from it."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from balaclava.client import Client
from balaclava.service.credentials import Vault
from balaclava.service.http.edge import EdgeDecider, create_edge_app, first_snapshot
from balaclava.service.problems import StartError
from balaclava.service.protocols import signed_snapshot
from balaclava.service.protocols.signed_snapshot import EdgeSnapshot, FlagShares, SnapshotError
from balaclava.service.service import Service
from tests.service.http.test_app import client_of, create, decide, reward
from tests.service.servers import in_a_thread

pytest.importorskip("cryptography")
WINDOWS = {"default_reward": 0.0}
BULK = "/ofrep/v1/evaluate/flags"


def content_of(answer: Any) -> dict[str, Any]:
    return json.loads(base64.b64decode(answer.json()["content"]))


def finished(client: TestClient, name: str, **changes: Any) -> None:
    create(client, name=name, **changes)
    decide(client, name, count=5)
    assert client.post(f"/v1/experiments/{name}/finish").status_code == 200


def test_only_what_is_released_is_published(open_service: Callable[..., Service]) -> None:
    client = client_of(open_service())
    finished(client, "trajectory", **WINDOWS)
    finished(client, "reports", policy="ldp-ucb-bernoulli")
    gauss = {"policy": "dp-ftpl-gauss", "parameters": {"epsilon": 1.0, "delta": 0.01}}
    finished(client, "single decisions", **gauss)
    finished(client, "not private", policy="ucb1", parameters={})
    create(client, name="running", **WINDOWS)
    create(client, name="paused", **WINDOWS)
    client.post("/v1/experiments/paused/pause")
    content = content_of(client.get("/v1/snapshot"))
    assert content["flags"].keys() == {"trajectory", "reports"}
    assert content.keys() == {"format", "version", "issued", "expires", "salt", "flags"}
    flag = content["flags"]["trajectory"]
    assert flag.keys() == {"labels", "shares"}
    assert sorted(flag["shares"]) == [0.0, 0.0, 1.0]


def test_an_arm_that_came_later_is_published(open_service: Callable[..., Service]) -> None:
    client = client_of(open_service())
    create(client, **WINDOWS)
    client.patch("/v1/experiments/shop", json={"add_arms": ["grid"], "retire_arms": ["plain"]})
    decide(client, count=5)
    client.post("/v1/experiments/shop/finish")
    snapshot = verified(client.get("/v1/snapshot").content)
    assert snapshot.flags["shop"].labels == ["plain", "friendly", "map", "grid"]
    assert snapshot.flags["shop"].shares[0] == 0.0


def test_no_request_changes_the_tag_but_finish(open_service: Callable[..., Service]) -> None:
    service = open_service()
    client = client_of(service)
    service.clock.catch_up((service.clock.now() // 3_600 + 1) * 3_600 + 1)  # not at an hour's end
    finished(client, "done")
    create(client, name="arrival")
    first = client.get("/v1/snapshot")
    for each in decide(client, "arrival", count=20, person="ann"):
        assert reward(client, each, 1.0).status_code == 200
    assert client.get("/v1/snapshot").headers["ETag"] == first.headers["ETag"]
    tag = {"If-None-Match": first.headers["ETag"]}
    assert client.get("/v1/snapshot", headers=tag).status_code == 304
    client.post("/v1/experiments/arrival/finish")
    assert client.get("/v1/snapshot", headers=tag).status_code == 200


@pytest.fixture
def document(open_service: Callable[..., Service]) -> bytes:
    client = client_of(open_service())
    finished(client, "page", **WINDOWS)
    return client.get("/v1/snapshot").content


def verified(document: bytes, **more: Any) -> EdgeSnapshot:
    key = json.loads(document)["public_key"]
    now = content_time(document) + 1.0
    return signed_snapshot.verify(document, **{"public_key": key, "now": now, **more})


def content_time(document: bytes) -> float:
    return float(json.loads(base64.b64decode(json.loads(document)["content"]))["issued"])


def test_a_snapshot_is_verified(document: bytes, tmp_path: Path) -> None:
    snapshot = verified(document)
    assert snapshot.expires - snapshot.issued == 86_400
    with pytest.raises(SnapshotError, match="expired"):
        verified(document, now=snapshot.expires)
    fields = json.loads(document)
    other = signed_snapshot.publish(Vault(bytes(32)), [], 1e9)
    with pytest.raises(SnapshotError, match="not of the given public key"):
        verified(document, public_key=json.loads(other)["public_key"])
    content = base64.b64decode(fields["content"]).replace(b"1.0", b"0.9")
    forged = fields | {"content": base64.b64encode(content).decode()}
    with pytest.raises(SnapshotError, match="signature"):
        verified(json.dumps(forged).encode())
    for broken in (b"{", b"{}", b"[]", json.dumps(fields | {"signature": "?"}).encode()):
        with pytest.raises(SnapshotError, match="not a signed snapshot"):
            signed_snapshot.verify(broken, fields["public_key"], now=0.0)
    newer = snapshot._replace(issued=snapshot.issued + 1)
    more = snapshot._replace(flags={**snapshot.flags, "other": FlagShares(["a"], [1.0])})
    for newest in (newer, more):
        with pytest.raises(SnapshotError, match="older"):
            verified(document, newest=newest)
    assert verified(document, newest=snapshot) == snapshot


def test_shares_are_met(document: bytes) -> None:
    """A chi-square of 3 degrees is above 21.1 with probability 1e-4; the salt is fixed."""
    shares = [0.1, 0.0, 0.3, 0.6]
    flag = FlagShares(["a", "b", "c", "d"], shares)
    snapshot = EdgeSnapshot(0.0, 1.0, "salt", {"page": flag, "other": flag})
    counts = Counter(snapshot.arm("page", f"person {number}") for number in range(10_000))
    assert counts[1] == 0
    expected = {arm: 10_000 * shares[arm] for arm in (0, 2, 3)}
    assert sum((counts[arm] - mean) ** 2 / mean for arm, mean in expected.items()) < 21.1
    # Two flags assign persons independently.
    both = Counter(snapshot.arm("other", f"person {n}") for n in range(10_000)
                   if snapshot.arm("page", f"person {n}") == 3)  # fmt: skip
    assert abs(both[3] / both.total() - 0.6) < 5 * (0.24 / both.total()) ** 0.5


def test_an_edge_serves_what_the_service_serves(tmp_path: Path) -> None:
    with in_a_thread(tmp_path) as (address, key, _), Client(address, key) as client:
        more: dict[str, Any] = {"parameters": {"epsilon": 1.0}, "reward_window": 60.0}
        client.create_experiment("page", "dp-imed", ["plain", "map"], **more)
        client.decide("page", count=10)
        client.finish("page")
        label = client.decide("page").label
        headers = {"Authorization": f"Bearer {key}"}
        public = httpx.get(f"{address}/v1/snapshot", headers=headers).json()["public_key"]
        cache = str(tmp_path / "cache.json")
        decider = EdgeDecider(f"{address}/v1/snapshot", public, cache, key)
        first_snapshot(decider)
        decider.refresh()  # by ETag: nothing to read
        edge = TestClient(create_edge_app(decider))
        made = edge.post("/v1/experiments/page/decisions", json={"person": "ann", "count": 2})
        assert [each["label"] for each in made.json()["decisions"]] == [label] * 2
        assert {each["decision_id"] for each in made.json()["decisions"]} == {""}
        assert not any(each["learns"] for each in made.json()["decisions"])
        context = {"context": {"targetingKey": "ann"}}
        flag = edge.post(f"{BULK}/page", json=context)
        assert (flag.json()["value"], flag.json()["reason"]) == (label, "STATIC")
        every = edge.post(BULK, json=context)
        assert every.json()["flags"] == [flag.json()]
        tag = {"If-None-Match": every.headers["ETag"]}
        assert edge.post(BULK, json=context, headers=tag).status_code == 304
        assert edge.post(f"{BULK}/no", json=context).json()["errorCode"] == "FLAG_NOT_FOUND"
        assert edge.post("/v1/experiments/no/decisions", json={}).status_code == 404
        assert edge.get("/readyz").json()["status"] == "ready"
    # The service is gone: the cache serves, also after a restart, but not for another key.
    restarted = EdgeDecider(f"{address}/v1/snapshot", public, cache, key)
    first_snapshot(restarted)
    assert restarted.snapshot == decider.snapshot
    with pytest.raises(StartError, match="cannot fetch"):
        first_snapshot(EdgeDecider(f"{address}/v1/snapshot", public[::-1], cache, key))


def test_an_older_snapshot_is_refused_after_a_restart(
    open_service: Callable[..., Service], tmp_path: Path
) -> None:
    service = open_service()
    client = client_of(service)
    finished(client, "one", **WINDOWS)
    old = client.get("/v1/snapshot").content
    finished(client, "two", **WINDOWS)
    source, cache = tmp_path / "snapshot.json", tmp_path / "cache.json"
    source.write_bytes(client.get("/v1/snapshot").content)
    public = json.loads(old)["public_key"]
    EdgeDecider(str(source), public, str(cache)).refresh()
    source.write_bytes(old)
    with pytest.raises(SnapshotError, match="older"):
        EdgeDecider(str(source), public, str(cache)).refresh()


def test_an_expired_snapshot_serves_nobody(document: bytes, tmp_path: Path) -> None:
    source = tmp_path / "snapshot.json"
    source.write_bytes(document)
    decider = EdgeDecider(str(source), json.loads(document)["public_key"], str(tmp_path / "c"))
    decider.refresh()
    decider._newest = decider.snapshot._replace(expires=1.0)
    edge = TestClient(create_edge_app(decider))
    for answer in (
        edge.get("/readyz"),
        edge.post("/v1/experiments/page/decisions", json={"person": "ann"}),
        edge.post(BULK, json={"context": {"targetingKey": "ann"}}),
    ):
        assert answer.status_code == 503
        assert answer.headers["Retry-After"] == "60"
