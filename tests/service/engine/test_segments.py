"""Segments of a population: a person learns in one, so only the largest loss is spent."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from balaclava.service.engine.definition import ExperimentDefinition
from balaclava.service.engine.erasure import ErasePerson, persons_experiments
from balaclava.service.engine.jobs import CreateExperiment, MakeDecisions
from balaclava.service.problems import Problem
from balaclava.service.service import Service
from balaclava.service.store.ledger import Ledger

SHOP: dict[str, Any] = {
    "policy": "dp-imed",
    "parameters": {"epsilon": 1.0},
    "arms": ["plain", "map"],
    "reward_window": 60.0,
    "default_reward": 0.0,
    "rewards_per_person": 2,
    "population": "customers",
}
SEGMENTS: dict[str, str | None] = {"north": "north", "south": "south", "all": None}


def create(service: Service, **fields: Any) -> bool:
    definition = ExperimentDefinition.checked(**(SHOP | fields))
    return service.run_job(CreateExperiment(service.ledger, definition))


def create_all(service: Service) -> None:
    service.ledger.set_population("customers", 100.0, 0.0)
    for name, segment in SEGMENTS.items():
        create(service, name=name, segment=segment)


def learns(service: Service, name: str, person: str, **more: Any) -> list[bool]:
    answer = service.run_job(MakeDecisions(service.vault, name, person=person, **more))
    return [each["learns"] for each in json.loads(answer)["decisions"]]


def spent(service: Service) -> float:
    return service.ledger.budgets()["customers"].spent_epsilon


def test_a_person_learns_in_one_segment(
    database: str, open_service: Callable[..., Service]
) -> None:
    service = open_service(database)
    create_all(service)
    assert learns(service, "all", "ann") == [True]  # it is in no segment, and decides none
    assert learns(service, "south", "ann") == [True]
    assert learns(service, "north", "ann", count=2) == [False, False]
    assert learns(service, "south", "ann", count=2) == [True, False]
    assert learns(service, "north", "ben", sticky=True) == [True]
    assert learns(service, "south", "ben", sticky=True) == [False]
    assert learns(service, "all", "ben") == [True]
    with pytest.raises(Problem, match="none"):
        learns(service, "north", "eve", available=["none"])
    assert learns(service, "south", "eve") == [True]  # the refused request changed nothing


def test_the_largest_loss_of_a_segment_is_spent(open_service: Callable[..., Service]) -> None:
    service = open_service()
    create_all(service)
    assert spent(service) == 2.0 + 2.0  # "all", and either segment: two rewards at epsilon 1
    create(service, name="north again", segment="north")
    assert spent(service) == 2.0 + 4.0
    create(service, name="south again", segment="south")
    assert spent(service) == 2.0 + 4.0
    document = service.ledger.budgets()["customers"].document()
    assert document["segments"] == {"north": 4.0, "south": 4.0}
    service.ledger.require_intact()


def test_what_does_not_fit_is_refused(open_service: Callable[..., Service]) -> None:
    service = open_service()
    service.ledger.set_population("customers", 2.0, 0.0)
    create(service, name="north", segment="north")
    with pytest.raises(Problem, match="too small"):
        create(service, name="north again", segment="north")
    with pytest.raises(Problem, match="too small"):
        create(service, name="all")
    create(service, name="south", segment="south")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"population": None, "segment": "north"}, "give the population"),
        ({"deciders": 2, "segment": "north"}, "does not go with"),
    ],
)
def test_what_has_no_segments_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(Problem, match=why):
        ExperimentDefinition.checked(name="shop", **(SHOP | changes))


def test_a_clone_without_a_population_has_no_segment(
    open_service: Callable[..., Service],
) -> None:
    service = open_service()
    create_all(service)
    north = service.committed("north")
    assert north.clone({"name": "other", "population": None}).segment is None
    assert north.clone({"name": "other", "population": "customers"}).segment == "north"


def test_erasing_a_person_keeps_the_segment(open_service: Callable[..., Service]) -> None:
    service = open_service()
    create_all(service)
    assert learns(service, "north", "ann") == [True]
    digests = persons_experiments(service.storage, service.vault, "ann")
    answer = service.run_job(ErasePerson(service.ledger, digests))
    assert any("segment" in line for line in answer["kept"])
    assert learns(service, "south", "ann") == [False]


def test_after_a_restore_earlier_charges_add(tmp_path: Path) -> None:
    """A restored database forgets who joined which segment: a person may be in two."""
    ledger = Ledger.open(str(tmp_path / "ledger"))
    ledger.set_population("customers", 100.0, 0.0)
    ledger.charge("customers", "a", "1", 1.0, 0.0, segment="north")
    ledger.charge("customers", "b", "2", 3.0, 0.0, segment="south")
    assert ledger.budgets()["customers"].spent_epsilon == 3.0
    ledger.charge_restore("customers", "a", "1", 1.0, 0.0)
    assert ledger.budgets()["customers"].spent_epsilon == 5.0
    ledger.charge("customers", "c", "3", 1.0, 0.0, segment="north")
    ledger.charge("customers", "d", "4", 2.0, 0.0, segment="south")
    assert ledger.budgets()["customers"].spent_epsilon == 7.0
    ledger.note_restore()  # also one that lost no release
    assert ledger.budgets()["customers"].spent_epsilon == 8.0
    ledger.close()


def test_two_processes_put_a_person_into_one_segment(
    postgres: str, open_service: Callable[..., Service]
) -> None:
    services = open_service(postgres), open_service(postgres)
    create_all(services[0])
    learned: dict[str, set[str]] = {"north": set(), "south": set()}
    persons = [f"p{number}" for number in range(60)]

    def ask(service: Service, name: str, order: list[str]) -> None:
        for person in order:
            if learns(service, name, person) == [True]:
                learned[name].add(person)

    threads = [
        threading.Thread(target=ask, args=(services[0], "north", persons)),
        threading.Thread(target=ask, args=(services[1], "south", persons[::-1])),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert learned["north"] | learned["south"] == set(persons)
    assert not learned["north"] & learned["south"]
    assert learned["north"]
    assert learned["south"]
