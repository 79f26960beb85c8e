"""Contextual policies: features are declared, checked, stored with the decision, and public."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from balaclava.agents.saving import stored_arrays
from balaclava.service.engine import contexts
from balaclava.service.engine.contexts import PUBLIC_FEATURES
from balaclava.service.service import Service
from balaclava.service.store.schema import decisions
from tests.service.http.test_app import client_of, create, decide, reward

NEWS: dict[str, Any] = {
    "policy": "dp-kernel-ucb",
    "parameters": {
        "epsilon": 2.0,
        "features": ["always", "evening"],
        "feature_bound": 2.0,
        "disjoint": True,
    },
    "arms": ["sports", "politics"],
    "default_reward": 0.0,
}
EVENING = {"always": 1.0, "evening": 1.0}
MORNING = {"always": 1.0, "evening": -1.0}
URL = "/v1/experiments/shop"


def refusal(client: TestClient, **asked: Any) -> str:
    answer = client.post(f"{URL}/decisions", json=asked)
    assert answer.status_code == 422, answer.text
    return str(answer.json()["detail"])


def test_features_are_checked(open_service: Callable[..., Service]) -> None:
    client = client_of(open_service())
    assert create(client, **NEWS)["features"] == {
        "number": 2, "names": ["always", "evening"], "of": "the participant", "public": True,
        "notice": PUBLIC_FEATURES, "catalogue": False,
    }  # fmt: skip
    missing = refusal(client)
    assert "features are missing" in missing
    assert "ask(" not in missing  # advice for Python
    assert "lacks evening" in refusal(client, features={"always": 1.0})
    assert "unknown" in refusal(client, features=EVENING | {"age": 3.0})
    assert "longer than feature_bound" in refusal(client, features=[3.0, 3.0])
    assert "shape" in refusal(client, features=[1.0])
    for wrong in ("x", {"always": "1", "evening": 1.0}, [True, 1.0], [[[1.0]]]):
        refusal(client, features=wrong)
    assert client.get(URL).json()["decisions"] == 0
    create(client, name="plain")
    assert "takes none" in client.post(
        "/v1/experiments/plain/decisions", json={"features": [1.0]}
    ).json()["detail"]  # fmt: skip
    assert client.patch(URL, json={"add_arms": ["weather"]}).status_code == 409


def test_too_many_features_at_once(
    open_service: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = client_of(open_service())
    create(client, **NEWS)
    monkeypatch.setattr(contexts, "_MOST_STORED", 100)
    assert "lower count" in refusal(client, features=EVENING, count=10)
    decide(client, features=EVENING, count=6)


def test_features_are_stored_and_said_to_be_public(
    open_service: Callable[..., Service], database: str
) -> None:
    client = client_of(open_service(database))
    create(client, **NEWS)
    asked = {"request_id": "r", "features": EVENING, "count": 2}
    made = decide(client, **asked)
    assert decide(client, **asked) == made
    other = client.post(f"{URL}/decisions", json=asked | {"features": MORNING})
    assert other.status_code == 409
    assert reward(client, made[0], 1.0).json() == {"recorded": True}
    lines = [json.loads(line) for line in client.get(f"{URL}/export").text.splitlines()]
    stored = [line["features"] for line in lines if line["type"] == "decision"]
    assert stored == [[[1.0, 1.0]]] * 2
    privacy = client.get(f"{URL}/privacy").json()
    assert PUBLIC_FEATURES in privacy["not_covered"]
    assert any("contexts count as public" in each for each in privacy["guarantee"]["assumptions"])
    note = client.get(f"{URL}/results").json()["note"]
    assert "with-values around dp-kernel-ucb" in note
    assert "agent" not in note  # an operator cannot call Python


def test_a_catalogue_is_stored_once(open_service: Callable[..., Service]) -> None:
    """2,000 arms: decisions take no features and store none; documents have the digest."""
    client = client_of(open_service())
    rows = [[0.5, round(0.8 * math.sin(arm), 3)] for arm in range(2_000)]
    parameters = {"epsilon": 1.0, "features": 2, "catalogue": rows}
    arms = [str(arm) for arm in range(2_000)]
    made = create(client, policy="dp-kernel-ucb", parameters=parameters, arms=arms)
    assert made["parameters"]["catalogue"] == {
        "shape": [2_000, 2], "sha256": hashlib.sha256(np.array(rows).tobytes()).hexdigest(),
    }  # fmt: skip
    assert made["features"]["catalogue"]
    (decision,) = decide(client)
    assert reward(client, decision, 1.0).json() == {"recorded": True}
    assert "leave them out" in refusal(client, features=rows)
    lines = [json.loads(line) for line in client.get(f"{URL}/export").text.splitlines()]
    assert [line.get("features") for line in lines if line["type"] == "decision"] == [None]
    short = {"catalogue": rows[:2], "features": 2}
    body = {"name": "short", "policy": "linucb", "arms": arms, "reward_window": 60.0}
    answer = client.post("/v1/experiments", json=body | {"parameters": short})
    assert answer.status_code == 422
    assert "have shape (2, 2)" in answer.json()["detail"]


def test_features_in_parquet(open_service: Callable[..., Service]) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    pyarrow = pytest.importorskip("pyarrow")
    client = client_of(open_service())
    create(client, **NEWS)
    decide(client, features=MORNING)
    content = client.get(f"{URL}/export?format=parquet").content
    table = parquet.read_table(pyarrow.BufferReader(content))
    assert table["features"].to_pylist() == [[[1.0, -1.0]]]


def test_the_page_says_that_features_are_public(open_service: Callable[..., Service]) -> None:
    from balaclava.service.http.app import create_app

    service = open_service()
    client = TestClient(create_app(service, keys=False), base_url="http://localhost")
    create(client, **NEWS)
    decide(client, features=EVENING, count=60)
    assert client.get("/experiments/shop").text.count(PUBLIC_FEATURES) == 2
    assert client.get("/experiments/shop/charts").status_code == 200
    page = client.get("/experiments/shop").text
    token = page.split('name="token" value="')[1].split('"')[0]
    review = client.post("/experiments/shop/review", data={"token": token})
    assert review.status_code == 200
    assert "contexts count as public" in review.text


def test_it_learns_who_likes_what(open_service: Callable[..., Service]) -> None:
    """Sports in the evening, politics in the morning: epsilon 8, rewards on arrival."""
    client = client_of(open_service())
    parameters = NEWS["parameters"] | {"epsilon": 8.0}
    create(client, **(NEWS | {"parameters": parameters, "default_reward": None}))
    best = {1.0: "sports", -1.0: "politics"}
    for _ in range(40):
        for evening, label in best.items():
            made = decide(client, features=[1.0, evening], count=10)
            rewards = [
                {"decision_id": each["decision_id"], "value": float(each["label"] == label)}
                for each in made
            ]
            assert client.post("/v1/rewards", json=rewards).status_code == 200
    for evening, label in best.items():
        made = decide(client, features=[1.0, evening], count=20)
        assert sum(each["label"] == label for each in made) >= 18


def test_values_say_whether_context_helps(open_service: Callable[..., Service]) -> None:
    """Epsilon 8 and rewards on arrival; the guarantee charges both releases of a reward."""
    from balaclava.service.http.app import create_app

    service = open_service()
    client = TestClient(create_app(service, keys=False), base_url="http://localhost")
    base = {"name": "dp-kernel-ucb"} | NEWS["parameters"] | {"epsilon": 4.0}
    parameters = {"base": base, "value_epsilon": 4.0, "least_chance": 0.25, "value_batch": 100}
    made = create(
        client, policy="with-values", parameters=parameters, arms=NEWS["arms"], default_reward=None
    )
    assert made["guarantee"]["epsilon"] == 8.0
    assert made["features"]["public"]
    assert made["features"]["names"] == ["always", "evening"]
    first = client.get(f"{URL}/results").json()["values"]
    assert [each["value"] for each in first["policies"]] == [None] * 3
    assert first["gain"] == [-1.0, 1.0]
    assert first["context_helps"] is None
    best = {1.0: "sports", -1.0: "politics"}
    for _ in range(40):
        for evening, label in best.items():
            decisions = decide(client, features=[1.0, evening], count=10)
            assert {each["propensity"] for each in decisions} <= {0.25, 0.75}
            rewards = [
                {"decision_id": each["decision_id"], "value": float(each["label"] == label)}
                for each in decisions
            ]
            assert client.post("/v1/rewards", json=rewards).status_code == 200
    results = client.get(f"{URL}/results").json()
    policies = {each["policy"]: each for each in results["values"]["policies"]}
    assert list(policies) == ["rule", "always sports", "always politics"]
    assert policies["rule"]["rewards"] == 800
    assert policies["rule"]["value"] > 0.9
    assert abs(policies["always sports"]["value"] - 0.5) < 0.15
    assert results["values"]["context_helps"] is True
    assert "context helps" in results["sentence"]
    page = client.get("/experiments/shop").text
    assert "Values of policies" in page
    assert "always politics" in page


def test_decisions_that_do_not_learn_follow_features_and_change_nothing(
    open_service: Callable[..., Service],
) -> None:
    service = open_service()
    client = client_of(service)
    plain = {"features": 2, "disjoint": True, "feature_bound": 2.0}
    create(client, policy="linucb", parameters=plain, arms=["sports", "politics"])
    for _ in range(60):
        for evening, label in ((1.0, "sports"), (-1.0, "politics")):
            (made,) = decide(client, features=[1.0, evening])
            reward(client, made, float(made["label"] == label))
    decide(client, person="ann", features=[1.0, 0.0])

    def state() -> list[list[float]]:
        runner = service.committed("shop").runner
        return [array.tolist() for _, array in stored_arrays(runner.state)]

    before = state()
    for evening, label in ((1.0, "sports"), (-1.0, "politics")):
        asked = {"person": "ann", "features": [1.0, evening]}
        made = decide(client, **asked, count=3)
        assert {each["label"] for each in made} == {label}
        assert not any(each["learns"] for each in made)
    assert state() == before
    client.post(f"{URL}/finish")
    for evening, label in ((1.0, "sports"), (-1.0, "politics")):
        assert decide(client, features=[1.0, evening])[0]["label"] == label
    missing = refusal(client)
    assert "features are missing" in missing
    assert "ask(" not in missing  # advice for Python
    assert state() == before
    flags = client.post(
        "/ofrep/v1/evaluate/flags", json={"context": {"targetingKey": "ann"}}
    ).json()["flags"]
    assert [flag["reason"] for flag in flags] == ["DISABLED"]


def test_a_policy_that_releases_to_choose_does_not_do_so_twice(
    open_service: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Noise for a copy of the state would be drawn again: the last arm is given instead."""
    service = open_service()
    client = client_of(service)
    create(client, **NEWS)
    (first,) = decide(client, person="ann", features=EVENING)

    def choose(runner: Any, round: int, context: Any, slots: Any = None) -> Any:
        runner.rng.release(None, 0.0)

    monkeypatch.setattr("balaclava.agents.policy_runner.PolicyRunner.choose", choose)
    (again,) = decide(client, person="ann", features=EVENING)
    assert (again["arm"], again["learns"]) == (first["arm"], False)


def test_erasure_takes_features(open_service: Callable[..., Service]) -> None:
    service = open_service()
    client = client_of(service)
    create(client, **NEWS)
    decide(client, person="ann", features=EVENING)
    decide(client, person="bob", features=MORNING)
    asyncio.run(service.erase("ann", "test"))
    with service.storage.reading() as connection:
        kept = list(connection.scalars(select(decisions.c.features).order_by(decisions.c.round)))
    assert kept == [None, "[[1.0, -1.0]]"]


def test_other_contexts_are_refused(open_service: Callable[..., Service]) -> None:
    client = client_of(open_service())
    experts = {"policy": "exp4", "parameters": {"experts": 3, "horizon": 100}}
    from tests.service.http.test_app import SHOP

    answer = client.post("/v1/experiments", json=SHOP | experts)
    assert answer.status_code == 422


def test_a_policy_that_hides_features_is_refused(open_service: Callable[..., Service]) -> None:
    """Each decision follows its participant's features, and pages count decisions by arm."""
    from tests.service.http.test_app import SHOP

    client = client_of(open_service())
    hidden = {"epsilon": 1.0, "delta": 1e-3, "features": 2, "disjoint": True}
    body = SHOP | {"policy": "dp-squarecb", "parameters": hidden, "default_reward": 0.0}
    answer = client.post("/v1/experiments", json=body)
    assert answer.status_code == 422
    assert "hides features" in answer.json()["detail"]


def test_devices_report_with_features(open_service: Callable[..., Service]) -> None:
    client = client_of(open_service())
    local = {"epsilon": 2.0, "features": 1, "disjoint": True}
    create(client, policy="ldp-linucb", parameters=local)
    (made,) = decide(client, features=[0.5])
    path = f"/v1/decisions/{made['decision_id']}/reward"
    assert client.put(path, json={"report": 1.0}).json() == {"recorded": True}
    assert client.put(path, json={"value": 1.0}).status_code == 422
