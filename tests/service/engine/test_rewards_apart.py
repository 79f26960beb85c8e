"""Each reward of a person in another batch: enforced against a person who asks all the time."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text

from balaclava.privacy.randomness import SystemRandomness, seeded
from balaclava.service.dashboard.page_values import review_page
from balaclava.service.engine.definition import ExperimentDefinition
from balaclava.service.problems import Problem
from tests.service.manual_service import CloseAll, ManualService

APART: dict[str, Any] = {
    "name": "shop",
    "policy": "dp-imed",
    "parameters": {"epsilon": 1.0, "delta": 1e-6, "noise": "gaussian", "first_batch": 6},
    "arms": ["plain", "map"],
    "reward_window": 5.0,
    "default_reward": 0.0,
    "rewards_per_person": 9,
    "rewards_apart": True,
}
DECISIONS = "/v1/experiments/shop/decisions"


def asked(service: ManualService, **body: Any) -> list[dict[str, Any]]:
    answer = service.client.post(DECISIONS, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["decisions"]


def test_a_person_is_in_a_batch_once(manual_services: Callable[[Any], ManualService]) -> None:
    """One asks at every turn, alone or for ten at once, sticky or not; others come in between."""
    service, rng = manual_services(SystemRandomness()), random.Random(1)
    assert service.client.post("/v1/experiments", json=APART).status_code == 201
    for n in range(120):
        mine = asked(service, person="eve", count=rng.choice((1, 10)), sticky=n % 40 == 39)
        others = asked(service, person=f"p{n}", count=1)
        rewards = [
            {"decision_id": each["decision_id"], "value": rng.random()}
            for each in mine + others
            if each["learns"]
        ]
        assert service.client.post("/v1/rewards", json=rewards).status_code == 200
        service.clock.moment += 0.5
    service.clock.moment += 6.0
    service.service.run_job(CloseAll())
    experiment = service.service.committed("shop")
    with service.service.storage.reading() as connection:
        query = text("SELECT person, arm, phase FROM decisions WHERE learns = 1")
        rows = connection.execute(query).all()
    assert max(Counter(tuple(row) for row in rows).values()) == 1
    by_person = Counter(row.person for row in rows)
    assert max(by_person.values()) == 9  # and not fewer: what did not learn is not counted
    assert sum(by_person.values()) > 100
    pools = experiment.runner.state
    assert not list(pools.faults(experiment.counters.rounds))
    assert experiment.counters.closed == experiment.counters.rounds


def test_who_is_in_a_batch_does_not_depend_on_rewards(
    manual_services: Callable[[Any], ManualService],
) -> None:
    """With the same draws, all rewards 0 or all 1: the same answers until the first release."""
    answers = []
    for value in (0.0, 1.0):
        service = manual_services(seeded(5))
        assert service.client.post("/v1/experiments", json=APART).status_code == 201
        answers.append([])
        for n in range(8):
            made = asked(service, person=f"p{n % 3}", count=2)
            answers[-1].append(made)
            for each in made:
                path = f"/v1/decisions/{each['decision_id']}/reward"
                service.client.put(path, json={"value": value})
    assert answers[0] == answers[1]
    assert any(not each["learns"] for made in answers[0] for each in made)


def test_batches_that_all_visitors_are_in_end(
    manual_services: Callable[[Any], ManualService],
) -> None:
    """Four participants never fill a batch of 30: it ends, and is released with four rewards."""
    service = manual_services(SystemRandomness())
    parameters = APART["parameters"] | {"first_batch": 30}
    definition = APART | {"parameters": parameters, "rewards_per_person": 100}
    assert service.client.post("/v1/experiments", json=definition).status_code == 201
    for n in range(160):
        asked(service, person=f"p{n % 4}")
    service.clock.moment += 6.0
    service.service.run_job(CloseAll())
    experiment = service.service.committed("shop")
    pools = experiment.runner.state
    assert pools.settled.sum() >= 4
    assert pools.rewards.max() <= 4 * pools.settled.max()
    assert not list(pools.faults(experiment.counters.rounds))


def test_an_erased_participant_who_comes_back_counts_once_in_a_batch(
    manual_services: Callable[[Any], ManualService],
) -> None:
    """An erasure unlinks earlier decisions: what they gave must have left the open batch.

    Erased before and after the windows' end, and back each time. All others give nothing.
    """
    service = manual_services(SystemRandomness())
    parameters = APART["parameters"] | {"first_batch": 40}
    definition = APART | {"parameters": parameters, "rewards_per_person": 100}
    assert service.client.post("/v1/experiments", json=definition).status_code == 201
    learned = 0
    for n in range(24):
        for each in asked(service, person="eve"):
            learned += each["learns"]
            path = f"/v1/decisions/{each['decision_id']}/reward"
            if each["learns"]:
                assert service.client.put(path, json={"value": 1.0}).status_code == 200
        asked(service, person=f"p{n}")
        if n % 3 == 1:
            service.clock.moment += 6.0
            service.service.run_job(CloseAll())
        if n % 2:
            erased = service.client.request("DELETE", "/v1/persons", json={"person": "eve"})
            assert erased.status_code == 200
    service.clock.moment += 6.0
    service.service.run_job(CloseAll())
    pools = service.service.committed("shop").runner.state
    assert learned > 10
    assert pools.settled.sum() == 0  # no batch was released
    assert pools.sums.max() <= 1.0


def test_guardrails_are_not_charged_as_gaussian_noise() -> None:
    """However little they cost: their Laplace noise adds up for rewards apart, too."""
    rail = {"metric": "errors", "epsilon": 1e-7, "range": [0.0, 1.0], "limit": 0.3}
    rails = [rail | {"missing": 0.0, "serve": "plain"}]
    apart = ExperimentDefinition.checked(**APART)
    watched = ExperimentDefinition.checked(**APART, guardrails=rails)
    costs = [each.person_guarantee(each.make_policy()).epsilon for each in (apart, watched)]
    assert costs[1] >= costs[0] + 9 * 1e-7


def test_it_is_charged_for_rewards_apart_and_needs_persons(
    manual_services: Callable[[Any], ManualService],
) -> None:
    service = manual_services(SystemRandomness())
    service.client.put("/v1/populations/us", json={"epsilon": 100.0, "delta": 1e-3})
    for name, apart in (("apart", True), ("together", False)):
        more = {"name": name, "rewards_apart": apart, "population": "us"}
        assert service.client.post("/v1/experiments", json=APART | more).status_code == 201
    charges = {
        each["experiment"]: each["epsilon"]
        for each in service.client.get("/v1/ledger").json()["entries"]
        if each["event"] == "charge"
    }
    policy = ExperimentDefinition.checked(**APART).make_policy()
    assert charges["apart"] == policy.guarantee.for_rewards(9, apart=True).epsilon
    assert charges["together"] == policy.guarantee.for_rewards(9).epsilon
    assert charges["apart"] < 0.5 * charges["together"]
    person = service.client.get("/v1/experiments/apart/privacy").json()
    assert "no two rewards of one participant" in str(person)
    review = review_page(service.service, "apart")
    assert str(policy.guarantee.for_rewards(9, apart=True)) in review
    assert "no two of them in the same noisy release" in review
    assert "times less protected" in review_page(service.service, "together")
    service.client.post("/v1/experiments", json=APART)
    anonymous = service.client.post(DECISIONS, json={})
    assert anonymous.status_code == 422
    assert "person" in anonymous.text


@pytest.mark.parametrize(
    "changes",
    [
        {"parameters": {"epsilon": 1.0}},
        {"policy": "ucb1", "parameters": {}},
        {"default_reward": None},
        {"deciders": 2},
    ],
)
def test_where_it_is_not_enforced_it_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(Problem, match=r"rewards_apart|deciders"):
        ExperimentDefinition.checked(**APART | changes)
