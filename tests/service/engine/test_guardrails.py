"""Guardrails: further metrics with noise, what they cost, and the breaker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import select

from balaclava.auditing.tape import Recorder, Replayer
from balaclava.service.engine.changes import EditExperiment
from balaclava.service.engine.guardrails import BREAKER_ERROR, Guardrail, Guardrails
from balaclava.service.engine.jobs import ReceivedReward, RecordRewards, SetExperimentState
from balaclava.service.problems import Problem
from balaclava.service.service import Service
from balaclava.service.store.schema import decisions
from tests.service.engine.test_cleanup import DAY, Shop
from tests.service.http.test_app import client_of, create, decide
from tests.service.manual_service import ManualService
from tests.service.test_privacy import NEIGHBOURS, events, play

ERRORS: dict[str, Any] = {
    "metric": "errors", "epsilon": 1.0, "range": [0.0, 1.0], "limit": 0.3, "missing": 0.0,
    "serve": "plain",
}  # fmt: skip
URL = "/v1/experiments/shop"


def read(shop: Shop, id: str, value: float) -> Any:
    received = ReceivedReward(id, None, 0.0, {"errors": value})
    return shop.service.run_job(RecordRewards([received]))[0]


def rails(shop: Shop) -> Guardrails:
    return shop.service.committed("shop").guardrails


def open_sum(shop: Shop) -> float:
    return sum(each.steps for each in rails(shop).readings[0]) / 2**20  # raw: of tests only


def test_losses_add_up_and_are_charged(open_service: Callable[..., Service]) -> None:
    client = client_of(open_service())
    client.put("/v1/populations/us", json={"epsilon": 4.0})
    slow = ERRORS | {"metric": "seconds", "epsilon": 0.25, "range": [0, 30], "limit": 5}
    create(client, guardrails=[ERRORS, slow], default_reward=0.0, population="us")
    privacy = client.get(f"{URL}/privacy").json()
    assert privacy["guarantee"]["epsilon"] == pytest.approx(2.25)
    assert privacy["guarantee"]["epsilon"] >= 2.25
    assert privacy["charged"]["epsilon"] >= 2.25
    assert any("errors, seconds" in each for each in privacy["guarantee"]["assumptions"])
    create(client, guardrails=[ERRORS], default_reward=0.0, name="two", rewards_per_person=2)
    assert client.get("/v1/experiments/two/privacy").json()["guarantee"]["epsilon"] >= 2.0


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"range": [1.0, 0.0]}, "range"),
        ({"limit": 1.0}, "limit"),
        ({"missing": 2.0}, "missing"),
        ({"serve": "grid"}, "grid"),
        ({"epsilon": 1e300}, "epsilon"),
    ],
)
def test_a_guardrail_is_checked(
    open_service: Callable[..., Service], changes: dict[str, Any], fault: str
) -> None:
    from tests.service.http.test_app import SHOP

    client = client_of(open_service())
    more = {"guardrails": [ERRORS | changes], "default_reward": 0.0}
    answer = client.post("/v1/experiments", json=SHOP | more)
    assert answer.status_code == 422
    assert fault in answer.json()["detail"]


def test_guardrails_need_windows_and_one_guarantee(open_service: Callable[..., Service]) -> None:
    from tests.service.http.test_app import SHOP

    client = client_of(open_service())
    for more in (
        {"settle": "arrival"},
        {"policy": "ucb1", "parameters": {}},
        {"policy": "dp-ftpl-gauss", "parameters": {"epsilon": 1.0, "delta": 0.01}},
        {"guardrails": [ERRORS, ERRORS]},
    ):
        body = SHOP | {"guardrails": [ERRORS], "default_reward": 0.0} | more
        assert client.post("/v1/experiments", json=body).status_code == 422, more


def test_the_breaker_sends_all_to_the_named_arm(shop: Shop) -> None:
    shop.create(guardrails=[ERRORS], parameters={"epsilon": 4.0})
    for _ in range(6):
        for each in shop.decide(count=100):
            read(shop, each["decision_id"], float(each["label"] == "map"))
            shop.reward(each["decision_id"], float(each["label"] == "map"))
        shop.wait(61.0)
    results = shop.service.results("shop")
    assert results["breaker"]["arm"] == "map"
    assert results["breaker"]["serve"] == "plain"
    plain, bad = results["guardrails"][0]["arms"]
    assert plain["high"] < bad["mean"]
    assert bad["low"] > 0.3
    assert "crossed its limit with 'map'" in results["sentence"]
    made = shop.decide(count=5) + shop.decide("ann", sticky=True)
    assert {each["label"] for each in made} == {"plain"}
    assert not any(each["learns"] for each in made)
    edit = EditExperiment(shop.service.ledger, "shop", {"guardrail_limits": {"errors": 0.9999}})
    shop.service.run_job(edit)
    results = shop.service.results("shop")
    assert results["breaker"] is None
    assert results["guardrails"][0]["limit"] == 0.9999
    assert shop.decide("ann")[0]["learns"]  # nothing was counted for her meanwhile
    other = EditExperiment(shop.service.ledger, "shop", {"guardrail_limits": {"seconds": 1.0}})
    with pytest.raises(Problem, match="none can be added"):
        shop.service.run_job(other)
    edit = EditExperiment(shop.service.ledger, "shop", {"guardrail_limits": {"errors": 0.2}})
    shop.service.run_job(edit)
    assert shop.service.results("shop")["breaker"]["arm"] == "map"
    retire = EditExperiment(shop.service.ledger, "shop", {"retire_arms": ["plain"]})
    with pytest.raises(Problem, match="serve"):
        shop.service.run_job(retire)


def test_a_reading_counts_once_and_is_clipped(shop: Shop) -> None:
    shop.create(guardrails=[ERRORS | {"epsilon": 0.1}])
    (made,) = shop.decide()
    id = made["decision_id"]
    assert read(shop, id, 7.0) == {"recorded": True}
    assert read(shop, id, 0.25) == {"recorded": True}
    shop.reward(id, 0.5)
    unknown = shop.service.run_job(
        RecordRewards([ReceivedReward(id, "reward", 0.1, {"seconds": 1.0})])
    )[0]
    assert isinstance(unknown, Problem)
    shop.wait(61.0)
    assert open_sum(shop) == 1.0
    assert read(shop, id, 0.0).status == 410
    shop.decide()
    shop.wait(61.0)
    assert open_sum(shop) == 1.0  # what is missing counts as 0
    assert sum(each.open for each in rails(shop).readings[0]) == 2


@pytest.mark.parametrize("after_window", [False, True])
def test_an_erased_reading_counts_as_missing(shop: Shop, after_window: bool) -> None:
    shop.create(guardrails=[ERRORS | {"epsilon": 0.1, "missing": 0.5}], parameters={"epsilon": 0.1})
    for person, value in (("ann", 1.0), ("bob", 0.75)):
        read(shop, shop.decide(person)[0]["decision_id"], value)
    if after_window:
        shop.wait(61.0)
        assert open_sum(shop) == 1.75
    shop.erase("ann")
    shop.wait(61.0)
    assert open_sum(shop) == 1.25
    with shop.service.storage.reading() as connection:
        kept = connection.scalars(select(decisions.c.metrics)).all()
    assert sorted(map(str, kept)) == ["None", '{"errors": 0.75}']
    shop.erase("ann")
    assert open_sum(shop) == 1.25


def held(shop: Shop) -> int:
    with shop.service.storage.reading() as connection:
        return len(
            connection.scalars(select(decisions.c.id).where(decisions.c.metrics.is_not(None))).all()
        )


def test_readings_go_when_they_are_released(shop: Shop) -> None:
    """Epsilon 8: a batch of 10 readings, so those of at most two open batches are kept."""
    shop.create(guardrails=[ERRORS | {"epsilon": 8.0, "limit": 0.99}], parameters={"epsilon": 0.1})
    for number in range(35):
        read(shop, shop.decide(f"p{number}")[0]["decision_id"], 0.5)
    read(shop, shop.decide()[0]["decision_id"], 0.5)
    assert held(shop) == 36
    shop.wait(61.0)
    unreleased = sum(each.open for each in rails(shop).readings[0])
    assert 0 < unreleased < 20
    assert held(shop) in (unreleased, unreleased - 1)
    for number in range(35):  # of released ones nothing is left to erase
        shop.erase(f"p{number}")
    assert open_sum(shop) in (0.0, 0.5)
    assert sum(each.readings for each in rails(shop).readings[0]) == 36 - unreleased


def test_finishing_drops_what_is_not_released(shop: Shop) -> None:
    shop.create(guardrails=[ERRORS | {"epsilon": 0.1}])
    read(shop, shop.decide("ann")[0]["decision_id"], 1.0)
    shop.wait(61.0)
    read(shop, shop.decide("bob")[0]["decision_id"], 1.0)
    assert (open_sum(shop), held(shop)) == (1.0, 2)
    shop.service.run_job(SetExperimentState(shop.service.ledger, "shop", "finish"))
    shop.wait(61.0)
    assert (open_sum(shop), held(shop)) == (0.0, 0)


def test_a_clock_ends_a_batch_at_the_end_of_retention(shop: Shop) -> None:
    shop.create(guardrails=[ERRORS | {"epsilon": 0.1}])
    read(shop, shop.decide("ann")[0]["decision_id"], 1.0)
    shop.wait(DAY + 61)
    assert (open_sum(shop), held(shop)) == (0.0, 0)
    assert sum(each.readings for each in rails(shop).readings[0]) == 1


def test_a_restart_keeps_readings_and_breaker(
    shop: Shop, open_service: Callable[..., Service], database: str
) -> None:
    shop.create(guardrails=[ERRORS | {"epsilon": 4.0}])
    for _ in range(3):
        for each in shop.decide(count=60):
            read(shop, each["decision_id"], 1.0)
        shop.wait(61.0)
    before = shop.service.results("shop")
    assert before["breaker"] is not None
    shop.service.close()
    assert open_service(database).results("shop") == before


GUARDED = {"guardrails": [ERRORS | {"limit": 0.9}]}


@pytest.mark.parametrize("change", ["another value", "it never arrived"])
def test_neighbours_look_alike(manual_services: Callable[..., ManualService], change: str) -> None:
    """Two databases that differ in one decision's reward and reading: all that is seen is equal.

    Where they differ in what mechanisms are asked, it costs at most the sum of the epsilons.
    """
    timeline = events(7)
    place = next(i for i in range(6, len(timeline), 3) if timeline[i].reward == 1.0)
    others = list(timeline)
    others[place] = NEIGHBOURS[change](timeline[place])
    changes = {"policy": "dp-imed", "parameters": {"epsilon": 4.0}, **GUARDED}
    recorder = Recorder(seed=1)
    manual = manual_services(recorder)
    manual.metric = "errors"
    one = play(manual, timeline, place, **changes)
    player = Replayer(recorder.tape, 0)
    manual = manual_services(player)
    manual.metric = "errors"
    other = play(manual, others, place, **changes)
    assert one.seen == other.seen
    assert player.position == len(recorder.tape) > 0
    moves = [move for move in player.moves if move.distance > 0]
    assert len(moves) == 2  # the policy's release, and the guardrail's
    assert sum(move.distance * move.terms.epsilon for move in moves) <= 5.0 * (1 + 1e-9)


def test_the_shares_of_the_error_sum_to_it() -> None:
    """Of two guardrails and three arms, with a thousand arms that come later."""
    two = [Guardrail(**ERRORS), Guardrail(**(ERRORS | {"metric": "seconds"}))]
    guardrails = Guardrails(two, 3)
    total = 2 * sum(guardrails.failure(arm) for arm in range(1_003))
    assert 0.99 * BREAKER_ERROR < total <= BREAKER_ERROR


@pytest.mark.statistical
def test_the_breaker_seldom_errs(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 runs at the limit itself, 400 readings of each of two arms.

    It errs with probability at most 0.05 a run; more than 15 of 100 have probability below 1e-4.
    """
    tape, trips = Recorder(seed=3), 0
    import numpy as np

    rng = np.random.default_rng(5)
    for _ in range(100):
        guardrails = Guardrails([Guardrail(**ERRORS)], 2)
        for round in range(400):
            for arm in range(2):
                reading = float(rng.random() < ERRORS["limit"])
                row = {"arm": arm, "round": round, "made": float(round)}
                guardrails.add(row, {"errors": reading}, tape)
        guardrails.update_breaker(None, ["plain", "map"], 0.0)
        trips += guardrails.trip is not None
    assert trips <= 15


def test_over_http(open_service: Callable[..., Service]) -> None:
    client = client_of(open_service())
    create(client, guardrails=[ERRORS], default_reward=0.0)
    (made,) = decide(client)
    path = f"/v1/decisions/{made['decision_id']}/reward"
    assert client.put(path, json={"metrics": {"errors": 1}}).json() == {"recorded": True}
    both = {"value": 1.0, "metrics": {"errors": 0.0}}
    assert client.put(path, json=both).json() == {"recorded": True}
    assert client.put(path, json={}).status_code == 422
    assert client.put(path, json={"metrics": {"errors": "x"}}).status_code == 422
    many = [{"decision_id": made["decision_id"], "metrics": {"errors": 0.5}}]
    assert client.post("/v1/rewards", json=many).json()[0]["recorded"]
    limits = client.patch(URL, json={"guardrail_limits": {"errors": 0.5}}).json()
    assert limits["guardrails"][0]["limit"] == 0.5
    assert client.patch(URL, json={"guardrail_limits": {"errors": 1.5}}).status_code == 422
    again = client.post("/v1/experiments", json=None)
    assert again.status_code == 422


def test_the_page_shows_guardrails(shop: Shop) -> None:
    from fastapi.testclient import TestClient

    from balaclava.service.http.app import create_app

    shop.create(guardrails=[ERRORS | {"epsilon": 4.0}])
    client = TestClient(create_app(shop.service, keys=False), base_url="http://localhost")
    assert "not yet" in client.get("/experiments/shop").text
    for _ in range(3):
        for each in shop.decide(count=60):
            read(shop, each["decision_id"], 1.0)
        shop.wait(61.0)
    page = client.get("/experiments/shop").text
    assert "Its limit was crossed" in page
    assert "No mean may be above 0.3" in page
