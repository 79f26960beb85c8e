"""Who may do what: every endpoint, with no key, a wrong one, and one of each role."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from balaclava.service.credentials import ROLES
from balaclava.service.engine.jobs import CreateKey
from balaclava.service.http.app import create_app
from balaclava.service.problems import Problem
from balaclava.service.service import Service
from tests.service.manual_service import SHOP

ALL, READ, ADMIN, DECIDE = {*ROLES, None}, {"read", "admin"}, {"admin"}, {"decide", "admin"}
RIGHTS: dict[tuple[str, str], Any] = {
    ("GET", "/healthz"): ALL,
    ("GET", "/readyz"): ALL,
    ("GET", "/openapi.json"): ALL,
    ("HEAD", "/openapi.json"): ALL,
    ("GET", "/report.js"): ALL,
    ("POST", "/v1/experiments/{name}/decisions"): DECIDE,
    ("PUT", "/v1/decisions/{decision_id}/reward"): DECIDE,
    ("POST", "/v1/rewards"): DECIDE,
    ("POST", "/ofrep/v1/evaluate/flags"): DECIDE,
    ("POST", "/ofrep/v1/evaluate/flags/{key}"): DECIDE,
    ("POST", "/v1/experiments"): ADMIN,
    ("PATCH", "/v1/experiments/{name}"): ADMIN,
    ("POST", "/v1/experiments/{name}/pause"): ADMIN,
    ("POST", "/v1/experiments/{name}/resume"): ADMIN,
    ("POST", "/v1/experiments/{name}/finish"): ADMIN,
    ("POST", "/v1/experiments/{name}/clone"): ADMIN,
    ("GET", "/v1/experiments"): READ,
    ("GET", "/v1/experiments/{name}"): READ,
    ("GET", "/v1/experiments/{name}/results"): READ,
    ("GET", "/v1/experiments/{name}/plan"): READ,
    ("GET", "/v1/experiments/{name}/export"): ADMIN,
    ("GET", "/v1/experiments/{name}/privacy"): READ,
    ("GET", "/v1/experiments/{name}/history"): READ,
    ("GET", "/v1/experiments/{name}/tasks"): ADMIN,
    ("GET", "/v1/populations"): READ,
    ("GET", "/v1/version"): READ,
    ("PUT", "/v1/populations/{name}"): ADMIN,
    ("POST", "/v1/populations/{name}/charges"): ADMIN,
    ("GET", "/v1/decisions/{decision_id}"): ADMIN,
    ("GET", "/v1/ledger"): ADMIN,
    ("GET", "/v1/audit-trail"): ADMIN,
    ("DELETE", "/v1/persons"): ADMIN,
    ("GET", "/v1/snapshot"): READ,
    ("PUT", "/v1/webhooks/{name}"): ADMIN,
    ("DELETE", "/v1/webhooks/{name}"): ADMIN,
    ("GET", "/v1/webhooks"): ADMIN,
    ("GET", "/v1/keys"): ADMIN,
    ("POST", "/v1/keys"): ADMIN,
    ("DELETE", "/v1/keys/{id}"): ADMIN,
    ("GET", "/metrics"): ADMIN,
}
PAGES: dict[tuple[str, str], Any] = {
    ("GET", "/login"): ALL,
    ("POST", "/login"): ALL,
    ("GET", "/static/{name:path}"): ALL,
    ("POST", "/logout"): READ,
    ("GET", "/"): READ,
    ("GET", "/live"): READ,
    ("GET", "/experiments/{name}"): READ,
    ("GET", "/experiments/{name}/live"): READ,
    ("GET", "/experiments/{name}/charts"): READ,
    ("POST", "/experiments/{name}/review"): READ,
    ("GET", "/ledger"): ADMIN,
    ("GET", "/experiments/{name}/arms"): ADMIN,
    ("POST", "/experiments/{name}/arms"): ADMIN,
    ("GET", "/experiments/{name}/{change}"): ADMIN,
    ("POST", "/experiments/{name}/{change}"): ADMIN,
    ("GET", "/keys"): ADMIN,
    ("POST", "/keys"): ADMIN,
    ("GET", "/keys/{identity}/revoke"): ADMIN,
    ("POST", "/keys/{identity}/revoke"): ADMIN,
}


def endpoints(app: FastAPI) -> set[tuple[str, str]]:
    """Every method of every route, those of included routers too."""

    def walk(routes: Iterable[Any]) -> Iterator[Any]:
        for route in routes:
            inner = getattr(route, "original_router", None)
            yield from [route] if inner is None else walk(inner.routes)

    return {(method, route.path) for route in walk(app.routes) for method in route.methods}


class House:
    """A service with a key of each role, and one that was revoked."""

    def __init__(self, service: Service) -> None:
        self.keys = {
            role: service.run_job(CreateKey(service.ledger, role, ""))  # type: ignore[arg-type]
            for role in ROLES
        }
        self.client = TestClient(create_app(service), follow_redirects=False)
        answer = self.call("POST", "/v1/experiments", "admin", json=SHOP)
        assert answer.status_code == 201
        made = self.call("POST", "/v1/keys", "admin", json={"role": "admin"}).json()
        self.revoked = made["key"]
        assert self.call("DELETE", f"/v1/keys/{made['id']}", "admin").status_code == 204

    def call(self, method: str, path: str, role: str | None, **more: Any) -> Any:
        headers = {} if role is None else {"Authorization": f"Bearer {self.keys[role]['key']}"}
        return self.client.request(method, path, headers=headers, **more)

    def sessions(self) -> Iterator[tuple[str | None, dict[str, str]]]:
        """Cookies: none, made up, of each role; of `decide` there is no session, so one is made."""
        yield None, {}
        yield None, {"balaclava_session": "x"}
        yield None, {"balaclava_session": "a.99999999999.b." + "0" * 64}
        for role, key in self.keys.items():
            session = self.client.app.state.vault.sign_session(key["id"])  # type: ignore[attr-defined]
            yield role, {"balaclava_session": session}


@pytest.fixture
def house(open_service: Callable[..., Service]) -> House:
    service = open_service()
    house = House(service)
    house.client.app.state.vault = service.vault  # type: ignore[attr-defined]
    return house


def address(path: str) -> str:
    for part, value in (
        ("{name:path}", "dashboard.css"),
        ("{name}", "shop"),
        ("{change}", "pause"),
        ("{decision_id}", "0" * 22),
        ("{id}", "0"),
        ("{identity}", "0"),
    ):
        path = path.replace(part, value)
    return path


def test_every_endpoint_has_its_right(house: House) -> None:
    assert endpoints(house.client.app) == {*RIGHTS, *PAGES}  # type: ignore[arg-type]


def test_keys_open_what_their_role_may_and_nothing_else(house: House) -> None:
    wrong = ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic YTpi"})
    revoked = {"Authorization": f"Bearer {house.revoked}"}
    for method, path in RIGHTS:
        rights = RIGHTS[method, path]
        place = address(path)
        for headers in (*wrong, revoked):
            answer = house.client.request(method, place, headers=headers)
            assert (answer.status_code == 401) == (None not in rights), (method, path)
            if answer.status_code == 401:
                assert answer.headers["www-authenticate"] == "Bearer"
                assert answer.headers["content-type"] == "application/problem+json"
        for role in ROLES:
            status = house.call(method, place, role).status_code
            assert status != 401
            assert (status == 403) == (role not in rights), (method, path, role)


def test_pages_open_to_sessions_of_readers_and_admins(house: House) -> None:
    for role, cookies in house.sessions():
        for method, path in PAGES:
            house.client.cookies.clear()
            house.client.cookies.update(cookies)
            form = {"content-type": "application/x-www-form-urlencoded"}
            answer = house.client.request(method, address(path), headers=form, content="")
            entered = answer.status_code not in (303, 401, 403)
            if PAGES[method, path] is ALL:
                assert answer.status_code in (200, 403), (method, path)  # 403: no token
            elif method == "GET":
                assert entered == (role in PAGES[method, path]), (method, path, role)
            else:
                assert not entered, (method, path, role)  # without a CSRF token
            if answer.status_code == 303:
                assert answer.headers["location"].startswith("/login")


def test_a_key_of_a_request_is_no_session_and_the_other_way_round(house: House) -> None:
    for path in ("/", "/ledger", "/keys"):
        assert house.call("GET", path, "admin").status_code == 303
    *_, (_, cookies) = house.sessions()
    house.client.cookies.update(cookies)
    assert house.client.get("/v1/ledger").status_code == 401
    assert house.client.get("/metrics").status_code == 401


def test_a_session_ends_with_its_key_and_with_its_time(house: House, monkeypatch: Any) -> None:
    *_, (role, cookies) = house.sessions()
    assert role == "admin"
    house.client.cookies.update(cookies)
    assert house.client.get("/ledger").status_code == 200
    second = house.call("POST", "/v1/keys", "admin", json={"role": "admin"}).json()
    house.call("DELETE", f"/v1/keys/{house.keys['admin']['id']}", "admin")
    assert house.client.get("/ledger").status_code == 303
    vault = house.client.app.state.vault  # type: ignore[attr-defined]
    house.client.cookies.update({"balaclava_session": vault.sign_session(second["id"])})
    assert house.client.get("/ledger").status_code == 200
    monkeypatch.setattr("balaclava.service.credentials.SESSION_SECONDS", -1)
    house.client.cookies.update({"balaclava_session": vault.sign_session(second["id"])})
    assert house.client.get("/ledger").status_code == 303


def test_a_key_expires(house: House) -> None:
    body = {"role": "read", "lifetime": 1.5}
    made = house.call("POST", "/v1/keys", "admin", json=body).json()
    headers = {"Authorization": f"Bearer {made['key']}"}
    assert house.client.get("/v1/experiments", headers=headers).status_code == 200
    assert 1.0 < made["expires"] - made["created"] < 2.0
    time.sleep(max(made["expires"] - time.time(), 0.0) + 0.1)
    assert house.client.get("/v1/experiments", headers=headers).status_code == 401
    assert house.call("POST", "/v1/keys", "admin", json=body | {"lifetime": 0}).status_code == 422


def test_what_admins_do_is_in_the_ledger(house: House) -> None:
    made = house.call("POST", "/v1/keys", "admin", json={"role": "read"}).json()
    house.call("DELETE", f"/v1/keys/{made['id']}", "admin")
    for verb in ("pause", "resume", "finish", "finish"):
        house.call("POST", f"/v1/experiments/shop/{verb}", "admin")
    entries = house.call("GET", "/v1/ledger", "admin").json()["entries"][-5:]
    by = f"by key {house.keys['admin']['id']}"
    assert [(entry["event"], entry["experiment"]) for entry in entries] == [
        ("key made", None),
        ("key revoked", None),
        *((verb, "shop") for verb in ("pause", "resume", "finish")),
    ]
    assert all(by in entry["note"] for entry in entries)
    assert made["key"] not in str(entries)


def test_every_answer_carries_the_headers(house: House) -> None:
    for path in ("/healthz", "/v1/experiments", "/login", "/nowhere", "/v1/decisions/%00/reward"):
        headers = house.client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert "referrer-policy" in headers
        assert "no-store" in headers["cache-control"] or "no-cache" in headers["cache-control"]
        assert "server" not in headers


def test_a_label_that_cannot_be_stored_fails_alone(
    open_service: Callable[..., Service], postgres: str
) -> None:
    """PostgreSQL refuses some characters; no other commit may fail with it."""
    service = open_service(postgres)
    with service.writer._wake:  # both are taken up at once
        bad = service.writer.submit(CreateKey(service.ledger, "read", "a\x00b"))
        good = service.writer.submit(CreateKey(service.ledger, "read", "a"))
    with pytest.raises(Problem, match="control characters"):
        bad.result(30)
    assert good.result(30)["key"]
