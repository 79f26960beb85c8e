"""Finishing with a chosen arm, cloning, and the version."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

import balaclava
from balaclava.client import Client
from balaclava.service.http.app import create_app
from balaclava.service.service import Service
from balaclava.service.store import schema
from tests.service.http.test_app import client_of, create, decide, results
from tests.service.http.test_features import EVENING, NEWS
from tests.service.servers import in_a_thread

URL = "/v1/experiments/shop"
BULK = "/ofrep/v1/evaluate/flags"


@pytest.fixture
def client(open_service: Callable[..., Service]) -> TestClient:
    return client_of(open_service())


@pytest.mark.parametrize("arm", ["plain", "friendly", "map"])
def test_a_chosen_arm_is_served(client: TestClient, arm: str) -> None:
    create(client, default_reward=0.0)
    decide(client, count=10)
    decide(client, person="ann", sticky=True)
    refused = client.post(f"{URL}/finish", json={"arm": "grid"})
    assert (refused.status_code, client.get(URL).json()["state"]) == (422, "running")
    done = client.post(f"{URL}/finish", json={"arm": arm}).json()
    assert (done["state"], done["served_arm"]) == ("finished", arm)
    for asked in ({}, {"person": "ann", "sticky": True}, {"person": "eve"}):
        (made,) = decide(client, **asked)
        assert (made["label"], made["learns"], made["propensity"]) == (arm, False, 1.0)
    flag = client.post(f"{BULK}/shop", json={"context": {"targetingKey": "eve"}}).json()
    assert (flag["variant"], flag["reason"]) == (arm, "STATIC")
    assert f"Every decision serves '{arm}' now" in results(client)["sentence"] or not any(
        each["mean"] for each in results(client)["arms"]
    )
    assert client.post(f"{URL}/finish", json={"arm": arm}).status_code == 200  # again
    assert client.post(f"{URL}/finish").status_code == 200
    other = "map" if arm == "plain" else "plain"
    assert client.post(f"{URL}/finish", json={"arm": other}).status_code == 409
    (entry,) = [
        each
        for each in client.get("/v1/audit-trail").json()["entries"]
        if each["event"] == "finish"
    ]
    assert f"serves '{arm}'" in entry["note"]


def test_a_chosen_arm_needs_no_features(client: TestClient) -> None:
    create(client, **NEWS)
    decide(client, features=EVENING)
    client.post(f"{URL}/finish", json={"arm": "politics"})
    assert decide(client)[0]["label"] == "politics"


def test_an_arm_that_is_not_available_is_not_served(client: TestClient) -> None:
    create(client)
    decide(client, count=10)
    client.post(f"{URL}/finish", json={"arm": "map"})
    (made,) = decide(client, available=["plain", "friendly"])
    assert made["label"] in ("plain", "friendly")


def test_a_clone_has_the_live_arms_and_learns_anew(client: TestClient) -> None:
    client.put("/v1/populations/us", json={"epsilon": 2.0})
    create(client, population="us", default_reward=0.0, owner="Ann")
    client.patch(URL, json={"add_arms": ["grid"], "retire_arms": ["plain"], "owner": "Bob"})
    answer = client.post(f"{URL}/clone", json={"name": "again", "parameters": {"epsilon": 0.5}})
    assert answer.status_code == 201
    again = answer.json()
    assert (again["arms"], again["owner"]) == (["friendly", "map", "grid"], "Bob")
    assert (again["decisions"], again["population"]) == (0, None)
    assert again["guarantee"]["epsilon"] == 0.5
    same = {"name": "again", "parameters": {"epsilon": 0.5}}
    assert client.post(f"{URL}/clone", json=same).status_code == 200
    charged = {"name": "charged", "population": "us"}
    assert client.post(f"{URL}/clone", json=charged).status_code == 201
    (budget,) = client.get("/v1/populations").json()["populations"]
    assert budget["spent_epsilon"] == 2.0
    charged["name"] = "one too many"
    assert client.post(f"{URL}/clone", json=charged).status_code == 409
    assert client.post("/v1/experiments/none/clone", json={"name": "x"}).status_code == 404


def test_a_clone_has_what_was_changed(client: TestClient) -> None:
    rail = {"metric": "seconds", "epsilon": 1.0, "range": [0, 30], "limit": 4, "serve": "plain"}
    create(client, default_reward=0.0, shares={"map": 0.1}, guardrails=[{**rail, "missing": 2}])
    changes = {"guardrail_limits": {"seconds": 6}, "shares": {"friendly": 0.3}, "retention": 1e6}
    client.patch(URL, json=changes)
    again = client.post(f"{URL}/clone", json={"name": "again"}).json()
    assert again["guardrails"][0]["limit"] == 6.0
    assert (again["shares"], again["retention"]) == ({"friendly": 0.3}, 1e6)


def latest_schema() -> str:
    files = Path(schema.__file__).with_name("migrations") / "versions"
    return max(file.name[:4] for file in files.glob("0*.py"))


def test_by_the_client(tmp_path: Path) -> None:
    with in_a_thread(tmp_path) as (address, key, _), Client(address, key) as client:
        client.create_experiment("a", "ucb1", ["x", "y"], reward_window=60.0)
        assert client.clone("a", "b", owner="Ann")["owner"] == "Ann"
        assert client.finish("a", "y")["served_arm"] == "y"
        assert client.decide("a").label == "y"
        assert client.version()["version"] == balaclava.__version__
        assert client.version()["schema"] == latest_schema()


def test_by_the_page(open_service: Callable[..., Service]) -> None:
    client = TestClient(create_app(open_service(), keys=False), base_url="http://localhost")
    create(client)
    client.patch(URL, json={"retire_arms": ["plain"]})
    page = client.get("/experiments/shop/finish").text
    assert re.findall(r'<option value="(.*?)">', page) == ["", "friendly", "map"]
    token = page.split('name="token" value="')[1].split('"')[0]
    for arm, status in (("plain", 422), ("map", 200)):
        form = {"token": token, "arm": arm}
        assert client.post("/experiments/shop/finish", data=form).status_code == status
    assert client.get(URL).json()["served_arm"] == "map"
