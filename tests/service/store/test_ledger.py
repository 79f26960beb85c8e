"""The privacy ledger on SQLite and on PostgreSQL: charges, budgets, commit counts."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from sqlalchemy import text

from balaclava.service.problems import Problem, StartError
from balaclava.service.store.ledger import Ledger


def test_a_ledger_in_memory_is_refused() -> None:
    with pytest.raises(StartError, match="lost with the process"):
        Ledger.open(":memory:")


def test_the_log_of_a_ledger_stays_short(tmp_path: Path) -> None:
    """A ledger has no checkpointer: its commits checkpoint."""
    ledger = Ledger.open(str(tmp_path / "ledger"))
    with ledger._engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA wal_autocheckpoint").scalar()
    ledger.close()
    assert pages == 1_000


@pytest.fixture
def ledger(database: str):
    """An empty ledger."""
    opened = Ledger.open(database)
    yield opened
    opened.close()


def test_a_ledger_is_only_added_to(ledger: Ledger) -> None:
    ledger.set_population("patients", 1.0, 0.0)
    for statement in ("UPDATE entries SET epsilon = 0", "DELETE FROM entries"):
        with pytest.raises(Exception, match="append-only"), ledger._engine.begin() as connection:
            connection.execute(text(statement))
    assert len(ledger.entries()) == 1


def test_a_charge_that_does_not_fit_costs_nothing(ledger: Ledger) -> None:
    ledger.set_population("patients", 1.0, 1e-6)
    ledger.charge("patients", "first", "uid-1", 0.75, 0.0)
    for epsilon, delta in ((0.26, 0.0), (0.1, 2e-6)):
        with pytest.raises(Problem, match="too small") as refusal:
            ledger.charge("patients", "second", "uid-2", epsilon, delta)
        assert refusal.value.status == 409
    ledger.charge("patients", "second", "uid-2", 0.25, 1e-6)
    assert ledger.budgets()["patients"].document()["left_epsilon"] == 0.0


def test_what_is_spent_is_never_said_to_be_less(ledger: Ledger) -> None:
    ledger.set_population("patients", 1.0, 0.0)
    ledger.charge("patients", "first", "uid-1", 1 / 3, 0.0)
    with pytest.raises(Problem, match=r"spent \(0\.333334, 0\), needed \(0\.777778, 0\)"):
        ledger.charge("patients", "second", "uid-2", 7 / 9, 0.0)


def test_a_charge_is_made_once(ledger: Ledger) -> None:
    ledger.set_population("patients", 1.0, 0.0)
    for _ in range(3):
        ledger.charge("patients", "first", "uid-1", 0.5, 0.0)
    assert ledger.charged("uid-1") == (0.5, 0.0, 0)


def test_thirds_fit_into_a_whole(ledger: Ledger) -> None:
    ledger.set_population("patients", 0.3, 0.0)
    for number in range(3):
        ledger.charge("patients", f"{number}", f"uid-{number}", 0.1, 0.0)
    with pytest.raises(Problem, match="too small"):
        ledger.charge("patients", "more", "uid-more", 1e-9, 0.0)


def test_a_total_is_raised_and_never_lowered(ledger: Ledger) -> None:
    ledger.set_population("patients", 1.0, 0.0)
    assert ledger.set_population("patients", 2.0, 1e-6).epsilon == 2.0
    with pytest.raises(Problem, match="only be raised"):
        ledger.set_population("patients", 1.5, 1e-6)
    with pytest.raises(Problem, match="unknown population"):
        ledger.charge("nobody", "first", "uid-1", 0.1, 0.0)


def behind(ledger: Ledger, versions: dict[str, int]) -> list[str]:
    return [
        uid
        for uid, count in ledger.commit_counts().items()
        if versions.get(uid, 0) < count.required
    ]


def test_a_commit_that_is_missing_is_noticed(ledger: Ledger) -> None:
    ledger.prepare_creation(["a", "b"])
    assert behind(ledger, {}) == []  # cut off before the commit: no answer left
    ledger.record_commits({"a": 1, "b": 1})
    assert behind(ledger, {"a": 1, "b": 1}) == []
    assert behind(ledger, {"b": 1}) == ["a"]
    assert ledger.check_commits({"a": 2, "b": 1}) == {"a": 2}
    ledger.record_commits({"a": 2})
    ledger.record_commits({"a": 1})  # by a process that was overtaken
    assert behind(ledger, {"a": 1, "b": 1}) == ["a"]
    assert ledger.check_commits({"a": 2, "b": 1}) == {}
    with pytest.raises(Problem, match="behind its ledger"):
        ledger.check_commits({"a": 1, "b": 1})  # by a process that has a database of before
    ledger.observe("a", 1)  # which was displayed before
    ledger.observe("b", 2)
    assert ledger.check_commits({"a": 2, "b": 2}) == {}
    ledger.reset_commit_counts({"b": 1})
    ledger.reset_commit_counts({"a": 1})
    assert behind(ledger, {"a": 1, "b": 1}) == []


def test_a_charge_without_a_commit_can_be_voided(ledger: Ledger) -> None:
    ledger.set_population("patients", 1.0, 0.0)
    for name in ("never", "created"):
        ledger.charge("patients", name, f"uid-{name}", 0.5, 0.0)
    ledger.prepare_creation(["uid-never", "uid-created"])
    ledger.record_commits({"uid-created": 1})
    assert ledger.uncommitted_charges("patients") == {"uid-never": ("never", 0.5, 0.0)}
    ledger.void_charge("patients", "never", "uid-never", 0.5, 0.0)
    assert ledger.uncommitted_charges("patients") == {}
    assert ledger.budgets()["patients"].spent_epsilon == 0.5
    ledger.charge("patients", "never", "uid-never", 0.5, 0.0)  # created after all
    assert ledger.charged("uid-never") == (0.5, 0.0, 0)


def test_entries_of_keys_cost_nothing(ledger: Ledger) -> None:
    ledger.set_population("patients", 1.0, 0.0)
    ledger.charge("patients", "first", "uid", 0.5, 0.0)
    ledger.note("key revoked", None, "some-key", "by key another")
    ledger.note("pause", "first", None, "by key another")
    ledger.charge("patients", "first", "uid", 0.5, 0.0)  # not again
    assert ledger.budgets()["patients"].spent_epsilon == 0.5
    assert ledger.revoked_keys() == {"some-key"}


def test_two_processes_never_spend_more_than_a_total(ledger: Ledger, database: str) -> None:
    """Each has a connection of its own, and asks for more than there is left."""
    ledger.set_population("patients", 10.0, 0.0)
    other = Ledger.open(database)
    refusals: list[int] = []

    def spend(book: Ledger, name: str) -> None:
        for number in range(8):
            try:
                book.charge("patients", f"{name}{number}", f"uid-{name}{number}", 1.0, 0.0)
            except Problem as problem:
                refusals.append(problem.status)

    threads = [threading.Thread(target=spend, args=each) for each in ((ledger, "a"), (other, "b"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refusals == [409] * 6
    assert ledger.budgets()["patients"].spent_epsilon == 10.0
    other.close()


def test_a_release_made_elsewhere_is_charged_once_a_request(ledger: Ledger) -> None:
    ledger.set_population("customers", 1.0, 1e-6)
    ledger.charge("customers", "first", "uid-1", 0.25, 0.0)
    spring = 0.5, 0.0, "log of spring"
    for _ in range(2):  # the answer to the first request was lost
        assert ledger.charge_release("customers", "r1", spring, "eve").spent_epsilon == 0.75
    with pytest.raises(Problem, match="charged another release"):
        ledger.charge_release("customers", "r1", (0.25, 0.0, "log of spring"))
    for terms in (spring, (0.1, 1e-5, "log of summer")):
        with pytest.raises(Problem, match="too small"):
            ledger.charge_release("customers", "r2", terms)
    with pytest.raises(Problem, match="unknown population"):
        ledger.charge_release("nobody", "r3", spring)
    assert ledger.charge_release("customers", "r2", (0.25, 0.0, "again")).spent_epsilon == 1.0
    assert ledger.charge_release("customers", "r1", spring).spent_epsilon == 1.0
    assert ledger.uncommitted_charges("customers").keys() == {"uid-1"}  # releases are never voided
    assert [entry["note"] for entry in ledger.entries()[2:]] == ["log of spring", "again"]
    assert ledger.require_intact() == 4
