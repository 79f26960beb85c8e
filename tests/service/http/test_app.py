"""The endpoints, as the contract has them, on both databases."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from balaclava.service.http import answers
from balaclava.service.http.app import create_app
from balaclava.service.http.payloads import DecisionsOut
from balaclava.service.http.server import first_key
from balaclava.service.service import Service

SHOP = {
    "name": "shop",
    "policy": "dp-imed",
    "parameters": {"epsilon": 1.0},
    "arms": ["plain", "friendly", "map"],
    "reward_window": 3600.0,
}


def client_of(service: Service) -> TestClient:
    key = first_key(service)
    return TestClient(create_app(service), headers={"Authorization": f"Bearer {key}"})


@pytest.fixture
def client(open_service: Callable[..., Service]) -> TestClient:
    """An admin on a new SQLite database."""
    return client_of(open_service())


@pytest.fixture
def both(open_service: Callable[..., Service], database: str) -> TestClient:
    """An admin on a new database of each kind."""
    return client_of(open_service(database))


def create(client: TestClient, **changes: Any) -> dict[str, Any]:
    answer = client.post("/v1/experiments", json=SHOP | changes)
    assert answer.status_code == 201, answer.text
    return answer.json()


def decide(client: TestClient, name: str = "shop", **asked: Any) -> list[dict[str, Any]]:
    answer = client.post(f"/v1/experiments/{name}/decisions", json=asked)
    assert answer.status_code == 200, answer.text
    return answer.json()["decisions"]


def reward(client: TestClient, decision: dict[str, Any], value: Any) -> Any:
    address = f"/v1/decisions/{decision['decision_id']}/reward"
    return client.put(address, json={"value": value})


def results(client: TestClient, name: str = "shop") -> dict[str, Any]:
    return client.get(f"/v1/experiments/{name}/results").json()


def test_from_the_first_decision_to_the_winner(both: TestClient) -> None:
    create(both)
    for _ in range(30):
        rewards = [
            {"decision_id": each["decision_id"], "value": 1.0 if each["label"] == "map" else 0.0}
            for each in decide(both, count=100)
        ]
        assert all(each["recorded"] for each in both.post("/v1/rewards", json=rewards).json())
    answer = results(both)
    assert answer["winner"] == "map"
    assert answer["decisions"] == 3_000
    assert sum(arm["decisions"] for arm in answer["arms"]) == 3_000
    assert answer["windows"]["states"]["rewarded"] == 3_000
    assert "'map' is the best" in answer["sentence"]
    assert "does not depend on the value" in answer["condition"]  # no default, so some may be lost
    assert f", if {answer['condition']}; " in answer["sentence"]
    assert answer["sentence"].endswith(" You may stop.")
    assert answer["may_stop"]["reason"] == "winner"
    plan = both.get("/v1/experiments/shop/plan").json()
    assert (plan["winner"], plan["needed"], plan["soonest"]) == ("map", None, None)
    assert plan["may_stop"] == answer["may_stop"]
    assert (plan["leader"], plan["differences"]) == ("map", answer["differences"])
    means = {each["label"]: each["mean"] for each in answer["arms"]}
    for each in answer["differences"]:
        assert each["difference"] == means["map"] - means[each["label"]]
        assert 0.0 <= each["low"] < each["high"] <= 1.0
    history = both.get("/v1/experiments/shop/history?points=10").json()
    assert 2 <= len(history["decisions"]) <= 11
    assert history["decisions"][-1] <= 3_000
    assert history["shares"][-1][2] > 0.8
    assert both.post("/v1/experiments/shop/finish").json()["state"] == "finished"
    (late,) = decide(both)
    assert (late["label"], late["learns"]) == ("map", False)
    assert both.post("/v1/experiments/shop/resume").status_code == 409


def test_the_same_experiment_again_and_another_of_its_name(both: TestClient) -> None:
    first = create(both)
    again = both.post("/v1/experiments", json=SHOP)
    assert (again.status_code, again.json()) == (200, first)
    other = both.post("/v1/experiments", json=SHOP | {"reward_window": 60.0})
    assert other.status_code == 409
    assert other.headers["content-type"] == "application/problem+json"
    assert both.get("/v1/experiments").json() == {"experiments": [first]}


def test_a_repeated_request_gets_the_same_answer(both: TestClient) -> None:
    create(both)
    first = decide(both, request_id="order 7", person="ann", count=3)
    decide(both, count=5)
    assert decide(both, request_id="order 7", person="ann", count=3) == first
    address = "/v1/experiments/shop/decisions"
    other = both.post(address, json={"request_id": "order 7", "person": "bob", "count": 3})
    assert other.status_code == 409


def test_a_reward_counts_once_and_every_answer_is_the_same(both: TestClient) -> None:
    create(both)
    decision, *_ = decide(both)
    for value in (1.0, 1.0, 0.0):
        assert reward(both, decision, value).json() == {"recorded": True}
    assert results(both)["windows"]["states"]["rewarded"] == 1


def test_counts_of_arrived_rewards_are_for_admins(client: TestClient) -> None:
    """If only purchases are reported, they count the buyers, without noise."""
    key = client.post("/v1/keys", json={"role": "read"}).json()["key"]
    reader = {"Authorization": f"Bearer {key}"}
    places = [f"/v1/experiments/shop{part}" for part in ("", "/results", "/privacy", "/history")]
    create(client, parameters={"epsilon": 1.0, "first_batch": 64})
    first, second = decide(client, count=2)
    before = [client.get(place, headers=reader).json() for place in places]
    assert before[1]["windows"] is None
    for decision in (first, second):
        reward(client, decision, 1.0)
    assert [client.get(place, headers=reader).json() for place in places] == before
    assert results(client)["windows"]["states"]["rewarded"] == 2


@pytest.mark.parametrize("value", [1.5, -0.001, "1", None, True, [1.0]])
def test_what_is_no_reward_is_refused_and_not_repeated(client: TestClient, value: Any) -> None:
    create(client)
    decision, *_ = decide(client)
    answer = reward(client, decision, value)
    assert answer.status_code == 422
    if isinstance(value, float):
        assert str(value) not in answer.text
    assert reward(client, decision, 1.0).status_code == 200


def test_unknown_decisions(client: TestClient) -> None:
    create(client)
    assert reward(client, {"decision_id": "nothing"}, 1.0).status_code == 404
    answers = client.post("/v1/rewards", json=[{"decision_id": "nothing", "value": 1.0}]).json()
    assert [each["status"] for each in answers] == [404]
    assert client.post("/v1/experiments/none/decisions", json={}).status_code == 404
    assert client.get("/v1/decisions/nothing").status_code == 404


def test_a_person_is_learned_from_as_often_as_agreed(both: TestClient) -> None:
    create(both, rewards_per_person=2)
    learned = [each["learns"] for each in decide(both, person="ann", count=4)]
    assert learned == [True, True, False, False]
    assert [each["learns"] for each in decide(both, person="ann", count=2)] == [False, False]
    assert [each["learns"] for each in decide(both, person="bob", count=1)] == [True]
    privacy = both.get("/v1/experiments/shop/privacy").json()
    assert privacy["per_person"]["epsilon"] == 2.0
    decide(both)
    assert both.get("/v1/experiments/shop/privacy").json()["per_person"] is None


def test_a_reward_of_a_decision_that_does_not_learn_changes_nothing(client: TestClient) -> None:
    create(client)
    first, second = decide(client, person="ann", count=2)
    before = results(client)
    assert reward(client, second, 1.0).json() == {"recorded": True}
    assert results(client) == before
    assert reward(client, first, 1.0).json() == {"recorded": True}


def pass_by(service: Service, seconds: float) -> None:
    """Let the service's clock run ahead."""
    service.clock._start += seconds


def once_windows_are_ended(client: TestClient) -> dict[str, Any]:
    """The writer looks by itself, twice a second."""
    deadline = time.monotonic() + 30
    while results(client)["windows"]["open"] and time.monotonic() < deadline:
        time.sleep(0.05)
    return results(client)


def test_windows_end_with_a_default(open_service: Callable[..., Service]) -> None:
    """An observer cannot tell whether a reward arrived, and the default counts."""
    service = open_service()
    client = client_of(service)
    created = create(client, default_reward=0.0)
    assert created["settle"] == "window"
    assert "whether it arrived" in created["guarantee"]["neighbours"]
    decisions = decide(client, count=120)
    for decision in decisions[:10]:
        assert reward(client, decision, 1.0).status_code == 200
    before = results(client)
    assert before["windows"] == {"open": 120, "over": 0}
    pass_by(service, 3_601)
    assert reward(client, decisions[0], 1.0).status_code == 410  # told by time alone
    assert reward(client, decisions[20], 1.0).status_code == 410
    after = once_windows_are_ended(client)
    assert after["windows"] == {"open": 0, "over": 120}
    assert after["condition"] is None
    assert all(arm["rewards"] >= 30 for arm in after["arms"])
    states = [
        client.get(f"/v1/decisions/{decision['decision_id']}").json()["state"]
        for decision in (decisions[0], decisions[20])
    ]
    assert states == ["rewarded", "defaulted"]


def test_windows_end_without_a_default(open_service: Callable[..., Service]) -> None:
    service = open_service()
    client = client_of(service)
    create(client)
    decision, *_ = decide(client)
    pass_by(service, 3_601)
    assert once_windows_are_ended(client)["windows"]["states"]["given_up"] == 1
    assert reward(client, decision, 1.0).status_code == 410


def test_a_paused_experiment_decides_nothing_and_learns_on(client: TestClient) -> None:
    create(client)
    decision, *_ = decide(client)
    assert client.post("/v1/experiments/shop/pause").json()["state"] == "paused"
    assert client.post("/v1/experiments/shop/decisions", json={}).status_code == 409
    assert reward(client, decision, 1.0).status_code == 200
    assert client.post("/v1/experiments/shop/resume").json()["state"] == "running"
    assert len(decide(client)) == 1


def test_a_population_pays_for_its_experiments(both: TestClient) -> None:
    assert both.post("/v1/experiments", json=SHOP | {"population": "us"}).status_code == 404
    both.put("/v1/populations/us", json={"epsilon": 2.5})
    create(both, population="us")
    create(both, name="second", population="us")
    third = both.post("/v1/experiments", json=SHOP | {"name": "third", "population": "us"})
    assert third.status_code == 409
    assert "too small" in third.json()["detail"]
    (population,) = both.get("/v1/populations").json()["populations"]
    assert (population["spent_epsilon"], population["left_epsilon"]) == (2.0, 0.5)
    ledger = both.get("/v1/ledger").json()
    events = [entry["event"] for entry in ledger["entries"]]
    assert events == ["key made", "population", "charge", "charge"]
    privacy = both.get("/v1/experiments/shop/privacy").json()
    assert privacy["charged"] == {"epsilon": 1.0, "delta": 0.0}


def test_what_cannot_be_charged_is_refused(client: TestClient) -> None:
    client.put("/v1/populations/us", json={"epsilon": 100.0, "delta": 0.1})
    for policy, parameters in (
        ("ucb1", {}),
        ("dp-ftpl-gauss", {"epsilon": 0.5, "delta": 1e-6}),
    ):
        answer = client.post(
            "/v1/experiments",
            json=SHOP | {"policy": policy, "parameters": parameters, "population": "us"},
        )
        assert answer.status_code == 422
        assert "cannot be charged" in answer.json()["detail"]
    (population,) = client.get("/v1/populations").json()["populations"]
    assert population["spent_epsilon"] == 0.0


@pytest.mark.parametrize(
    "changes",
    [
        {"policy": "dp-imedd"},
        {"parameters": {"epsilom": 1.0}},
        {"parameters": {"epsilon": -1.0}},
        {"parameters": {"epsilon": 1.0, "arms": 3}},
        {"arms": []},
        {"arms": ["one", "one"]},
        {"reward_window": 0.0},
        {"reward_window": 1e300},
        {"default_reward": 2.0},
        {"settle": "window"},
        {"settle": "sometimes"},
        {"rewards_per_person": 0},
        {"name": ""},
        {"name": "a/b"},
        {"unknown": 1},
        {"policy": "ldp-ucb-bernoulli", "parameters": {"epsilon": 1.0}, "default_reward": 0.0},
        {"policy": "ldp-exp4", "parameters": {"epsilon": 1.0, "experts": 2, "horizon": 100}},
    ],
)
def test_an_experiment_that_cannot_be(client: TestClient, changes: dict[str, Any]) -> None:
    answer = client.post("/v1/experiments", json=SHOP | changes)
    assert answer.status_code == 422, answer.text
    assert answer.json()["detail"]
    assert client.get("/v1/experiments").json() == {"experiments": []}


def test_a_local_policy_takes_reports(client: TestClient) -> None:
    create(client, policy="ldp-ucb-bernoulli", parameters={"epsilon": 1.0})
    decision, *_ = decide(client)
    address = f"/v1/decisions/{decision['decision_id']}/reward"
    assert "report" in client.put(address, json={"value": 1.0}).json()["detail"]
    assert client.put(address, json={"value": 1.0, "report": 1.0}).status_code == 422
    assert client.put(address, json={}).status_code == 422


@pytest.mark.parametrize(
    ("policy", "forged"),
    [
        ("ldp-ucb-laplace", (1e308, -1e308, 29.0)),
        ("ldp-exp3", (1e308, -1e308, 29.0)),
        ("ldp-ucb-bernoulli", (0.5, 2.0, 1e308)),
        ("ldpr-se", (1e308, -1e308)),
    ],
)
def test_a_forged_report_is_refused(
    client: TestClient, policy: str, forged: tuple[float, ...]
) -> None:
    """One report of 1e308 among 4,000 honest ones used to decide which arm is served."""
    more: dict[str, Any] = {"horizon": 100} if policy in ("ldp-exp3", "ldpr-se") else {}
    more |= {"moment_order": 2.0, "moment_bound": 1.0} if policy == "ldpr-se" else {}
    create(client, policy=policy, parameters={"epsilon": 1.0, **more})
    (decision,) = decide(client)
    address = f"/v1/decisions/{decision['decision_id']}/reward"
    extreme = 50.0 * decision["level"] if policy == "ldpr-se" else 1.0
    beyond = (60.0 * decision["level"],) if policy == "ldpr-se" else ()
    for value in (*forged, *beyond):
        answer = client.put(address, json={"report": value})
        assert (answer.status_code, "withheld" in answer.json()["detail"]) == (422, True)
    assert client.put(address, json={"report": extreme}).status_code == 200


def test_what_was_is_there_after_a_restart(
    open_service: Callable[..., Service], database: str
) -> None:
    service = open_service(database)
    client = client_of(service)
    create(client, default_reward=0.0)
    decisions = decide(client, request_id="one", count=40)
    for decision in decisions[:20]:
        reward(client, decision, 1.0)
    before = results(client), client.get("/v1/experiments/shop/privacy").json()
    service.close()
    service = open_service(database)
    assert first_key(service) is None
    headers = dict(client.headers)
    client = TestClient(create_app(service), headers=headers)
    assert (results(client), client.get("/v1/experiments/shop/privacy").json()) == before
    assert decide(client, request_id="one", count=40) == decisions
    pass_by(service, 3_601)
    decide(client)
    assert results(client)["windows"]["over"] == 40


def test_when_an_experiment_may_stop(client: TestClient) -> None:
    """Equal arms: not yet, futile in few decisions, and later equivalent at a large difference.

    Rewards near .5 name an arm only if the noise of a release exceeds 1.5: 5 in 10,000 releases.
    """
    arms = {"arms": ["plain", "map"], "policy": "dp-top-two", "parameters": {"epsilon": 5.0}}
    create(client, **arms)
    address = "/v1/experiments/shop"

    def play(rounds: int) -> None:
        for _ in range(rounds):
            rewards = [
                {"decision_id": each["decision_id"], "value": 0.4 + 0.2 * (i % 2)}
                for i, each in enumerate(decide(client, count=100))
            ]
            client.post("/v1/rewards", json=rewards)

    assert client.get(f"{address}/plan").json()["may_stop"]["reason"] is None
    play(20)
    plan = client.get(f"{address}/plan").json()
    assert plan["learning_decisions"] == 2_000
    assert plan["names_winners"]["expected"]
    assert plan["soonest"] is None or plan["soonest"] > 2_000
    assert plan["may_stop"]["reason"] is None
    query = {"participants": 2_000}
    futile = client.get(f"{address}/results", params=query).json()
    assert futile["may_stop"]["reason"] == "futile"
    assert futile["sentence"].endswith("not released yet can change that.")
    assert client.get(f"{address}/plan", params=query).json()["may_stop"] == futile["may_stop"]
    query = {"smallest_difference": 0.4}
    equivalent = client.get(f"{address}/results", params=query).json()["may_stop"]
    assert equivalent["reason"] == "equivalent"
    assert "by 0.4 or more" in equivalent["sentence"]


@pytest.mark.parametrize(
    "query", ["smallest_difference=0", "smallest_difference=1", "participants=0", "confidence=1"]
)
def test_a_bad_plan_is_refused(client: TestClient, query: str) -> None:
    create(client)
    for part in ("plan", "results"):
        answer = client.get(f"/v1/experiments/shop/{part}?{query}")
        assert answer.status_code == 422
        assert query.partition("=")[0] in answer.json()["detail"]


def test_the_horizon_of_a_test_of_fixed_size_limits_it(client: TestClient) -> None:
    """dp-even with 60 participants and equal arms: after its test no winner is left to expect."""
    parameters = {"epsilon": 5.0, "horizon": 60}
    create(client, policy="dp-even", parameters=parameters, arms=["plain", "map"])
    decisions = decide(client, count=60)
    for i, decision in enumerate(decisions):
        assert results(client)["may_stop"]["reason"] is None
        reward(client, decision, float(i % 4 < 2))
    answer = results(client)
    assert answer["may_stop"]["reason"] in ("futile", "winner")
    assert client.get("/v1/experiments/shop/plan").json()["needed"] is None


def test_health_is_open_to_all(open_service: Callable[..., Service]) -> None:
    client = TestClient(create_app(open_service()))
    assert client.get("/healthz").json() == {"status": "alive"}
    assert client.get("/readyz").json() == {"status": "ready"}
    assert client.get("/v1/experiments").status_code == 401
    assert client.get("/openapi.json").status_code == 200


def test_keys_are_made_shown_once_and_revoked(client: TestClient) -> None:
    made = client.post("/v1/keys", json={"role": "read", "label": "dashboard"}).json()
    reader = {"Authorization": f"Bearer {made['key']}"}
    assert client.get("/v1/experiments", headers=reader).status_code == 200
    assert client.post("/v1/keys", json={"role": "read"}, headers=reader).status_code == 403
    listed = client.get("/v1/keys").text
    assert made["id"] in listed
    assert made["key"] not in listed
    assert client.delete(f"/v1/keys/{made['id']}").status_code == 204
    assert client.get("/v1/experiments", headers=reader).status_code == 401
    (admin,) = [key for key in client.get("/v1/keys").json()["keys"] if key["role"] == "admin"]
    assert client.delete(f"/v1/keys/{admin['id']}").status_code == 409


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8765", "[::1]:8765"])
def test_without_keys_this_machine_is_answered(
    open_service: Callable[..., Service], host: str
) -> None:
    client = TestClient(create_app(open_service(), keys=False))
    assert client.get("/v1/experiments", headers={"Host": host}).status_code == 200
    for other in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "["):
        assert client.get("/v1/experiments", headers={"Host": other}).status_code == 403


def test_a_damaged_experiment_holds_up_no_other(open_service: Callable[..., Service]) -> None:
    service = open_service()
    client = client_of(service)
    create(client)
    create(client, name="other")
    decision, *_ = decide(client)
    service.close()
    service = open_service()
    with service.storage.writing() as connection:
        connection.exec_driver_sql(
            "UPDATE experiments SET policy_state = x'00', next_due = 0 WHERE name = 'shop'"
        )
    client = TestClient(create_app(service), headers=dict(client.headers))
    assert client.post("/v1/experiments/shop/decisions", json={}).status_code == 500
    assert reward(client, decision, 1.0).status_code == 500
    assert client.post("/v1/experiments", json=SHOP).status_code == 500
    assert client.get("/v1/experiments/shop/results").status_code == 500
    assert [each["name"] for each in client.get("/v1/experiments").json()["experiments"]] == [
        "other"
    ]
    assert len(decide(client, "other")) == 1


@pytest.mark.parametrize("policy", ["dp-imed", "ldp-ucb-bernoulli", "dp-ftpl-gauss"])
def test_decisions_are_the_json_that_openapi_describes(both: TestClient, policy: str) -> None:
    """With a level or without, with a propensity or null, learning or not; the same when asked
    again, as it was read from the database.
    """
    labels = ['a "quoted" \\ one', "</script>ü", "名前"]
    parameters = {"epsilon": 1.0, **({"delta": 1e-6} if policy == "dp-ftpl-gauss" else {})}
    create(both, policy=policy, parameters=parameters, arms=labels)
    asked = {"count": 3, "person": "ann", "request_id": "r"}
    answers = [both.post("/v1/experiments/shop/decisions", json=asked) for _ in range(2)]
    assert answers[0].content == answers[1].content
    decisions = DecisionsOut.model_validate_json(answers[0].content).decisions
    assert [each.label for each in decisions] == [labels[each.arm] for each in decisions]
    assert [each.learns for each in decisions] == [True, False, False]
    assert (decisions[0].level is not None) == (policy == "ldp-ucb-bernoulli")
    assert all(each.level is None for each in decisions[1:])


def test_an_unknown_field_is_named_if_it_is_nearly_a_known_one(
    open_service: Callable[..., Service],
) -> None:
    client = client_of(open_service())
    create(client)
    path = "/v1/experiments/shop/decisions"
    answer = client.post(path, json={"persn": "v1"})
    words = "body.persn: is not a known field; did you mean 'person'?"
    assert (answer.status_code, answer.json()["detail"]) == (422, words)
    answer = client.post(path, json={"Ann Smith": 1.0})  # the name may be a person's
    assert answer.status_code == 422
    assert "Ann" not in answer.text
    assert "unknown field" in answer.json()["detail"]
    many = {"persn": "v1", "available": ["x" * 400] * 400}  # too long for the fast route
    assert client.post(path, json=many).status_code == 422


def test_openapi_describes_every_answer_and_the_keys(open_service: Callable[..., Service]) -> None:
    service = open_service()
    client = client_of(service)
    schema = client.get("/openapi.json").json()
    assert schema["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            tags = set(operation["tags"])
            assert ("security" in operation) == bool(tags & {"decide", "read", "admin"}), path
            good = [each for status, each in operation["responses"].items() if status[0] == "2"]
            contents = [kind for each in good for kind in each.get("content", {}).items()]
            assert contents or method == "delete", path
            for media, content in contents:
                assert media != "application/json" or content["schema"].keys() & {"$ref", "items"}


def test_answers_have_the_shapes_that_openapi_says(open_service: Callable[..., Service]) -> None:
    client = client_of(open_service())
    client.put("/v1/populations/us", json={"epsilon": 9.0})
    made = client.post("/v1/experiments", json=SHOP | {"population": "us"})
    (decision,) = decide(client, person="ann")
    key = client.post("/v1/keys", json={"role": "read", "lifetime": 60})
    for answer, shape in (
        (made, answers.ExperimentOut),
        (key, answers.NewKeyOut),
        (client.post("/v1/experiments/shop/pause"), answers.ExperimentOut),
        (client.get("/v1/experiments"), answers.ExperimentsOut),
        (client.get("/v1/experiments/shop/results"), answers.ResultsOut),
        (client.get("/v1/experiments/shop/plan"), answers.PlanOut),
        (client.get("/v1/experiments/shop/privacy"), answers.PrivacyOut),
        (client.get("/v1/experiments/shop/history"), answers.HistoryOut),
        (client.get(f"/v1/decisions/{decision['decision_id']}"), answers.DecisionStateOut),
        (client.get("/v1/populations"), answers.PopulationsOut),
        (client.get("/v1/ledger"), answers.LedgerOut),
        (client.get("/v1/keys"), answers.KeysOut),
        (client.get("/readyz"), answers.StatusOut),
    ):
        assert answer.status_code in (200, 201)
        shape.model_validate(answer.json(), strict=True)
