"""Targeting by public attributes, and the sample ratio."""

from __future__ import annotations

import base64
import json
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


def test_numbers_match_however_json_writes_them() -> None:
    targeting = {"attributes": {"size": [1, 2.5, 4.0]}, "otherwise": "plain"}
    for size, part in ((1, True), (1.0, True), (4, True), (2.5, True), (True, False), ("1", False)):
        assert takes_part(targeting, {"size": size}) is part, size


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


HELD_OUT = {"share": 0.25, "arm": "plain"}
OWN = {"held_out": HELD_OUT, "settle": "arrival", "parameters": {"epsilon": 20.0, "first_batch": 4}}


def play_persons(client: TestClient, first: int, last: int, **more: Any) -> dict[str, Any]:
    """A decision for each person; map pays. Returns the decisions by person."""
    made = {}
    for number in range(first, last):
        (each,) = decide(client, person=f"person {number}", **more)
        made[f"person {number}"] = each
        if each["learns"]:
            value = {"value": float(each["label"] == "map")}
            client.put(f"/v1/decisions/{each['decision_id']}/reward", json=value)
    return made


def test_persons_who_are_held_out_get_one_arm_before_and_after_the_end(
    client: TestClient,
) -> None:
    """Of 120 persons 25 % are held out: 30, within 4 standard errors (19)."""
    create(client, **OWN)
    made = play_persons(client, 0, 120)
    out = {person for person, each in made.items() if not each["learns"]}
    assert 11 <= len(out) <= 49
    assert {made[person]["label"] for person in out} == {"plain"}
    assert {made[person]["propensity"] for person in out} == {1.0}
    assert client.get(URL).json()["learning_decisions"] == 120 - len(out)
    person = next(iter(out))
    flag = client.post(f"{BULK}/shop", json={"context": {"targetingKey": person}}).json()
    assert (flag["variant"], flag["reason"]) == ("plain", "STATIC")
    retire = client.patch(URL, json={"retire_arms": ["plain"]})
    assert (retire.status_code, "held out" in retire.json()["detail"]) == (422, True)
    client.post(f"{URL}/finish", json={"arm": "map"})
    after = play_persons(client, 0, 120)
    assert {person for person, each in after.items() if each["label"] == "plain"} == out
    snapshot = client.get("/v1/snapshot").json()
    flags = json.loads(base64.b64decode(snapshot["content"]))["flags"]
    assert flags["shop"]["shares"] == [0.25, 0.0, 0.75]


def test_decisions_without_a_person_are_held_out_by_a_draw(client: TestClient) -> None:
    create(client, **OWN)
    asked = {"count": 400, "request_id": "first"}
    made = decide(client, **asked)
    out = [each for each in made if not each["learns"]]
    assert 65 <= len(out) <= 135  # 100, within 4 standard errors
    assert {each["label"] for each in out} == {"plain"}
    assert made.index(out[-1]) > len(out)  # they are not the first
    assert decide(client, **asked) == made


def test_a_held_out_arm_must_exist(client: TestClient) -> None:
    for held_out in ({"share": 0.1, "arm": "red"}, {"share": 0.0, "arm": "plain"}):
        assert client.post("/v1/experiments", json=SHOP | {"held_out": held_out}).status_code == 422
