"""Arms that come, rest and leave while an experiment runs, on both databases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from balaclava.service.http.app import create_app
from balaclava.service.service import Service
from tests.service.http.test_app import SHOP, client_of, create, decide, results, reward

DECIDE = "/v1/experiments/shop/decisions"


@pytest.fixture
def both(open_service: Callable[..., Service], database: str) -> TestClient:
    return client_of(open_service(database))


@pytest.fixture
def client(open_service: Callable[..., Service]) -> TestClient:
    return client_of(open_service())


def edit(client: TestClient, **changes: Any) -> Any:
    return client.patch("/v1/experiments/shop", json=changes)


def document(client: TestClient) -> dict[str, Any]:
    return client.get("/v1/experiments/shop").json()


def labels(made: list[dict[str, Any]]) -> set[str]:
    return {each["label"] for each in made}


def play(client: TestClient, count: int, **asked: Any) -> list[dict[str, Any]]:
    made = decide(client, count=count, **asked)
    for each in made:
        assert reward(client, each, float(each["label"] == "map")).status_code == 200
    return made


def test_shares_can_be_given_at_creation(both: TestClient) -> None:
    made = create(both, shares={"plain": 0.4})
    assert made["shares"] == {"plain": 0.4}
    assert document(both) == made  # read from the database
    again = SHOP | {"shares": {"plain": 0.4}}
    assert both.post("/v1/experiments", json=again).status_code == 200
    assert both.post("/v1/experiments", json=SHOP).status_code == 409
    assert edit(both, retire_arms=["plain"], shares={}).json()["shares"] == {}
    cloned = both.post("/v1/experiments/shop/clone", json={"name": "other"})
    assert (cloned.status_code, cloned.json()["shares"]) == (201, {})


@pytest.mark.parametrize("shares", [{"none": 0.1}, {"plain": 1.5}, {"plain": 0.6, "map": 0.6}])
def test_shares_that_are_refused_charge_nothing(
    client: TestClient, shares: dict[str, float]
) -> None:
    client.put("/v1/populations/all", json={"epsilon": 3.0})
    wrong = SHOP | {"shares": shares, "population": "all"}
    answer = client.post("/v1/experiments", json=wrong)
    assert (answer.status_code, "share" in answer.json()["detail"]) == (422, True)
    assert client.get("/v1/populations").json()["populations"][0]["left_epsilon"] == 3.0


def test_arms_come_leave_and_have_shares_in_one_request(both: TestClient) -> None:
    create(both)
    late = decide(both, count=30)
    before = document(both)
    changes = {"add_arms": ["new"], "retire_arms": ["plain"], "shares": {"friendly": 0.2}}
    after = edit(both, **changes).json()
    assert after["arms"] == ["plain", "friendly", "map", "new"]
    assert (after["retired_arms"], after["shares"]) == (["plain"], {"friendly": 0.2})
    more = set(after["guarantee"]["assumptions"]) - set(before["guarantee"]["assumptions"])
    assert "had any one reward been different" in more.pop()
    assert document(both) == after  # read from the database
    assert edit(both, **changes).json() == after  # a repetition changes nothing
    made = play(both, 60)
    assert labels(made) == {"friendly", "map", "new"}
    assert {each["arm"] for each in made if each["label"] == "new"} == {3}
    assert all(0.0 < each["propensity"] <= 1.0 for each in made)
    for each in late:  # those of the retired arm too
        assert reward(both, each, 0.5).status_code == 200
    arms = results(both)["arms"]
    assert [arm["retired"] for arm in arms] == [True, False, False, False]
    assert arms[0]["rewards"] == sum(each["label"] == "plain" for each in late)


def test_a_decision_may_offer_some_arms_and_winners_are_then_not_named(both: TestClient) -> None:
    create(both)
    play(both, 300)
    assert labels(play(both, 20, available=["plain", "friendly"])) <= {"plain", "friendly"}
    asked = {"request_id": "r", "available": ["plain"]}
    first = decide(both, **asked)
    assert decide(both, **asked) == first
    way = "/v1/experiments/shop/decisions"
    other = both.post(way, json={"request_id": "r", "available": ["map"]})
    assert other.status_code == 409
    answer = results(both)
    assert answer["winner"] is None
    assert "could get the arm" in answer["condition"]


def test_a_person_whose_sticky_arm_was_retired_gets_another_and_keeps_it(both: TestClient) -> None:
    create(both)
    before = decide(both, person="ann", sticky=True)[0]
    edit(both, retire_arms=[before["label"]])
    after = decide(both, person="ann", sticky=True)[0]
    assert after["label"] != before["label"]
    assert not after["learns"]
    edit(both, add_arms=["new"])
    assert decide(both, person="ann", sticky=True)[0]["label"] == after["label"]


def test_decisions_that_do_not_learn_serve_the_best_available_arm(client: TestClient) -> None:
    create(client)
    for _ in range(6):
        play(client, 60)
    decide(client, person="ann")
    again = decide(client, person="ann", available=["plain", "friendly"])[0]
    assert not again["learns"]
    assert again["label"] in ("plain", "friendly")
    assert decide(client, person="ann")[0]["label"] == "map"
    edit(client, retire_arms=["map"])
    assert decide(client, person="ann")[0]["label"] != "map"


def test_arms_survive_a_restart(open_service: Callable[..., Service]) -> None:
    service = open_service()
    client = client_of(service)
    create(client, policy="dp-ucb")  # a tally: slots are reused once no decision is open
    late = decide(client, count=9)
    edit(client, retire_arms=["plain"], add_arms=["one"], shares={"one": 0.5})
    before = document(client), results(client)
    service.close()
    service = open_service()
    client = TestClient(create_app(service), headers=dict(client.headers))
    assert (document(client), results(client)) == before
    for each in late:
        assert reward(client, each, 1.0).status_code == 200
    edit(client, add_arms=["two"])
    roster = service.committed("shop").runner.roster
    assert roster is not None
    assert len(roster.arm_in_slot) == 4


@pytest.mark.parametrize(
    ("changes", "status", "why"),
    [
        ({"add_arms": ["map"]}, 422, "arm 'map' exists; labels are never reused"),
        ({"add_arms": ["gone"]}, 422, "arm 'gone' was retired; labels are never reused"),
        ({"add_arms": [" "]}, 422, "give the arm a name"),
        ({"add_arms": []}, 422, "add_arms"),
        ({"add_arms": [f"{n}" for n in range(101)]}, 422, "at most 100"),
        ({"retire_arms": [f"{n}" for n in range(101)]}, 422, "at most 100"),
        ({"retire_arms": ["nobody"]}, 422, "there is no arm 'nobody'"),
        ({"retire_arms": ["plain", "friendly", "map"]}, 422, "retire the last arm"),
        ({"add_arms": ["new"], "shares": {"nobody": 0.1}}, 422, "no live arm 'nobody'"),
        ({"shares": {"map": 0.6, "plain": 0.6}}, 422, "add up to 1.2"),
        ({"shares": {"map": -0.5}}, 422, "give one in [0, 1]"),
        ({"add_arms": ["new"], "retention": 1.0}, 422, "retention"),
    ],
)
def test_bad_changes_change_nothing(
    client: TestClient, changes: dict[str, Any], status: int, why: str
) -> None:
    create(client, arms=["plain", "friendly", "map", "gone"])
    edit(client, retire_arms=["gone"])
    before = document(client)
    answer = edit(client, **changes)
    assert answer.status_code == status, answer.text
    assert why in answer.text
    assert document(client) == before
    assert labels(decide(client, count=20)) == {"plain", "friendly", "map"}


def test_arms_do_not_grow_beyond_those_of_a_new_experiment(client: TestClient) -> None:
    """Each added arm costs time for every arm: 10,000 at once stopped all decisions for minutes."""
    create(client, arms=[f"{n}" for n in range(9_950)])
    refused = edit(client, add_arms=[f"new {n}" for n in range(51)])
    assert (refused.status_code, "at most 10,000 arms" in refused.json()["detail"]) == (422, True)
    offered = [f"{n}" for n in range(9_000)]
    refused = client.post(DECIDE, json={"available": offered, "count": 10_000})
    assert (refused.status_code, "at most 100 at once" in refused.json()["detail"]) == (422, True)
    assert client.post(DECIDE, json={"available": offered, "count": 3}).status_code == 200
    assert client.post(DECIDE, json={"count": 10_000}).status_code == 200
    assert edit(client, add_arms=["new 0"], retire_arms=["7"]).status_code == 200
    refused = client.post(DECIDE, json={"count": 10_000})  # without the retired one
    assert (refused.status_code, "at most 100 at once" in refused.json()["detail"]) == (422, True)
    repeated = client.post(DECIDE, json={"available": ["8", "9"] * 4_500})
    assert repeated.status_code == 200


def test_policies_with_fixed_arms_and_finished_experiments_refuse(client: TestClient) -> None:
    create(client, policy="dp-se", parameters={"epsilon": 1.0, "horizon": 10_000})
    answer = edit(client, add_arms=["new"])
    assert (answer.status_code, "whole long epoch" in answer.text) == (409, True)
    way = "/v1/experiments/shop/decisions"
    assert client.post(way, json={"available": ["map"]}).status_code == 409
    create(client, name="other")
    client.post("/v1/experiments/other/finish")
    answer = client.patch("/v1/experiments/other", json={"add_arms": ["new"]})
    assert (answer.status_code, "is finished" in answer.text) == (409, True)
    for wrong in ([], ["nobody"], "map"):
        asked = {"available": wrong}
        assert client.post("/v1/experiments/other/decisions", json=asked).status_code == 422


def test_an_experiment_may_start_from_the_results_of_another(client: TestClient) -> None:
    """With the same means its results count them; they survive a restart of the reader."""
    own = {"parameters": {"epsilon": 5.0}, "settle": "arrival"}
    create(client, name="first", **own)
    for each in decide(client, "first", count=200):
        reward(client, each, float(each["label"] == "map"))
    first = results(client, "first")
    create(client, name="second", prior=first, same_means=True, **own)
    create(client, name="third", prior=first, **own)
    assert {each["label"] for each in decide(client, "second", count=20)} == {"map"}
    second, third = results(client, "second"), results(client, "third")
    assert [a["low"] for a in second["arms"]] == [a["low"] for a in first["arms"]]
    assert "that of the prior" in second["condition"]
    assert third["condition"] is None or "prior" not in third["condition"]
    assert [a["rewards"] for a in third["arms"]] == [0, 0, 0]
    told = client.get("/v1/experiments/second").json()["guarantee"]["assumptions"]
    assert any("those who are in both have the sum" in each for each in told)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"same_means": True}, "needs a prior"),
        ({"prior": {"plain": "x"}}, "must have"),
        ({"prior": {"arms": [{}], "confidence": 0.9}}, "results are not valid"),
        ({"prior": {"arms": [{"label": "map"}], "confidence": "x"}}, "results are not valid"),
        ({"prior": {"arms": 5, "confidence": 0.9}}, "results are not valid"),
        ({"prior": {"plain": [0.1, 9], "red": [0.2, 9]}}, "there is no arm 'red'"),
        (
            {
                "prior": {"plain": [0.1, 9], "map": [0.2, 9]},
                "policy": "dp-top-two",
                "same_means": True,
            },
            "cannot count",
        ),
        (
            {
                "prior": {"plain": [0.1, 9], "map": [0.2, 9]},
                "policy": "dp-se",
                "parameters": {"epsilon": 1.0, "horizon": 99},
            },
            "takes none",
        ),
    ],
)
def test_a_prior_that_does_not_fit_is_refused(client: TestClient, more: Any, why: str) -> None:
    answer = client.post("/v1/experiments", json=SHOP | more)
    assert answer.status_code == 422
    assert why in answer.json()["detail"]
    assert client.get("/v1/experiments").json()["experiments"] == []


def test_cleared_shares_stay_cleared_and_the_guarantee_still_names_what_they_assume(
    open_service: Callable[..., Service],
) -> None:
    service = open_service()
    client = client_of(service)
    create(client)
    edit(client, shares={"map": 0.25})
    decide(client, count=50)
    with_shares = document(client)["guarantee"]
    edit(client, shares={})
    after = document(client)
    assert (after["shares"], after["guarantee"]) == ({}, with_shares)
    service.close()
    again = TestClient(create_app(open_service()), headers=dict(client.headers))
    assert document(again) == after


def test_arms_come_and_leave_after_a_warm_start(open_service: Callable[..., Service]) -> None:
    service = open_service()
    client = client_of(service)
    create(client, prior={"plain": [0.2, 40], "map": [0.6, 40]}, same_means=True)
    assert edit(client, add_arms=["new"], retire_arms=["friendly"]).status_code == 200
    before = document(client), results(client)
    assert [arm["rewards"] for arm in before[1]["arms"]] == [40, 0, 40, 0]
    service.close()
    again = TestClient(create_app(open_service()), headers=dict(client.headers))
    assert (document(again), results(again)) == before
    assert labels(decide(again, count=200)) <= {"plain", "map", "new"}


def test_labels_that_differ_by_case_or_spaces_are_refused(
    open_service: Callable[..., Service],
) -> None:
    client = client_of(open_service())
    refused = client.post("/v1/experiments", json=SHOP | {"arms": ["Photo", "photo"]})
    assert refused.status_code == 422
    assert "'Photo' and 'photo' differ only by case" in refused.json()["detail"]
    create(client)
    edited = client.patch("/v1/experiments/shop", json={"add_arms": [" Plain"]})
    assert edited.status_code == 422
    assert "differ only by case or spaces" in edited.json()["detail"]
