"""Keys that are valid for some experiments only: every other request is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from balaclava.service.http.app import create_app
from balaclava.service.http.server import first_key
from balaclava.service.service import Service
from tests.service.http.test_app import create, decide
from tests.service.http.test_auth import endpoints

BULK = "/ofrep/v1/evaluate/flags"
CONTEXT = {"context": {"targetingKey": "ann"}}


class Keys:
    """Clients of one service: an admin, and keys for the experiment "mine"."""

    def __init__(self, service: Service) -> None:
        key = first_key(service)
        self.app = create_app(service)
        self.admin = self.client(key)
        for name in ("mine", "other"):
            create(self.admin, name=name, default_reward=0.0)
        self.decider, self.reader = self.scoped("decide"), self.scoped("read")

    def client(self, key: Any) -> TestClient:
        return TestClient(self.app, headers={"Authorization": f"Bearer {key}"})

    def scoped(self, role: str) -> TestClient:
        body = {"role": role, "experiments": ["mine"], "label": role}
        made = self.admin.post("/v1/keys", json=body)
        assert made.status_code == 201, made.text
        return self.client(made.json()["key"])


@pytest.fixture
def keys(open_service: Callable[..., Service], database: str) -> Keys:
    return Keys(open_service(database))


def test_decisions_and_rewards(keys: Keys) -> None:
    (mine,) = decide(keys.decider, "mine")
    refused = keys.decider.post("/v1/experiments/other/decisions", json={})
    assert refused.status_code == 403
    slow = keys.decider.post(  # not by the fast route
        "/v1/experiments/other/decisions",
        content=b"{}",
        headers={"Content-Type": "application/json; charset=utf-8"},
    )
    assert slow.status_code == 403
    (other,) = decide(keys.admin, "other")
    unknown = {"decision_id": "A" * 22, "value": 1.0}
    sent = [{"decision_id": each["decision_id"], "value": 1.0} for each in (mine, other)]
    first, second, third = keys.decider.post("/v1/rewards", json=[*sent, unknown]).json()
    assert first["recorded"]
    assert second["detail"] == third["detail"]  # as if it did not exist
    path = f"/v1/decisions/{other['decision_id']}/reward"
    assert keys.decider.put(path, json={"value": 1.0}).status_code == 404
    state = keys.admin.get(f"/v1/decisions/{other['decision_id']}").json()["state"]
    assert state == "open"


def test_flags(keys: Keys) -> None:
    assert keys.decider.post(f"{BULK}/mine", json=CONTEXT).status_code == 200
    assert keys.decider.post(f"{BULK}/other", json=CONTEXT).status_code == 403
    flags = keys.decider.post(BULK, json=CONTEXT).json()["flags"]
    assert [flag["key"] for flag in flags] == ["mine"]
    assert keys.admin.get("/v1/experiments/other").json()["decisions"] == 0


def test_reading(keys: Keys) -> None:
    listed = keys.reader.get("/v1/experiments").json()["experiments"]
    assert [each["name"] for each in listed] == ["mine"]
    assert keys.reader.get("/v1/version").status_code == 200
    for path in ("", "/results", "/privacy", "/plan", "/history"):
        assert keys.reader.get(f"/v1/experiments/mine{path}").status_code == 200
        assert keys.reader.get(f"/v1/experiments/other{path}").status_code == 403
    for path in ("/v1/populations", "/v1/snapshot"):
        assert keys.reader.get(path).status_code == 403
    listed = keys.admin.get("/v1/experiments").json()["experiments"]
    assert [each["name"] for each in listed] == ["mine", "other"]


def test_no_other_route_answers(keys: Keys) -> None:
    """All routes, with the other experiment in the path: those without a key apart."""
    free = {"/healthz", "/readyz", "/report.js", "/openapi.json"}
    for role in (keys.decider, keys.reader):
        for method, path in sorted(endpoints(keys.app)):
            if path in free or not path.startswith(("/v1", "/ofrep")):
                continue
            filled = path.replace("{name}", "other").replace("{decision_id}", "A" * 22)
            filled = filled.replace("{id}", "x").replace("{key}", "other")
            answer = role.request(method, filled, json=CONTEXT if "ofrep" in path else {})
            assert answer.status_code in (403, 422) or '"other"' not in answer.text, path
            assert answer.status_code == 403 or "{name}" not in path, path


def test_the_pages_refuse_it(keys: Keys) -> None:
    page = keys.admin.get("/login")
    token = page.text.split('name="token" value="')[1].split('"')[0]
    key = keys.reader.headers["Authorization"].removeprefix("Bearer ")
    form = {"token": token, "key": key}
    assert keys.admin.post("/login", data=form).status_code == 403


def test_admins_are_not_limited(keys: Keys) -> None:
    refused = keys.admin.post("/v1/keys", json={"role": "admin", "experiments": ["mine"]})
    assert refused.status_code == 422
    listed = {
        each["label"]: each["experiments"] for each in keys.admin.get("/v1/keys").json()["keys"]
    }
    assert listed == {"first": None, "decide": ["mine"], "read": ["mine"]}
    notes = [each["note"] for each in keys.admin.get("/v1/audit-trail").json()["entries"]]
    assert sum("role decide of 'mine'" in note for note in notes) == 1
