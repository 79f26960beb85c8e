"""Targeting by public attributes, and the sample ratio."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from balaclava.client import Client
from balaclava.service.http.app import create_app
from balaclava.service.service import Service
from balaclava.service.targeting import RATIO_ERROR, ratio_document, takes_part
from tests.service.http.test_app import SHOP, client_of, create, decide
from tests.service.manual_service import ManualService
from tests.service.servers import in_a_thread

FRANCE = {"attributes": {"country": ["FR", "BE"], "beta": [True]}, "otherwise": "plain"}
URL = "/v1/experiments/shop"
BULK = "/ofrep/v1/evaluate/flags"


@pytest.fixture
def client(open_service: Callable[..., Service]) -> TestClient:
    return client_of(open_service())


@pytest.mark.parametrize(
    ("attributes", "part"),
    [
        (None, False),
        ({}, False),
        ({"country": "FR"}, False),
        ({"country": "FR", "beta": True}, True),
        ({"country": "BE", "beta": True, "age": 7}, True),
        ({"country": "FR", "beta": 1}, False),  # a number is not a truth value
        ({"country": "DE", "beta": True}, False),
        ({"country": ["FR"], "beta": True}, False),
    ],
)
def test_who_takes_part(attributes: dict[str, Any] | None, part: bool) -> None:
    assert takes_part(FRANCE, attributes) is part
    assert takes_part(None, attributes)


def test_others_get_one_arm_and_are_not_learned_from(client: TestClient) -> None:
    create(client, targeting=FRANCE, default_reward=0.0)
    inside = {"country": "FR", "beta": True}
    for _ in range(5):
        (made,) = decide(client, person="ann", attributes={"country": "DE"}, sticky=True)
        assert (made["label"], made["learns"], made["propensity"]) == ("plain", False, 1.0)
    assert decide(client, person="ann", attributes=inside)[0]["learns"]  # no limit was used up
    assert decide(client, count=3)[0]["label"] == "plain"
    asked = {"request_id": "r", "attributes": inside}
    made = decide(client, **asked)
    assert decide(client, **asked) == made
    other = client.post(f"{URL}/decisions", json=asked | {"attributes": {}})
    assert other.status_code == 409
    assumptions = client.get(f"{URL}/privacy").json()["guarantee"]["assumptions"]
    assert any("attributes of targeting" in each for each in assumptions)
    assert client.patch(URL, json={"retire_arms": ["plain"]}).status_code == 422
    client.post(f"{URL}/finish", json={"arm": "map"})
    assert decide(client, attributes=inside)[0]["label"] == "map"
    assert decide(client, attributes={})[0]["label"] == "plain"


def test_the_page_says_who_takes_part(open_service: Callable[..., Service]) -> None:
    client = TestClient(create_app(open_service(), keys=False), base_url="http://localhost")
    hostile = {"attributes": {"<b>": ["<i>", 1]}, "otherwise": "plain"}
    create(client, targeting=hostile)
    page = client.get(f"/experiments/{SHOP['name']}").text
    assert "&lt;b&gt;</bdi>: <bdi>&lt;i&gt;, 1</bdi>" in page
    assert "all others get <bdi>plain</bdi>" in page


def test_flags_follow_the_targeting(client: TestClient) -> None:
    create(client, targeting=FRANCE, default_reward=0.0)
    outside = {"context": {"targetingKey": "ann", "country": "DE"}}
    inside = {"context": {"targetingKey": "ann", "country": "FR", "beta": True}}
    flag = client.post(f"{BULK}/shop", json=outside).json()
    assert (flag["variant"], flag["metadata"]) == ("plain", {"exposed": False})
    assert client.get(URL).json()["decisions"] == 0
    (flag,) = client.post(BULK, json=inside).json()["flags"]
    assert flag["reason"] == "UNKNOWN"
    assert client.post(f"{BULK}/shop", json=inside).json()["metadata"]["learns"] is True
    (flag,) = client.post(BULK, json=outside).json()["flags"]
    assert flag["variant"] == "plain"


def test_a_targeting_is_checked(client: TestClient) -> None:
    for targeting in (
        FRANCE | {"otherwise": "grid"},
        FRANCE | {"attributes": {}},
        FRANCE | {"attributes": {"country": []}},
        {"otherwise": "plain"},
    ):
        body = SHOP | {"targeting": targeting}
        assert client.post("/v1/experiments", json=body).status_code == 422


def test_exposures_are_counted_at_the_end_of_windows(
    manual_services: Callable[[Any], ManualService],
) -> None:
    from balaclava.auditing.tape import Recorder

    manual = manual_services(Recorder(seed=1))
    shop = SHOP | {"reward_window": 5.0, "default_reward": 0.0, "exposures": True}
    client = manual.client
    assert client.post("/v1/experiments", json=shop).status_code == 201
    for _ in range(4):
        made = decide(client, count=150)
        for each in made:
            if each["label"] != "map":  # the page of this arm fails
                path = f"/v1/decisions/{each['decision_id']}/reward"
                assert client.put(path, json={"exposed": True}).status_code == 200
                assert client.put(path, json={"exposed": True, "value": 0.5}).status_code == 200
        ratio = client.get(f"{URL}/results").json()["sample_ratio"]
        manual.wait(5.0)
    assert sum(arm["ended"] for arm in ratio["arms"]) == 450
    ratio = client.get(f"{URL}/results").json()["sample_ratio"]
    shown = {arm["label"]: (arm["displayed"], arm["ended"]) for arm in ratio["arms"]}
    assert shown["plain"][0] == shown["plain"][1] > 0
    assert shown["map"][0] == 0 < shown["map"][1]
    assert ratio["alarm"]
    assert "different participants" in client.get("/experiments/shop").text
    assumptions = client.get(f"{URL}/privacy").json()["guarantee"]["assumptions"]
    assert any("an exposure is reported" in each for each in assumptions)


def test_exposures_are_declared(client: TestClient) -> None:
    answer = client.post("/v1/experiments", json=SHOP | {"exposures": True})
    assert answer.status_code == 422  # by arrival, a count of rewards would follow it
    create(client, default_reward=0.0)
    (made,) = decide(client)
    path = f"/v1/decisions/{made['decision_id']}/reward"
    assert client.put(path, json={"exposed": True}).status_code == 422
    assert client.get(f"{URL}/results").json()["sample_ratio"] is None


@pytest.mark.statistical
def test_the_sample_ratio_seldom_alarms() -> None:
    """60 runs of 3 arms with the same share, looked at 5 times each.

    It alarms with probability at most 0.01 a run; more than 6 of 60 have probability below 1e-4.
    """
    rng, alarms = np.random.default_rng(7), 0
    for _ in range(60):
        counts = np.zeros((3, 2), int)
        alarm = False
        for _ in range(5):
            more = rng.multinomial(40, [0.7, 0.2, 0.1])
            counts += np.stack([more, rng.binomial(more, 0.8)], axis=1)
            alarm |= bool(ratio_document(counts.tolist(), "abc")["alarm"])
        alarms += alarm
    assert alarms <= 6
    assert RATIO_ERROR == 0.01


def test_by_the_python_client(tmp_path: Path) -> None:
    with in_a_thread(tmp_path) as (address, key, _), Client(address, key) as client:
        more: dict[str, Any] = {
            "targeting": {"attributes": {"country": ["FR"]}, "otherwise": "x"},
            "guardrails": [
                {"metric": "errors", "epsilon": 1.0, "range": [0.0, 1.0], "limit": 0.5,
                 "missing": 0.0, "serve": "x"}
            ],
        }  # fmt: skip
        policy = {"parameters": {"epsilon": 1.0}, "reward_window": 60.0, "default_reward": 0.0}
        client.create_experiment("a", "dp-imed", ["x", "y"], exposures=True, **policy, **more)
        assert not client.decide("a").learns
        decision = client.decide("a", attributes={"country": "FR"})
        assert decision.learns
        client.exposed(decision)
        client.metrics(decision, {"errors": 1.0})
        assert client.results("a")["sample_ratio"]["alarm"] is False
