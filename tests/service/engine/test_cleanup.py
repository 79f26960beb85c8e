"""Retention and erasure: what is deleted when, what stays, and what survives a restore."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from balaclava.frames import arm_slots
from balaclava.service.engine.changes import EditExperiment
from balaclava.service.engine.definition import ExperimentDefinition
from balaclava.service.engine.jobs import (
    CreateExperiment,
    MakeDecisions,
    ReceivedReward,
    RecordRewards,
    SetExperimentState,
)
from balaclava.service.problems import Problem
from balaclava.service.service import Service
from balaclava.service.store.schema import decisions, persons, requests, snapshots
from tests.service.manual_service import EmptyJob, ManualClock

DAY = 86_400.0
SHOP: dict[str, Any] = {
    "name": "shop",
    "policy": "dp-imed",
    "parameters": {"epsilon": 1.0},
    "arms": ["plain", "map"],
    "reward_window": 60.0,
    "default_reward": 0.0,
    "retention": DAY,
}


class Shop:
    """A service with a clock that the test moves, and one experiment."""

    def __init__(self, service: Service, clock: ManualClock) -> None:
        self.service, self.clock = service, clock

    def create(self, **changes: Any) -> None:
        definition = ExperimentDefinition.checked(**(SHOP | changes))
        self.service.run_job(CreateExperiment(self.service.ledger, definition))

    def decide(self, person: str | None = None, **more: Any) -> list[dict[str, Any]]:
        job = MakeDecisions(self.service.vault, "shop", person=person, **more)
        return list(json.loads(self.service.run_job(job))["decisions"])

    def reward(self, id: str, value: float = 1.0) -> Any:
        return self.service.run_job(RecordRewards([ReceivedReward(id, "reward", value)]))[0]

    def wait(self, seconds: float) -> None:
        self.clock.moment += seconds
        for _ in range(4):  # windows, then what is to be deleted
            self.service.writer._next_tick = 0.0
            self.service.run_job(EmptyJob())

    def erase(self, person: str) -> dict[str, Any]:
        return asyncio.run(self.service.erase(person, "by key test"))

    def rows(self) -> dict[str, int]:
        tables = {"decisions": decisions, "requests": requests, "persons": persons}
        with self.service.storage.reading() as connection:
            count = {
                name: connection.scalar(select(func.count()).select_from(table))
                for name, table in (tables | {"snapshots": snapshots}).items()
            }
            held = select(func.count()).where(decisions.c.value.is_not(None))
            return count | {"values": connection.scalar(held)}

    def sums(self) -> list[float]:
        state = self.service.committed("shop").runner.state
        return [float(each) for each in state.sums.sum(axis=1)]  # raw: of tests only


def test_old_decisions_go_and_history_and_persons_stay(shop: Shop) -> None:
    shop.create()
    made = [shop.decide(f"p{number}", request_id=f"r{number}")[0] for number in range(300)]
    shop.wait(DAY - 1)
    assert shop.rows()["decisions"] == 300
    before = shop.service.results("shop"), shop.service.history("shop")
    shop.wait(70.0)  # the clock ends the open batch
    shop.wait(130.0)
    rows = shop.rows()
    assert (rows["decisions"], rows["requests"], rows["persons"]) == (0, 0, 300)
    assert rows["snapshots"] > 0
    assert shop.service.history("shop") == before[1]
    assert shop.reward(made[0]["decision_id"]).status == 404
    assert not shop.decide("p0")[0]["learns"]
    assert shop.decide("new")[0]["learns"]
    state = shop.service.committed("shop")
    assert sum(state.counters.learning) == 301
    assert state.next_cleanup == pytest.approx(shop.clock.moment + DAY)


def test_a_batch_that_is_open_at_the_end_of_retention_is_released_then(shop: Shop) -> None:
    shop.create()
    shop.decide("ann")
    released = shop.service.committed("shop").runner.batches()
    shop.wait(DAY + 1)
    assert shop.service.committed("shop").runner.batches() == released + 1
    assert shop.rows()["decisions"] == 0


def test_open_windows_outlive_a_retention_that_ends_with_them(shop: Shop) -> None:
    shop.create(retention=60.0)
    (made,) = shop.decide("ann")
    shop.wait(59.0)
    assert shop.reward(made["decision_id"]) == {"recorded": True}
    shop.wait(3.0)
    shop.wait(60.0)
    assert shop.rows()["decisions"] == 0


def test_a_shorter_retention_deletes_at_once(shop: Shop) -> None:
    shop.create()
    shop.decide("ann", count=1)
    shop.wait(1_000.0)
    job = EditExperiment(shop.service.ledger, "shop", {"retention": 100.0})
    shop.service.run_job(job)
    shop.wait(1.0)
    assert shop.rows()["decisions"] == 0


def test_a_large_backlog_is_deleted_in_steps(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("balaclava.service.engine.cleanup.MOST_ROWS", 100)
    shop.create(policy="ucb1", parameters={}, default_reward=None)
    shop.decide(count=950)
    shop.wait(DAY + 61)
    assert 0 < shop.rows()["decisions"] < 950
    shop.wait(1.0)
    shop.wait(1.0)
    assert shop.rows()["decisions"] == 0


def test_deletion_keeps_up_with_large_requests(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 4,000 rows a second were deleted, and 28,000 decisions a second can be made."""
    monkeypatch.setattr("balaclava.service.engine.cleanup.MOST_ROWS", 100)
    arrival = {"policy": "ucb1", "parameters": {}, "default_reward": None}
    shop.create(reward_window=2.0, retention=5.0, **arrival)
    for _ in range(30):  # half seconds
        shop.decide(count=300)
        shop.clock.moment += 0.5
        shop.service.writer._next_tick = 0.0
        shop.service.run_job(EmptyJob())
    assert 10 * 300 <= shop.rows()["decisions"] <= 13 * 300


def test_held_rewards_go_when_their_batch_is_released(shop: Shop) -> None:
    shop.create(parameters={"epsilon": 8.0})
    for number in range(60):
        shop.reward(shop.decide(f"p{number}")[0]["decision_id"])
    shop.wait(61.0)
    runner = shop.service.committed("shop").runner
    unreleased = int((runner.state.sizes - runner.state.left)[runner.state.numbers > 0].sum())
    assert runner.batches() > 0
    assert shop.rows()["values"] <= unreleased < 60
    shop.service.run_job(SetExperimentState(shop.service.ledger, "shop", "finish"))
    shop.wait(1.0)
    assert shop.rows()["values"] == 0


def test_rewards_of_unnamed_decisions_are_not_held(shop: Shop) -> None:
    shop.create()
    shop.reward(shop.decide()[0]["decision_id"])
    assert shop.rows()["values"] == 1
    shop.wait(61.0)
    assert shop.rows()["values"] == 0


@pytest.mark.parametrize("after_window", [False, True])
def test_an_erased_reward_counts_as_missing(shop: Shop, after_window: bool) -> None:
    shop.create(parameters={"epsilon": 0.1})  # a batch is long: nothing is released
    made = {each: shop.decide(each, request_id=each)[0] for each in ("ann", "bob")}
    for each in made.values():
        shop.reward(each["decision_id"], 0.7)
    if after_window:
        shop.wait(61.0)
        assert sum(shop.sums()) == pytest.approx(1.4, abs=1e-6)
    document = shop.erase("ann")
    assert (document["experiments"], document["decisions"]) == (["shop"], 1)
    late = shop.reward(made["ann"]["decision_id"], 1.0)
    assert isinstance(late, Problem)
    assert late.status == 410
    shop.wait(61.0)
    alone = sum(shop.sums())
    assert alone == pytest.approx(0.7, abs=1e-6)
    state = shop.service.committed("shop").runner.state
    assert int((state.sizes - state.left)[state.numbers > 0].sum()) == 2  # both count
    with shop.service.storage.reading() as connection:
        tags = connection.execute(select(decisions.c.person, decisions.c.request)).all()
        assert sorted(map(tuple, tags), key=str).count((None, None)) == 1
    assert shop.service.decision(made["ann"]["decision_id"])["state"] == "erased"
    assert not shop.decide("ann")[0]["learns"]  # the cap stays
    assert "ann" not in json.dumps(shop.service.audit_trail(0, 100))


def test_a_sticky_answer_does_not_name_a_first_decision_that_retention_deleted(shop: Shop) -> None:
    shop.create(parameters={"epsilon": 0.1})
    (made,) = shop.decide("ann", sticky=True)
    shop.wait(DAY - 1.0)
    assert shop.decide("ann", sticky=True)[0]["first_decision_id"] == made["decision_id"]
    shop.wait(70.0)  # the clock ends the open batch
    shop.wait(130.0)
    assert shop.reward(made["decision_id"]).status == 404
    (later,) = shop.decide("ann", sticky=True)
    assert later["arm"] == made["arm"]
    assert "first_decision_id" not in later


def test_erasing_is_exact(shop: Shop) -> None:
    shop.create(parameters={"epsilon": 0.1})
    values = [0.1, 0.2, 0.3, 0.7, 1.0]
    for number, value in enumerate(values):
        shop.reward(shop.decide(f"p{number}")[0]["decision_id"], value)
    shop.wait(61.0)
    for number in range(len(values)):
        shop.erase(f"p{number}")
    assert shop.sums() == [0.0, 0.0]
    assert shop.rows()["values"] == 0


def test_erasing_gives_up_an_open_decision_where_batches_settle_by_arrival(shop: Shop) -> None:
    shop.create(default_reward=None)
    (made,) = shop.decide("ann", sticky=True)
    shop.erase("ann")
    assert shop.service.committed("shop").counters.given_up == 1
    assert shop.reward(made["decision_id"]).status == 410
    shop.wait(61.0)
    with shop.service.storage.reading() as connection:
        assert connection.execute(select(persons.c.arm, persons.c.decision)).one() == (None, None)
    assumptions = shop.service.privacy("shop")["guarantee"]["assumptions"]
    assert any("erased" in each for each in assumptions)


def test_erasing_someone_unknown_answers_the_same_words(shop: Shop) -> None:
    shop.create()
    shop.decide("ann")
    answer, nobody = shop.erase("ann"), shop.erase("eve")
    assert (nobody["experiments"], nobody["decisions"]) == ([], 0)
    assert nobody["kept"] == answer["kept"]
    assert nobody["erased"] == answer["erased"]
    assert shop.erase("ann")["decisions"] == 0


def test_a_restored_database_is_erased_again(
    open_service: Callable[..., Service], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    monkeypatch.setattr("balaclava.service.service.Clock", lambda: clock)
    shop = Shop(open_service(), clock)
    shop.create(parameters={"epsilon": 0.1})
    for person in ("ann", "bob"):
        shop.reward(shop.decide(person)[0]["decision_id"])
    shop.service.close()
    shutil.copy(tmp_path / "service.db", tmp_path / "copy.db")
    shop = Shop(open_service(), clock)
    shop.erase("ann")
    shop.service.close()
    shutil.copy(tmp_path / "copy.db", tmp_path / "service.db")
    (tmp_path / "service.db-wal").unlink(missing_ok=True)
    shop = Shop(open_service(restored=True), clock)
    assert shop.rows()["values"] == 1
    shop.wait(61.0)
    assert sum(shop.sums()) == 1.0
    shop.service.close()
    shop = Shop(open_service(), clock)  # not again: decisions made since are not erased
    assert shop.erase("ann")["decisions"] == 0


def test_a_file_gives_free_pages_back(
    open_service: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    monkeypatch.setattr("balaclava.service.service.Clock", lambda: clock)
    monkeypatch.setattr("balaclava.service.engine.cleanup._LEAST_FREE_PAGES", 10)
    shop = Shop(open_service(), clock)
    shop.create(policy="ucb1", parameters={}, default_reward=None)
    shop.decide(count=2_000)
    with shop.service.storage.reading() as connection:
        before = connection.exec_driver_sql("PRAGMA page_count").scalar()
    shop.wait(DAY + 61)
    shop.wait(61.0)
    with shop.service.storage.reading() as connection:
        assert connection.exec_driver_sql("PRAGMA page_count").scalar() < before / 2


@pytest.mark.parametrize(
    ("policy", "values"), [("dp-se", (0.7, 0.3, 0.1)), ("dp-even", (1.0, 1.0, 0.0))]
)
def test_an_erased_reward_counts_as_missing_in_an_epoch(
    shop: Shop, policy: str, values: tuple[float, ...]
) -> None:
    """dp-even rounds at random: a reward strictly between 0 and 1 cannot be taken out of it."""
    shop.create(policy=policy, parameters={"epsilon": 0.5, "horizon": 1_000})
    for person, value in zip(("ann", "bob", "cid"), values, strict=True):
        shop.reward(shop.decide(person)[0]["decision_id"], value)
    shop.wait(61.0)

    def epochs() -> Any:
        return arm_slots.find_epochs(shop.service.committed("shop").runner.state)

    before = epochs()
    assert float(before.sums.sum()) == pytest.approx(sum(values), abs=1e-5)  # raw: of tests only
    shop.erase("ann")
    after = epochs()
    assert float(after.sums.sum()) == pytest.approx(sum(values[1:]), abs=1e-5)
    assert after.rewards_in_epoch.tolist() == before.rewards_in_epoch.tolist()
    assert after.left.tolist() == before.left.tolist()
    assert shop.rows()["values"] == 2
    for person in ("bob", "cid"):
        shop.erase(person)
    assert float(epochs().sums.sum()) == 0.0
