"""Databases that an older version wrote: opened, continued, and displayed as they were.

`old_databases/` holds one archive per schema: database, ledger, secret key, and `displayed.json`,
everything that the version which wrote them displayed.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from balaclava.service.engine.jobs import MakeDecisions, ReceivedReward, RecordRewards
from balaclava.service.problems import Problem
from balaclava.service.service import Service

ARCHIVES = sorted((Path(__file__).parent / "old_databases").glob("*.tar.xz"))
# Prose, which may be reworded, and parameters, whose values may have got better names.
REWORDED = {"sentence", "note", "explanation", "neighbours", "not_covered", "assumptions"}
REWORDED |= {"parameters", "condition", "missing"}
REWORDED |= {"remaining", "may_stop", "overspent", "outside"}  # newer than the databases
REWORDED |= {"retention", "archived", "retired_arms", "retired", "shares", "drift", "deciders"}
REWORDED |= {"served_arm", "features", "guardrails", "breaker", "exposures", "targeting"}
REWORDED |= {"sample_ratio", "prior", "same_means", "held_out", "releases", "values"}
REWORDED |= {"aggregators", "rewards_apart", "segment", "segments", "differences"}


def comparable(document: Any) -> Any:
    """A document without its prose."""
    if isinstance(document, dict):
        return {name: comparable(value) for name, value in document.items() if name not in REWORDED}
    if isinstance(document, list):
        return [comparable(each) for each in document]
    return document


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name.partition(".")[0])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Service, dict[str, Any]]]:
    """The service on a copy of an old database, and what was displayed of it."""
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    service = Service.open(str(tmp_path / "service.db"), accept_clock=True)
    yield service, json.loads((tmp_path / "displayed.json").read_text())
    service.close()


def decide(service: Service, name: str, count: int, **more: Any) -> list[dict[str, Any]]:
    job = MakeDecisions(service.vault, name, count, more.get("request_id"), more.get("person"))
    return list(json.loads(service.run_job(job))["decisions"])


def test_an_old_database_displays_what_it_displayed(old: Any) -> None:
    service, displayed = old
    assert comparable(service.experiments()) == comparable(displayed["experiments"])
    assert comparable(service.ledger_document()) == comparable(displayed["ledger"])
    for name in displayed["results"]:
        assert comparable(service.results(name)) == comparable(displayed["results"][name])
        assert comparable(service.privacy(name)) == comparable(displayed["privacy"][name])
        assert service.history(name) == displayed["history"][name]
    assert service.check_key(displayed["key"]).role == "admin"


def test_an_old_database_continues(old: Any) -> None:
    service, displayed = old
    assert [service.decision(each["decision_id"])["state"] for each in displayed["open"]] == (
        ["open"] * 5
    )
    states = [service.decision(each["decision_id"])["state"] for each in displayed["waiting"]]
    assert states == ["rewarded"] * 20 + ["open"] * 20
    late = [ReceivedReward(each["decision_id"], "reward", 1.0) for each in displayed["open"]]
    assert service.run_job(RecordRewards(late)) == [{"recorded": True}] * 5
    assert service.results("arrival")["windows"]["states"]["rewarded"] == 365
    repeated = decide(service, "persons", 3, request_id="the same", person="cid")
    assert repeated == displayed["same"]
    assert not decide(service, "persons", 1, person="ann")[0]["learns"]
    assert decide(service, "persons", 1, person="dan")[0]["learns"]
    assert not decide(service, "finished", 1)[0]["learns"]
    with pytest.raises(Problem, match="paused"):
        decide(service, "paused", 1)
    for name in displayed["results"]:
        if name == "paused":
            continue
        kind = "report" if name == "reports" else "reward"
        for number in range(30):
            (made,) = decide(service, name, 1, person=f"p{number}" if name == "persons" else None)
            received = ReceivedReward(made["decision_id"], kind, float(made["arm"] == 1))
            assert service.run_job(RecordRewards([received])) == [{"recorded": True}], name
        assert service.results(name)["decisions"] > displayed["results"][name]["decisions"]
