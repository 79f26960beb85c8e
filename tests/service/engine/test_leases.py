"""Several processes decide for one experiment on PostgreSQL: nothing twice, nothing lost."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import func, select

from balaclava.service import start_checks
from balaclava.service.engine.changes import EditExperiment
from balaclava.service.engine.definition import ExperimentDefinition
from balaclava.service.engine.erasure import ErasePerson
from balaclava.service.engine.jobs import (
    CreateExperiment,
    MakeDecisions,
    ReceivedReward,
    RecordRewards,
    SetExperimentState,
)
from balaclava.service.problems import Problem
from balaclava.service.service import Service
from balaclava.service.store.schema import decisions, leases, persons
from tests.service.manual_service import EmptyJob, ManualClock

# Sums of rewards are released almost without noise, so that a test can count them.
SHOP: dict[str, Any] = {
    "name": "shop",
    "policy": "dp-imed",
    "parameters": {"epsilon": 1e6, "first_batch": 400},
    "arms": ["plain", "map"],
    "reward_window": 60.0,
    "default_reward": 0.0,
    "deciders": 2,
}


GUARDRAIL = {"metric": "errors", "epsilon": 1.0, "range": [0, 1], "limit": 0.2, "serve": "plain"}


class Shops:
    """Two processes' services on one database, and the clock of both."""

    def __init__(self, one: Service, other: Service, clock: ManualClock) -> None:
        self.both, self.clock = (one, other), clock

    def create(self, **changes: Any) -> None:
        definition = ExperimentDefinition.checked(**(SHOP | changes))
        self.both[0].run_job(CreateExperiment(self.both[0].ledger, definition))

    def decide(self, at: int, person: str | None = None, **more: Any) -> list[dict[str, Any]]:
        job = MakeDecisions(self.both[at].vault, "shop", person=person, **more)
        return list(json.loads(self.both[at].run_job(job))["decisions"])

    def reward(self, at: int, decision: dict[str, Any], value: float = 1.0) -> Any:
        received = ReceivedReward(decision["decision_id"], "reward", value)
        return self.both[at].run_job(RecordRewards([received]))[0]

    def wait(self, seconds: float) -> None:
        """Let time pass, and both processes notice."""
        self.clock.moment += seconds
        for _ in range(3):
            for service in self.both:
                service.writer._next_tick = 0.0
                service.run_job(EmptyJob())

    def count(self, table: Any, *where: Any) -> int:
        with self.both[0].storage.reading() as connection:
            return int(connection.scalar(select(func.count()).select_from(table).where(*where)))

    def slots(self, at: int) -> int:
        """Unused slots of a process, of leases that are not over."""
        book = self.both[at].writer._leases
        return sum(lease.left(self.clock.moment) for lease in book.all_leases())

    def fill(self) -> None:
        """Let both processes hold slots."""
        while not (self.slots(0) and self.slots(1)):
            for at in (0, 1):
                self.decide(at)

    @property
    def state(self) -> Any:
        return self.both[0].committed("shop")


@pytest.fixture
def shops(
    postgres: str, open_service: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> Shops:
    clock = ManualClock()
    monkeypatch.setattr("balaclava.service.service.Clock", lambda: clock)
    return Shops(open_service(postgres), open_service(postgres), clock)


def test_both_processes_decide_and_each_reward_is_in_one_release(shops: Shops) -> None:
    shops.create()
    made, rewards = [], Counter[int]()
    for number in range(240):
        made += shops.decide(number % 2, count=10)
        assert shops.reward((number + 1) % 2, made[-1]) == {"recorded": True}
        rewards[made[-1]["arm"]] += 1
        if number % 20 == 0:
            shops.clock.moment += 4.0
    shops.wait(70.0)
    shops.wait(70.0)
    assert len({each["decision_id"] for each in made}) == 2_400
    assert shops.count(leases) == 0
    state = shops.state
    assert state.counters.decisions == [
        sum(each["arm"] == arm for each in made) for arm in range(2)
    ]
    pools = state.runner.state
    open_sums = pools.sums.sum(axis=1)
    for arm in range(2):
        total = float(pools.pooled[arm] * pools.rewards[arm] + open_sums[arm])
        assert total == pytest.approx(rewards[arm], abs=0.01)
    expired = state.counters.rounds - 2_400
    assert 0 <= expired < 400
    assert not list(pools.faults(state.counters.rounds))


def test_most_decisions_need_no_row_of_the_experiment(shops: Shops) -> None:
    """Once leases have many slots: the version counts commits that changed the row."""
    shops.create()
    shops.fill()
    before = shops.state.version
    for number in range(100):
        shops.decide(number % 2)
    assert shops.state.version - before < 20


def test_a_lease_is_no_longer_than_the_traffic_needs(shops: Shops) -> None:
    """With large batches and few requests most slots expired: 10,131 for 120 decisions."""
    shops.create(parameters={"epsilon": 1e6, "first_batch": 4_000})
    for number in range(120):
        shops.decide(number % 2)
        shops.clock.moment += 1.0
    shops.wait(100.0)
    counters = shops.state.counters
    assert sum(counters.learning) == 120
    assert counters.rounds - 120 <= 60
    for _ in range(10):  # further apart than a term
        shops.decide(0)
        shops.clock.moment += 10.0
    assert shops.state.counters.rounds == counters.rounds + 10


def test_a_lease_grows_with_the_traffic(shops: Shops) -> None:
    shops.create(parameters={"epsilon": 1e6, "first_batch": 16_000})
    for _ in range(900):
        shops.decide(0)
    assert shops.slots(0) + shops.state.counters.rounds >= 900
    assert shops.count(leases) <= 2
    assert shops.state.version <= 30  # commits of the row


def test_a_person_learns_as_often_as_agreed_in_all_processes(shops: Shops) -> None:
    shops.create(rewards_per_person=3)
    shops.fill()
    made = [shops.decide(at % 2, "ann")[0]["learns"] for at in range(8)]
    assert made == 3 * [True] + 5 * [False]
    many = shops.decide(0, "bob", count=5) + shops.decide(1, "bob", count=5)
    assert sum(each["learns"] for each in many) == 3
    shops.wait(70.0)
    assert sum(shops.state.counters.decisions) - shops.count(decisions) == 0


def test_a_sticky_person_keeps_the_arm_in_all_processes(shops: Shops) -> None:
    shops.create(rewards_per_person=5)
    shops.fill()
    for person in ("ann", "bob", "eve"):
        made = [shops.decide(at % 2, person, sticky=True)[0] for at in range(6)]
        assert len({each["arm"] for each in made}) == 1
        assert [each["learns"] for each in made] == [True] + 5 * [False]
        assert {each["first_decision_id"] for each in made} == {made[0]["decision_id"]}


def test_a_repeated_request_gets_the_same_decisions_everywhere(shops: Shops) -> None:
    shops.create()
    shops.fill()
    first = shops.decide(0, "ann", request_id="r", count=3)
    assert shops.decide(1, "ann", request_id="r", count=3) == first
    assert shops.decide(0, "ann", request_id="r", count=3) == first
    with pytest.raises(Problem, match="belongs to another request"):
        shops.decide(1, "bob", request_id="r", count=3)


@pytest.mark.parametrize("verb", ["pause", "finish"])
def test_what_stops_an_experiment_stops_all_leases(shops: Shops, verb: str) -> None:
    shops.create()
    shops.fill()
    one = shops.both[0]
    one.run_job(SetExperimentState(one.ledger, "shop", verb))
    assert shops.count(leases) == 0
    for at in (1, 0):
        if verb == "pause":
            with pytest.raises(Problem, match="paused"):
                shops.decide(at)
        else:
            assert not shops.decide(at)[0]["learns"]


def test_finish_releases_the_decisions_of_all_leases_once(shops: Shops) -> None:
    shops.create()
    shops.fill()
    made = [shops.decide(at % 2)[0] for at in range(60)]
    for at, each in enumerate(made):
        shops.reward(at % 2, each, float(each["arm"]))
    before = sum(shops.state.counters.learning)
    one = shops.both[0]
    one.run_job(SetExperimentState(one.ledger, "shop", "finish"))
    assert shops.reward(1, made[-1]) == {"recorded": True}
    shops.wait(70.0)
    shops.wait(70.0)
    pools, learning = shops.state.runner.state, sum(shops.state.counters.learning)
    assert learning >= before
    assert sum(pools.rewards) == learning
    total = float(pools.pooled[1] * pools.rewards[1])
    assert total == pytest.approx(sum(each["arm"] for each in made), abs=0.01)
    assert not pools.numbers.any()


def test_a_retired_arm_is_offered_by_no_lease(shops: Shops) -> None:
    shops.create()
    shops.fill()
    one = shops.both[0]
    one.run_job(EditExperiment(one.ledger, "shop", {"retire_arms": ["plain"]}))
    made = [shops.decide(at % 2)[0]["label"] for at in range(30)]
    assert set(made) == {"map"}
    assert shops.decide(1, available=["map"])[0]["label"] == "map"


def test_slots_of_a_process_that_died_expire_and_make_batches_smaller(shops: Shops) -> None:
    shops.create()
    shops.fill()
    lost = shops.slots(0) + shops.slots(1)
    for service in shops.both:
        service.writer._leases.by_name.clear()  # as after a restart
        service.writer._leases.by_id.clear()
    made = shops.count(decisions)
    shops.wait(10.0)
    assert shops.count(leases) == 0
    counters = shops.state.counters
    assert (counters.rounds, counters.leased) == (made + lost, 0)
    shops.wait(70.0)
    assert shops.state.counters.closed == made + lost
    assert not list(shops.state.runner.state.faults(made + lost))


def test_returned_slots_are_settled_at_once(shops: Shops) -> None:
    shops.create()
    shops.fill()
    shops.both[0].writer.stop()
    assert shops.count(leases, leases.c.ends == 0.0) > 0
    shops.both = (shops.both[1],)  # the other one lives
    shops.wait(0.0)
    assert shops.count(leases, leases.c.ends == 0.0) == 0


def test_an_expired_lease_cannot_be_used(shops: Shops) -> None:
    """The owner settles it while its holder still believes in it."""
    shops.create()
    shops.fill()
    one = shops.both[0]
    before = shops.state.counters
    with one.storage.writing() as connection:
        connection.execute(leases.update().values(ends=0.0))
    one.writer._next_tick = 0.0
    one.run_job(EmptyJob())
    assert shops.slots(1) > 0
    made = [shops.decide(1)[0] for _ in range(3)]
    assert len({each["decision_id"] for each in made}) == 3
    with one.storage.reading() as connection:
        rounds = connection.scalars(select(decisions.c.round)).all()
    assert len(set(rounds)) == len(rounds)  # a slot that expired was not used
    assert min(sorted(rounds)[-3:]) > before.rounds


def test_a_reward_at_the_end_of_its_window_counts_or_is_refused(shops: Shops) -> None:
    """The window of a slot begins when its lease ends; both processes close it once."""
    shops.create()
    shops.fill()
    decision = shops.decide(0)[0]
    shops.clock.moment += 60.0
    assert shops.reward(1, decision) == {"recorded": True}
    assert shops.reward(0, decision, 0.0) == {"recorded": True}  # it counts once
    with shops.both[0].storage.reading() as connection:
        mine = decisions.c.id == decision["decision_id"]
        assert connection.scalar(select(decisions.c.value).where(mine)) == 1.0
    shops.wait(5.1)
    late = shops.reward(1, decision)
    assert (late.status, shops.reward(0, {"decision_id": "A" * 22}).status) == (410, 404)


def test_what_another_process_closed_is_over_here_too(shops: Shops) -> None:
    """A process whose clock is behind must not acknowledge what no batch will hold."""
    shops.create()
    shops.fill()
    decision = shops.decide(0)[0]
    shops.wait(66.0)
    shops.clock.moment -= 66.0
    assert shops.reward(1, decision).status == 410


def test_erasing_a_person_reaches_leased_decisions(shops: Shops) -> None:
    shops.create(rewards_per_person=9)
    shops.fill()
    made = [shops.decide(at % 2, "ann", request_id=f"r{at}")[0] for at in range(4)]
    shops.reward(0, made[0])
    one = shops.both[0]
    digest = one.vault.person_digest("shop", "ann")
    answer = one.run_job(ErasePerson(one.ledger, {"shop": digest}))
    assert answer["decisions"] == 4
    assert [shops.reward(1, each).status for each in made] == 4 * [410]
    assert shops.count(decisions, decisions.c.person.is_not(None)) == 0
    assert shops.count(persons) == 1  # its limit stays


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"settle": "arrival"}, "needs settle='window'"),
        ({"guardrails": [GUARDRAIL]}, "does not go with guardrails"),
        ({"policy": "dp-se", "parameters": {"epsilon": 1.0, "horizon": 1_000}}, "cannot be leased"),
    ],
)
def test_what_cannot_be_leased_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(Problem, match=why):
        ExperimentDefinition.checked(**(SHOP | changes))


def test_sqlite_has_one_process(open_service: Callable[..., Service]) -> None:
    service = open_service()
    with pytest.raises(Problem, match="needs PostgreSQL"):
        service.run_job(CreateExperiment(service.ledger, ExperimentDefinition.checked(**SHOP)))
    plain = ExperimentDefinition.checked(**(SHOP | {"deciders": 1}))
    assert "deciders" not in plain.json
    assert service.run_job(CreateExperiment(service.ledger, plain))


def test_a_process_starts_while_another_one_commits(
    postgres: str, open_service: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its look at the database and its look at the ledger."""
    first = open_service(postgres)
    plain = ExperimentDefinition.checked(**(SHOP | {"deciders": 1}))
    first.run_job(CreateExperiment(first.ledger, plain))
    compare = start_checks.compare

    def slow_compare(*arguments: Any) -> Any:
        comparison = compare(*arguments)
        first.run_job(MakeDecisions(first.vault, "shop"))
        return comparison

    monkeypatch.setattr(start_checks, "compare", slow_compare)
    second = open_service(postgres)
    assert json.loads(second.run_job(MakeDecisions(second.vault, "shop")))["decisions"]
