"""Sticky decisions: a person keeps the arm of the first one, which alone may learn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import select

from balaclava.service.service import Service
from balaclava.service.store.schema import persons
from tests.service.http.test_app import client_of, create, decide, reward

WINDOWS = {"default_reward": 0.0, "arms": [f"arm {number}" for number in range(6)]}


@pytest.mark.parametrize("cap", [1, 3])
def test_a_person_keeps_an_arm(
    open_service: Callable[..., Service], database: str, cap: int
) -> None:
    client = client_of(open_service(database))
    create(client, **WINDOWS, rewards_per_person=cap)
    people = [f"person {number}" for number in range(12)]
    first = {person: decide(client, person=person, sticky=True)[0] for person in people}
    assert len({each["arm"] for each in first.values()}) == 6
    assert all(each["learns"] for each in first.values())
    for person in people:
        again = decide(client, person=person, sticky=True, count=2)
        assert [each["arm"] for each in again] == [first[person]["arm"]] * 2
        assert not any(each["learns"] for each in again)
        assert all(each["propensity"] == 1.0 for each in again)
    # Others are not bound by it, and have what is left of the cap.
    assert decide(client, person="person 0")[0]["learns"] is (cap == 3)


def test_the_first_of_several_is_repeated_and_learns(open_service: Callable[..., Service]) -> None:
    client = client_of(open_service())
    create(client, **WINDOWS, rewards_per_person=3)
    made = decide(client, person="ann", sticky=True, count=4)
    assert {each["arm"] for each in made} == {made[0]["arm"]}
    assert [each["learns"] for each in made] == [True, False, False, False]
    assert reward(client, made[0], 1.0).json() == {"recorded": True}


def test_the_answer_names_the_decision_whose_reward_counts(
    open_service: Callable[..., Service], database: str
) -> None:
    service = open_service(database)
    client = client_of(service)
    create(client, **WINDOWS | {"default_reward": None}, settle="arrival")
    (first,) = decide(client, person="ann", sticky=True)
    assert first["first_decision_id"] == first["decision_id"]
    asked: dict[str, Any] = {"person": "ann", "sticky": True, "count": 2, "request_id": "again"}
    again = decide(client, **asked)
    assert {each["first_decision_id"] for each in again} == {first["decision_id"]}
    assert decide(client, **asked) == again
    assert "first_decision_id" not in decide(client, person="ann")[0]
    assert decide(client, person="eve", sticky=True)[0]["first_decision_id"] != first["decision_id"]
    for each in again:
        reward(client, each, 1.0)
    assert service.committed("shop").counters.rewarded == 0
    sent_to = {"decision_id": again[0]["first_decision_id"]}
    assert reward(client, sent_to, 1.0).json() == {"recorded": True}
    assert service.committed("shop").counters.rewarded == 1
    # Another arm than that of the first decision: its reward would count for the wrong one.
    others = [label for label in WINDOWS["arms"] if label != first["label"]]
    (other,) = decide(client, person="ann", sticky=True, available=others)
    assert "first_decision_id" not in other
    # After the end too: the first decision's window is open.
    client.post("/v1/experiments/shop/finish", json={"arm": first["label"]})
    (last,) = decide(client, person="ann", sticky=True)
    assert last["first_decision_id"] == first["decision_id"]


def test_a_late_purchase_after_a_retirement_counts_for_the_first_decision(
    open_service: Callable[..., Service],
) -> None:
    service = open_service()
    client = client_of(service)
    create(client, **WINDOWS | {"default_reward": None}, settle="arrival")
    (first,) = decide(client, person="ann", sticky=True)
    for retired in range(1, 3):  # the arm that replaces it may be retired, too
        (before,) = decide(client, person="ann", sticky=True)
        assert before["first_decision_id"] == first["decision_id"]
        client.patch("/v1/experiments/shop", json={"retire_arms": [before["label"]]})
        made = decide(client, person="ann", sticky=True, count=2)
        assert {each["label"] for each in made} != {before["label"]}
        assert {each["first_decision_id"] for each in made} == {first["decision_id"]}
        assert decide(client, person="ann", sticky=True)[0]["label"] == made[0]["label"]
        assert not any(each["learns"] for each in made)
        assert service.committed("shop").counters.rewarded == 0, retired
    reward(client, made[0], 1.0)
    assert service.committed("shop").counters.rewarded == 0
    reward(client, {"decision_id": made[0]["first_decision_id"]}, 1.0)
    assert service.committed("shop").counters.rewarded == 1
    flag = client.post(
        "/ofrep/v1/evaluate/flags/shop", json={"context": {"targetingKey": "ann"}}
    ).json()
    assert flag["variant"] == made[0]["label"]
    assert flag["metadata"]["decision_id"] == first["decision_id"]
    assert "propensity" not in flag["metadata"]  # that of the first decision, for another arm


def test_a_repeated_answer_has_the_level_for_the_first_report(
    open_service: Callable[..., Service],
) -> None:
    service = open_service()
    client = client_of(service)
    parameters = {"epsilon": 1.0, "horizon": 100, "moment_order": 2.0, "moment_bound": 1.0}
    changes = {"policy": "ldpr-se", "parameters": parameters, "default_reward": None}
    create(client, **changes, settle="arrival")
    first, again = (decide(client, person="ann", sticky=True)[0] for _ in range(2))
    assert again["level"] == first["level"]
    assert again["learns"] is False


def test_an_erased_person_starts_anew(open_service: Callable[..., Service]) -> None:
    client = client_of(open_service())
    create(client, **WINDOWS)
    (first,) = decide(client, person="ann", sticky=True)
    client.request("DELETE", "/v1/persons", json={"person": "ann"})
    (new,) = decide(client, person="ann", sticky=True)
    assert new["first_decision_id"] == new["decision_id"] != first["decision_id"]
    assert new["learns"] is False  # the limit of rewards per person stays


def test_a_sticky_arm_needs_a_person(open_service: Callable[..., Service]) -> None:
    client = client_of(open_service())
    create(client)
    refused = client.post("/v1/experiments/shop/decisions", json={"sticky": True})
    assert refused.status_code == 422
    assert "person" in refused.json()["detail"]
    asked: dict[str, Any] = {"person": "ann", "request_id": "r"}
    decide(client, **asked)
    other = client.post("/v1/experiments/shop/decisions", json={**asked, "sticky": True})
    assert other.status_code == 409


def test_the_winner_is_served_at_the_end(open_service: Callable[..., Service]) -> None:
    """Nobody keeps a worse arm after the experiment has finished."""
    service = open_service()
    client = client_of(service)
    create(client, **WINDOWS)
    people = [f"person {number}" for number in range(12)]
    for person in people:
        decide(client, person=person, sticky=True)
    client.post("/v1/experiments/shop/finish")
    assert len({decide(client, person=person, sticky=True)[0]["arm"] for person in people}) == 1
    with service.storage.reading() as connection:
        kept = connection.scalars(select(persons.c.arm)).all()
    assert len(set(kept)) == 6
