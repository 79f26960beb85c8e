"""Random schedules of arms, shares, masks, late rewards, erasures and restarts of the service."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from balaclava.policies.bounded import batched
from balaclava.service.http.app import create_app
from balaclava.service.service import Service
from tests.service.http.test_app import client_of, create, results

STEPS = 2**20  # of the grid: sums of random rewards tell which rewards are in them


class Course:
    """One random course; `released` has the sums that left, as numbers of steps."""

    def __init__(self, opener: Callable[..., Service], seed: int, policy: dict[str, Any]) -> None:
        self.luck, self.open_service = random.Random(seed), opener
        self.service = opener()
        self.client = client_of(self.service)
        create(self.client, **policy)
        self.live, self.gone = ["plain", "friendly", "map"], list[str]()
        self.waiting: list[dict[str, Any]] = []
        self.told: dict[tuple[int, int], list[int]] = defaultdict(list)
        self.batch: dict[str, tuple[int, int]] = {}

    def restart(self) -> None:
        """Nothing that is displayed changes, however the state was stored."""
        shown = self.client.get("/v1/experiments/shop").json(), results(self.client)
        self.service.close()
        self.service = self.open_service()
        again = TestClient(create_app(self.service), headers=dict(self.client.headers))
        assert (again.get("/v1/experiments/shop").json(), results(again)) == shown
        self.client = again

    def change_arms(self, turn: int) -> None:
        kind, changes = self.luck.random(), dict[str, Any]()
        if kind < 0.4:
            changes["add_arms"] = [f"arm {turn}"]
        elif kind < 0.7 and len(self.live) > 1:
            changes["retire_arms"] = [self.luck.choice(self.live)]
        else:
            chosen = self.luck.sample(self.live, self.luck.randrange(len(self.live)))
            changes["shares"] = {label: 0.5 / len(self.live) for label in chosen}
        answer = self.client.patch("/v1/experiments/shop", json=changes)
        assert answer.status_code == 200, answer.text
        for label in changes.get("retire_arms", ()):
            self.live.remove(label)
            self.gone.append(label)
        self.live += changes.get("add_arms", ())
        assert set(answer.json()["retired_arms"]) == set(self.gone)

    def refuse(self) -> None:
        """Bad requests change nothing."""
        before = self.client.get("/v1/experiments/shop").json()
        for changes in (
            {"add_arms": ["bad", "plain"]},  # which was there at the start
            {"retire_arms": [*self.live]},
            {"add_arms": ["bad"], "shares": {"bad": 1.5}},
        ):
            answer = self.client.patch("/v1/experiments/shop", json=changes)
            assert answer.status_code == 422, (changes, answer.text)
        asked = {"available": [*self.live, "bad"]}
        way = "/v1/experiments/shop/decisions"
        assert self.client.post(way, json=asked).status_code == 422
        assert self.client.get("/v1/experiments/shop").json() == before

    def decide(self) -> None:
        asked: dict[str, Any] = {"count": self.luck.choice([1, 2, 9])}
        if self.luck.random() < 0.3:
            asked["available"] = self.luck.sample(self.live, self.luck.randint(1, len(self.live)))
        answer = self.client.post("/v1/experiments/shop/decisions", json=asked)
        made = answer.json()["decisions"]
        assert {each["label"] for each in made} <= set(asked.get("available", self.live))
        self.waiting += made

    def tell(self) -> None:
        """Late, in any order; some never. Each reward is sent twice."""
        keep = self.luck.choice([0, 5, 30])
        while len(self.waiting) > keep:
            decision = self.waiting.pop(self.luck.randrange(len(self.waiting)))
            if self.luck.random() < 0.1:
                continue
            steps = self.luck.randrange(1, STEPS)
            way = f"/v1/decisions/{decision['decision_id']}/reward"
            answers = [self.client.put(way, json={"value": steps / STEPS}) for _ in range(2)]
            assert {answer.status_code for answer in answers} <= {200, 410}
            if answers[0].status_code == 200:  # in time
                self.told[decision["arm"], self.batch_of(decision)].append(steps)

    def batch_of(self, decision: dict[str, Any]) -> int:
        with self.service.storage.engine.connect() as connection:
            query = "SELECT phase FROM decisions WHERE id = ?"
            row = connection.exec_driver_sql(query, (decision["decision_id"],)).first()
        assert row is not None
        return int(row[0])

    def pass_time(self, seconds: float) -> None:
        self.service.clock._start += seconds


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
@pytest.mark.parametrize(
    "policy",
    [
        {"parameters": {"epsilon": 5.0, "first_batch": 5}},
        {"parameters": {"epsilon": 5.0, "first_batch": 5}, "default_reward": 0.0},
        {
            "parameters": {"epsilon": 5.0, "first_batch": 5, "memory": "detect"},
            "prior": {"plain": [0.9, 40], "map": [0.3, 40]},
        },
        {"policy": "lazy-dp-ucb", "parameters": {"epsilon": 5.0}},
    ],
)
def test_each_reward_is_released_once(
    open_service: Callable[..., Service],
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    policy: dict[str, Any],
) -> None:
    released = Counter[int]()
    draw = batched.laplace_release

    def note(rng: Any, total: float, *terms: Any) -> float:
        released[round(total * STEPS)] += 1
        return draw(rng, total, *terms)

    monkeypatch.setattr(batched, "laplace_release", note)
    course = Course(open_service, seed, policy)
    for turn in range(40):
        step = course.luck.random()
        if step < 0.15:
            course.change_arms(turn)
        elif step < 0.2:
            course.restart()
        elif step < 0.25:
            course.refuse()
        elif step < 0.35:
            course.pass_time(course.luck.choice([60.0, 1_000.0, 4_000.0]))
        course.decide()
        course.tell()
    course.pass_time(4_000.0)
    course.decide()
    known = Counter(sum(steps) for (_, phase), steps in course.told.items() if phase > 0)
    assert sum(released.values()) > 5
    released.pop(0, None)  # of defaults alone
    assert not released - known
