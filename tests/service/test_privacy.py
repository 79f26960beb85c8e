"""Privacy through the service: what is asked over HTTP, and everything that comes back.

Two databases that differ in one reward are filled by the same requests. With the same answers of
all mechanisms everything that can be seen must be the same, and what the mechanisms were asked may
differ by what the guarantee allows.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from fastapi.testclient import TestClient

from balaclava.auditing.tape import Recorder, Replayer
from balaclava.auditing.two_sample_bounds import epsilon_lower
from balaclava.privacy.randomness import SystemRandomness
from balaclava.service.engine import unit_of_work
from balaclava.service.engine.writer import Clock
from balaclava.service.http.app import create_app
from balaclava.service.http.server import ServerSettings
from tests.service.manual_service import SHOP, ManualService, metrics, plain

STEPS, WINDOW, EACH = 20, 5, 3
PERSONS = {"population": "us", "rewards_per_person": EACH - 1}  # two decisions in three learn
PAGES = (
    *("/", "/live", "/experiments/shop", "/experiments/shop/live", "/experiments/shop/charts"),
    *("/ledger", "/keys", "/experiments/shop/finish", "/healthz", "/readyz", "/openapi.json"),
)
LIVE = ("/v1/experiments/shop/results", "/experiments/shop/live")
ANSWERS = (
    *("/v1/experiments", "/v1/experiments/shop", "/v1/experiments/shop/results"),
    *("/v1/experiments/shop/results?confidence=0.6", "/v1/experiments/shop/privacy"),
    *("/v1/experiments/shop/plan", "/v1/experiments/shop/plan?participants=70&confidence=0.51"),
    "/v1/experiments/shop/results?smallest_difference=0.9&participants=60&confidence=0.6",
    *("/v1/experiments/shop/history?points=5", "/v1/populations", "/v1/ledger", "/v1/keys"),
)


class Event(NamedTuple):
    """What comes of a decision: a reward, so many seconds later; None if it never comes."""

    delay: int
    reward: float | None


def events(seed: int) -> list[Event]:
    """Ones come at once, zeros late or never: arrival tells as much as it can."""
    rng = np.random.default_rng(seed)
    rewards = rng.random(STEPS * EACH) < 0.5
    return [
        Event(0, 1.0)
        if reward
        else Event(int(rng.integers(1, 9)), 0.0 if rng.random() < 0.5 else None)
        for reward in rewards
    ]


class Run(NamedTuple):
    """Everything that was seen of a service, and the counts of its metrics."""

    seen: list[Any]
    metrics: list[str]


FEATURES = {"features": 2, "disjoint": True, "feature_bound": 2.0}


def asked_in(step: int, parameters: dict[str, Any]) -> dict[str, Any]:
    """A request for decisions, with features for a contextual policy."""
    asked = {"count": EACH, "request_id": f"r{step}", "person": f"p{step}"}
    return asked | ({"features": [1.0, step % 3 - 1.0]} if "features" in parameters else {})


def play(manual: ManualService, timeline: list[Event], target: int, **changes: Any) -> Run:
    """Ask for decisions, send rewards, and read everything that can be read, in between."""
    client, seen, ids = manual.client, [], []
    seen.append(plain(client.put("/v1/populations/us", json={"epsilon": 99.0, "delta": 0.1})))
    seen.append(plain(client.post("/v1/experiments", json=SHOP | PERSONS | changes)))
    for step in range(STEPS):
        asked = asked_in(step, changes["parameters"])
        answer = client.post("/v1/experiments/shop/decisions", json=asked)
        ids += [each["decision_id"] for each in answer.json()["decisions"]]
        seen.append(plain(answer))
        seen.append(plain(client.post("/v1/experiments/shop/decisions", json=asked)))
        for place, event in enumerate(timeline[: len(ids)]):
            if place // EACH + event.delay == step and event.reward is not None:
                answer = manual.send(ids[place], event.reward)
                if place != target:  # to whom it is sent is told by its time alone, see below
                    seen.append(plain(answer))
        if step == STEPS // 2:
            manual.restart()
            client = manual.client
        for address in LIVE if step % 8 else (*ANSWERS, *PAGES):
            seen.append(plain(client.get(address)))
        manual.wait(1.0)
    for id in ids:  # the same answer, whatever is stored: 410 by time alone
        seen.append(plain(manual.send(id, 0.25)))
    seen.append(plain(client.post("/v1/experiments/shop/finish")))
    seen += [plain(client.get(address)) for address in (*ANSWERS, *PAGES)]
    return Run(seen, metrics(client.get("/metrics").text))


NEIGHBOURS: dict[str, Callable[[Event], Event]] = {
    "another value": lambda old: Event(old.delay, 0.75),
    "another time": lambda old: Event(WINDOW - 1, old.reward),
    "too late": lambda old: Event(WINDOW + 2, 1.0),
    "it never arrived": lambda old: Event(0, None),
}
POLICIES: dict[str, dict[str, Any]] = {
    "dp-imed": {"epsilon": 4.0},
    "dp-klucb": {"epsilon": 4.0},
    "adap-ucb": {"epsilon": 4.0},
    "dp-se": {"epsilon": 4.0, "horizon": 500},
    "dp-ucb": {"epsilon": 2.0},
    "dp-kernel-ucb": {"epsilon": 4.0, **FEATURES},
}


def without_rewards(lines: list[str]) -> list[str]:
    """Requests with rewards, and their commits, are counted by whichever process had them."""
    return [line for line in lines if "reward" not in line and "commit" not in line]


def check(
    manual_services: Callable[..., ManualService], policy: str, change: str, place: int, **more: Any
) -> None:
    timeline = events(place)
    learns = range(place - place % EACH, len(timeline), EACH)
    place = next(i for i in learns if timeline[i].reward == 1.0)
    others = list(timeline)
    others[place] = NEIGHBOURS[change](timeline[place])
    changes = {"policy": policy, "parameters": POLICIES[policy], **more}
    recorder = Recorder(seed=1)
    one = play(manual_services(recorder), timeline, place, **changes)
    player = Replayer(recorder.tape, 0)
    other = play(manual_services(player), others, place, **changes)
    for mine, theirs in zip(one.seen, other.seen, strict=True):
        assert mine == theirs
    assert player.position == len(recorder.tape) > 0
    cost = sum(move.distance * move.terms.epsilon for move in player.moves)
    assert cost <= POLICIES[policy]["epsilon"] * (1 + 1e-9)
    if change != "it never arrived":  # metrics, for admins, count requests
        assert without_rewards(one.metrics) == without_rewards(other.metrics)


def test_another_value_looks_alike(
    manual_services: Callable[..., ManualService], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="balaclava")
    check(manual_services, "dp-imed", "another value", 7)
    assert caplog.text == ""


def test_a_reward_that_never_came_looks_alike(
    manual_services: Callable[..., ManualService], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One transaction ends two windows here: those of rewards must not get ahead with it."""
    monkeypatch.setattr(unit_of_work, "_MOST_CLOSED", 2)
    check(manual_services, "dp-imed", "it never arrived", 7)


def test_another_value_with_features_looks_alike(
    manual_services: Callable[..., ManualService],
) -> None:
    check(manual_services, "dp-kernel-ucb", "another value", 7)


@pytest.mark.slow
@pytest.mark.parametrize("change", NEIGHBOURS)
@pytest.mark.parametrize("policy", POLICIES)
def test_neighbours_look_alike_to_every_policy(
    manual_services: Callable[..., ManualService], policy: str, change: str
) -> None:
    for place in (0, 20, 40):
        check(manual_services, policy, change, place)


@pytest.mark.slow
def test_the_attack_can_succeed(manual_services: Callable[..., ManualService]) -> None:
    """Where batches settle by arrival the same neighbours are told apart: the tests can fail."""
    with pytest.raises(AssertionError):
        check(manual_services, "dp-imed", "it never arrived", 7, settle="arrival")


class Quiet(Recorder):
    """A broken service: half the noise."""

    def release(self, body: Callable[..., Any], *arguments: Any) -> Any:
        return (super().release(body, *arguments) + arguments[0]) / 2


ARMS = 10


def epsilon_shown(manual: ManualService, experiments: int) -> float:
    """The epsilon that requests and their answers prove, but for one time in 10,000.

    The attacker fills the first batch of each of ten arms with rewards of 0, but for the first of
    each, which is 1 in every second experiment, and looks whether released sums are above 1.
    """
    counts = [0, 0]
    arms = {"arms": [f"{arm}" for arm in range(ARMS)], "parameters": {"epsilon": 1.0}}
    for number in range(2 * experiments):
        address = f"/v1/experiments/game {number}"
        manual.client.post("/v1/experiments", json=SHOP | arms | {"name": f"game {number}"})
        asked = manual.client.post(f"{address}/decisions", json={"count": 40 * ARMS}).json()
        firsts = {each["arm"]: each["decision_id"] for each in reversed(asked["decisions"])}
        rewards = [{"decision_id": id, "value": number % 2} for id in firsts.values()]
        manual.client.post("/v1/rewards", json=rewards)
        manual.wait(5.0)
        answer = manual.client.get(f"{address}/results").json()["arms"]
        counts[number % 2] += sum(each["mean"] * each["rewards"] > 1.0 for each in answer)
    return float(epsilon_lower(counts[1], counts[0], experiments * ARMS, 0.0, 1e-4))


@pytest.mark.slow
@pytest.mark.statistical
def test_an_audit_from_requests_to_answers(manual_services: Callable[..., ManualService]) -> None:
    """Epsilon 1 is not refuted; a service with half the noise is, in as many games."""
    assert 0.3 < epsilon_shown(manual_services(Recorder(seed=1)), 80) <= 1.0
    assert epsilon_shown(manual_services(Quiet(seed=1)), 80) > 1.0


def test_nothing_that_is_asked_for_turns_the_noise_off(open_service: Callable[..., Any]) -> None:
    service = open_service()
    client = TestClient(create_app(service, keys=False), "http://127.0.0.1")
    for extra in ("seed", "rng", "noise", "tape", "clock", "now"):
        assert client.post("/v1/experiments", json=SHOP | {extra: 1}).status_code == 422
        parameters = SHOP["parameters"] | {extra: 1}
        answer = client.post("/v1/experiments", json=SHOP | {"parameters": parameters})
        assert answer.status_code == 422
        assert extra not in {each.name for each in dataclasses.fields(ServerSettings)}
    headers = {f"x-balaclava-{name}": "1" for name in ("seed", "noise", "clock")}
    assert client.post("/v1/experiments?seed=1", json=SHOP, headers=headers).status_code == 201
    asked = client.post("/v1/experiments/shop/decisions?seed=1", json={}, headers=headers)
    assert asked.status_code == 200
    (kept,) = service.writer._cache.values()
    assert type(kept.runner.rng) is SystemRandomness
    assert type(service.clock) is Clock
