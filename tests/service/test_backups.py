"""Restored backups, lost ledgers, and processes that act at the same time."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from balaclava.privacy.randomness import SystemRandomness
from balaclava.service.engine import writer
from balaclava.service.engine.definition import ExperimentDefinition
from balaclava.service.engine.jobs import (
    CreateExperiment,
    CreateKey,
    MakeDecisions,
    NoteTime,
    ReceivedReward,
    RecordRewards,
    RevokeKey,
    SetExperimentState,
)
from balaclava.service.http.server import ServerSettings
from balaclava.service.problems import Problem, StartError
from balaclava.service.service import Service
from balaclava.service.store.ledger import Ledger
from balaclava.service.store.schema import decisions, experiments
from tests.service.manual_service import SHOP

Opener = Callable[..., Service]


def create(service: Service, **changes: Any) -> bool:
    return bool(
        service.run_job(
            CreateExperiment(service.ledger, ExperimentDefinition.checked(**SHOP | changes))
        )
    )


def decide(service: Service, count: int = 1) -> list[Any]:
    job = MakeDecisions(service.vault, "shop", count, person=secrets.token_hex(8))
    return list(json.loads(service.run_job(job))["decisions"])


def back_up(tmp_path: Path, name: str = "service.db") -> Callable[[], None]:
    """A copy of a file of the closed service; call it to put it back."""
    shutil.copy(tmp_path / name, tmp_path / f"{name} copy")

    def restore() -> None:
        for end in ("-wal", "-shm"):
            (tmp_path / f"{name}{end}").unlink(missing_ok=True)
        shutil.copy(tmp_path / f"{name} copy", tmp_path / name)

    return restore


def test_a_backup_is_refused_and_charged_each_time(open_service: Opener, tmp_path: Path) -> None:
    service = open_service()
    service.ledger.set_population("us", 100.0, 0.0)
    create(service, population="us")
    service.close()
    restore = back_up(tmp_path)
    for times in (1, 2):
        service = open_service()
        decide(service)
        service.close()
        restore()
        with pytest.raises(StartError, match="--restored"):
            open_service()
        for restored in (True, True, False):  # the second time nothing is behind
            service = open_service(restored=restored)
            privacy = service.privacy("shop")
            assert privacy["restored"] == times
            assert privacy["charged"]["epsilon"] == 4.0 * (1 + times)
            assert privacy["per_person"]["epsilon"] == 4.0 * (1 + times)
            assert service.ledger.budgets()["us"].spent_epsilon == 4.0 * (1 + times)
            service.close()


def test_an_experiment_that_a_backup_has_lost_is_charged_when_made_again(
    open_service: Opener, tmp_path: Path
) -> None:
    service = open_service()
    service.ledger.set_population("us", 9.0, 0.0)
    service.close()
    restore = back_up(tmp_path)
    for spent in (4.0, 8.0):
        service = open_service()
        assert create(service, population="us")
        assert service.ledger.budgets()["us"].spent_epsilon == spent
        decide(service)
        service.close()
        restore()
        with pytest.raises(StartError, match="--restored"):
            open_service()
        service = open_service(restored=True)
        assert service.ledger.budgets()["us"].spent_epsilon == spent  # nothing ran again yet
        service.close()
    service = open_service()
    with pytest.raises(Problem, match="too small"):
        create(service, population="us")


@pytest.mark.parametrize("fate", ["deleted", "restored"])
def test_a_ledger_that_forgot_is_refused(open_service: Opener, tmp_path: Path, fate: str) -> None:
    service = open_service()
    service.ledger.set_population("us", 100.0, 0.0)
    create(service, population="us")
    service.close()
    restore = back_up(tmp_path, "ledger.db")
    service = open_service()
    decide(service)
    service.close()
    if fate == "deleted":
        (tmp_path / "ledger.db").unlink()
    else:
        restore()
    with pytest.raises(StartError, match="ledger is behind"):
        open_service()
    with pytest.raises(StartError, match="ledger is behind"):
        open_service(restored=True)


def test_another_key_and_a_lost_one_are_refused(open_service: Opener, tmp_path: Path) -> None:
    open_service().close()
    key = (tmp_path / "key").read_bytes()
    assert (os.stat(tmp_path / "key").st_mode & 0o777, len(key)) == (0o600, 32)
    assert os.stat(tmp_path / "service.db").st_mode & 0o777 == 0o600
    for content, reason in ((b"o" * 32, "does not match"), (b"", "32 bytes"), (None, "restore")):
        (tmp_path / "key").unlink(missing_ok=True)
        if content is not None:
            (tmp_path / "key").write_bytes(content)
        with pytest.raises(StartError, match=reason):
            open_service()
        assert (tmp_path / "key").exists() == (content is not None)  # none is made in its place
    (tmp_path / "key").write_bytes(key)
    open_service()


def test_one_file_under_two_names(open_service: Opener, tmp_path: Path) -> None:
    open_service()
    (tmp_path / "link.db").symlink_to(tmp_path / "service.db")
    for name in (str(tmp_path / "link.db"), f"sqlite:///{tmp_path / 'service.db'}"):
        with pytest.raises(StartError, match="in use by another process"):
            open_service(name)
    with pytest.raises(StartError, match="give a file path"):
        open_service(f"sqlite:///file:{tmp_path / 'service.db'}?uri=true")


def test_a_ledger_lies_outside_the_database(open_service: Opener, database: str) -> None:
    with pytest.raises(StartError, match="must not share"):
        open_service(database, ledger=database)
    with pytest.raises(StartError, match="takes one worker"):
        ServerSettings(database="sqlite:///service.db", workers=2).checked()


def test_a_crash_between_charge_and_commit_charges_once(
    open_service: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = open_service()
    service.ledger.set_population("us", 4.0, 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(writer.UnitOfWork, "store", lambda self: 1 / 0)
        with pytest.raises(Problem, match="internal error"):
            create(service, population="us")
    assert service.experiments() == []
    assert service.ledger.budgets()["us"].spent_epsilon == 4.0
    service.close()
    service = open_service()  # nothing is behind: no answer left
    assert create(service, population="us")
    assert not create(service, population="us")
    assert service.ledger.budgets()["us"].spent_epsilon == 4.0


def test_made_and_used_in_one_commit_and_cut_off(
    open_service: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prepared commit that never happened must not look like a lost one."""
    service = open_service()
    prepare_creation = Ledger.prepare_creation
    noted: list[list[str]] = []

    def cut_off(self: Ledger, uids: list[str]) -> None:
        prepare_creation(self, uids)
        noted.append(uids)
        raise ZeroDivisionError

    monkeypatch.setattr(Ledger, "prepare_creation", cut_off)
    with service.writer._wake:  # both are taken up at once
        new = service.writer.submit(
            CreateExperiment(service.ledger, ExperimentDefinition.checked(**SHOP))
        )
        first = service.writer.submit(MakeDecisions(service.vault, "shop"))
    for future in (new, first):
        with pytest.raises(Problem, match="internal error"):
            future.result(30)
    assert len(noted) == 1
    monkeypatch.undo()
    service.close()
    service = open_service()
    assert create(service)


# What no release follows


@pytest.mark.parametrize("lost", ["a reward", "a key", "a revocation"])
def test_a_backup_without_a_lost_release_is_noticed(
    open_service: Opener, tmp_path: Path, lost: str
) -> None:
    """In window mode a reward changes no experiment, and a key never does."""
    service = open_service()
    create(service, reward_window=1e6)
    (decision,) = decide(service)
    reader = service.run_job(CreateKey(service.ledger, "read", "reader"))
    service.close()
    restore = back_up(tmp_path)
    service = open_service()
    if lost == "a reward":
        received = ReceivedReward(decision["decision_id"], "reward", 1.0)
        assert service.run_job(RecordRewards([received])) == [{"recorded": True}]
    elif lost == "a key":
        service.run_job(CreateKey(service.ledger, "read", "another"))
    else:
        service.run_job(RevokeKey(service.ledger, reader["id"]))
        assert service.check_key(reader["key"]) is None
    service.close()
    restore()
    with pytest.raises(StartError, match="--restored"):
        open_service()
    for restored in (True, False):
        service = open_service(restored=restored)
        assert service.privacy("shop")["restored"] == 0  # no release was lost
        known = service.check_key(reader["key"])
        assert (known is None) == (lost == "a revocation")
        revoked = {key["id"] for key in service.list_keys() if key["revoked"] is not None}
        assert revoked == ({reader["id"]} if lost == "a revocation" else set())
        events = [entry["event"] for entry in service.ledger.entries()]
        assert events.count("restored") == 1
        service.close()


def test_a_lost_commit_of_one_process_is_noticed(open_service: Opener, database: str) -> None:
    """On PostgreSQL each process counts its own: a lost reward of either is noticed."""
    services = [open_service(database)]
    if not services[0].storage.one_process:
        services.append(open_service(database))
    create(services[0], reward_window=1e6)
    ids = [decide(service)[0]["decision_id"] for service in services]
    with services[0].storage.reading() as connection:
        before = services[0].storage.commit_counters(connection)
    received = ReceivedReward(ids[-1], "reward", 1.0)
    assert services[-1].run_job(RecordRewards([received])) == [{"recorded": True}]
    with services[0].storage.writing() as connection:  # as a replica that lacks the last commit
        services[0].storage.set_commit_counters(connection, before)
        connection.execute(update(decisions).values(kind=None, value=None))
    with pytest.raises(Problem, match="start with --restored"):
        decide(services[-1])
    for service in services:
        service.close()
    with pytest.raises(StartError, match="--restored"):
        open_service(database)
    open_service(database, restored=True).close()
    service = open_service(database)
    assert service.run_job(RecordRewards([received])) == [{"recorded": True}]  # sent again
    assert service.privacy("shop")["restored"] == 0


def test_an_idle_service_is_not_taken_for_a_wrong_clock(
    manual_services: Callable[..., Any],
) -> None:
    manual = manual_services(SystemRandomness())
    manual.client.post("/v1/experiments", json=SHOP)
    for _ in range(50):  # days, without traffic
        manual.wait(86_400.0)
    manual.restart()
    assert manual.client.get("/v1/experiments").status_code == 200
    manual.close()
    manual.clock.moment += 40 * 86_400.0
    with pytest.raises(StartError, match="--accept-clock"):
        manual.open()
    manual.clock.moment -= 40 * 86_400.0
    manual.open()


def test_a_commit_is_in_the_ledger_before_anything_of_it_leaves(
    open_service: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database one commit behind its answers is noticed, also after a crash."""
    service = open_service()
    create(service)
    version = service.committed("shop").version
    service.close()
    restore = back_up(tmp_path)
    service = open_service()
    uid = service.committed("shop").definition.uid
    service.run_job(NoteTime())
    with monkeypatch.context() as patch:  # as if the ledger's disk were full
        patch.setattr(Ledger, "record_commits", lambda self, versions: _full())
        with pytest.raises(Problem, match="did not confirm"):
            decide(service)
        with pytest.raises(Problem, match="does not answer"):
            service.results("shop")  # nor is the commit displayed
    assert service.ledger.commit_counts()[uid].done == version
    assert service.results("shop")["decisions"] == 1
    assert service.ledger.commit_counts()[uid].done == version + 1
    crash(service)
    restore()
    with pytest.raises(StartError, match="--restored"):
        open_service()


def _full() -> None:
    raise sqlite3.OperationalError("database or disk is full")


def crash(service: Service) -> None:
    """Let go of the files without a last word to the ledger."""
    service.writer.stop()
    service.storage.close()


def test_a_crash_before_the_ledger_knows_is_not_a_restore(
    open_service: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = open_service()
    create(service)
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "record_commits", lambda self, versions: _full())
        with pytest.raises(Problem, match="did not confirm"):
            decide(service)
        crash(service)
    service = open_service()
    assert service.results("shop")["decisions"] == 1
    decide(service)
    assert service.privacy("shop")["restored"] == 0


def test_a_population_that_is_overspent_does_not_learn(
    open_service: Opener, tmp_path: Path
) -> None:
    service = open_service()
    service.ledger.set_population("us", 4.0, 0.0)
    create(service, population="us")
    service.close()
    restore = back_up(tmp_path)
    service = open_service()
    assert decide(service)[0]["learns"]
    service.close()
    restore()
    service = open_service(restored=True)
    assert not decide(service)[0]["learns"]
    assert service.ledger_document()["populations"][0]["overspent"]
    assert any("more than its total" in line for line in service.privacy("shop")["not_covered"])
    service.ledger.set_population("us", 8.0, 0.0)
    deadline = time.monotonic() + 10
    while not decide(service)[0]["learns"]:
        assert time.monotonic() < deadline


def test_decisions_on_a_population_name_the_person(open_service: Opener) -> None:
    service = open_service()
    service.ledger.set_population("us", 4.0, 0.0)
    create(service, population="us")
    with pytest.raises(Problem, match="as `person`") as refusal:
        service.run_job(MakeDecisions(service.vault, "shop", 3, "r"))
    assert refusal.value.status == 422
    assert service.experiment("shop")["decisions"] == 0
    service.run_job(SetExperimentState(service.ledger, "shop", "finish"))
    made = json.loads(service.run_job(MakeDecisions(service.vault, "shop")))["decisions"]
    assert [each["learns"] for each in made] == [False]  # nothing is learned: nobody is charged


def test_a_clock_far_ahead_is_refused(open_service: Opener, monkeypatch: Any) -> None:
    service = open_service()
    create(service, reward_window=1e6)
    decide(service)
    service.close()
    real = time.time
    monkeypatch.setattr("balaclava.service.engine.writer.time.time", lambda: real() + 3650 * 86_400)
    with pytest.raises(StartError, match="set the clock"):
        open_service()
    service = open_service(accept_clock=True)
    service.close()
    monkeypatch.undo()
    open_service()  # with the right clock again: the time goes on, with a warning


def test_two_processes_make_the_same_experiments(open_service: Opener, postgres: str) -> None:
    """The second process finds the experiment; a refused one costs nothing."""
    services = [open_service(postgres) for _ in range(2)]
    services[0].ledger.set_population("us", 1_000.0, 0.0)
    answers: list[Any] = []

    def make(service: Service, window: float) -> None:
        for number in range(10):
            fields = {"name": f"e{number}", "population": "us"}
            try:
                answers.append(create(service, **fields))
                answers.append(create(service, **fields, reward_window=window))
            except Problem as problem:
                answers.append(problem.status)

    threads = [threading.Thread(target=make, args=(s, 60.0 + i)) for i, s in enumerate(services)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, answers)) == sorted(["True"] * 10 + ["False"] * 10 + ["409"] * 20)
    assert services[0].ledger.budgets()["us"].spent_epsilon == 40.0


def test_two_processes_decide_for_one_person(open_service: Opener, postgres: str) -> None:
    services = [open_service(postgres) for _ in range(2)]
    create(services[0], rewards_per_person=5)
    made: list[Any] = []

    def ask(service: Service) -> None:
        for number in range(10):
            job = MakeDecisions(service.vault, "shop", 2, f"r{number}", "ann")
            made.extend(json.loads(service.run_job(job))["decisions"])

    threads = [threading.Thread(target=ask, args=(service,)) for service in services]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    different = {each["decision_id"]: each["learns"] for each in made}
    assert (len(made), len(different), sum(different.values())) == (40, 20, 5)
    assert services[0].experiment("shop")["decisions"] == 20
    open_service(postgres)  # a third may join while the others are at work


def test_a_database_restored_under_a_running_service(open_service: Opener, database: str) -> None:
    """As after a failover to a replica that lagged: nothing is released a second time unnoticed."""
    service = open_service(database)
    service.ledger.set_population("us", 100.0, 0.0)
    create(service, population="us")
    decide(service)
    with service.storage.reading() as connection:
        before = dict(connection.execute(select(experiments)).one()._mapping)
    for _ in range(3):
        decide(service)
    with service.storage.writing() as connection:
        connection.execute(update(experiments).values(before))
    for _ in range(2):
        with pytest.raises(Problem, match="start with --restored") as problem:
            decide(service)
        assert problem.value.status == 503
    assert service.experiment("shop")["decisions"] == 1
    service.close()
    with pytest.raises(StartError, match="--restored"):
        open_service(database)
    service = open_service(database, restored=True)
    assert service.privacy("shop")["restored"] == 1
    with service.storage.reading() as connection:  # above every version that there ever was
        assert connection.scalar(select(experiments.c.version)) > before["version"] + 3
    decide(service)
    assert service.experiment("shop")["decisions"] == 2
