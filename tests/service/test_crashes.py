"""kill -9 of a real server under load: nothing lost, nothing twice, nothing drawn again."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.server_process import (
    ARRIVAL,
    DEFINITIONS,
    WINDOWS,
    Load,
    Server,
    keyless_settings,
)

pytestmark = pytest.mark.crash


def check_lives(folder: Path, database: str | None, kills: int) -> None:
    server = Server(keyless_settings(folder, database))
    server.start()
    load = Load(server.address)
    with httpx.Client(base_url=server.address, timeout=60) as client:
        client.put("/v1/populations/us", json={"epsilon": 100.0})
        for definition in DEFINITIONS:
            assert client.post("/v1/experiments", json=definition).status_code == 201
        ledger = client.get("/v1/ledger").json()
    histories: dict[str, Any] = {}
    for _ in range(kills):
        load.run(random.uniform(0.0, 0.5), server.kill)
        server.start()
        with httpx.Client(base_url=server.address, timeout=60) as client:
            load.catch_up(client)
            assert load.faults == []
            check_counts(client, load)
            assert client.get("/v1/ledger").json() == ledger
            for name in (ARRIVAL, WINDOWS):
                history = client.get(f"/v1/experiments/{name}/history?points=2000").json()
                before = histories.get(name, {})
                for what, values in before.items():
                    assert history[what][: len(values)] == values
                histories[name] = history
    server.stop()
    assert len(load.releases) > kills  # so that there was something to draw again


def check_counts(client: httpx.Client, load: Load) -> None:
    """Every decision once, every reward once, and every person as often as agreed."""
    for name in (ARRIVAL, WINDOWS):
        answers = {key: answer for key, answer in load.requests.items() if key[0] == name}
        decisions = [each for answer in answers.values() for each in answer["decisions"]]
        assert len({each["decision_id"] for each in decisions}) == len(decisions)
        results = client.get(f"/v1/experiments/{name}/results").json()
        assert results["decisions"] == len(decisions)
        learned = {each["decision_id"] for each in decisions if each["learns"]}
        rewarded = sorted(learned & load.rewarded[name])
        if name == ARRIVAL:
            assert results["windows"]["states"]["rewarded"] == len(rewarded)
            persons: dict[str, int] = {}
            for key, answer in answers.items():
                person = load.bodies[key]["person"]
                count = sum(each["learns"] for each in answer["decisions"])
                persons[person] = persons.get(person, 0) + count
            assert max(persons.values()) == 2
        for id in random.sample(rewarded, min(20, len(rewarded))):
            assert client.get(f"/v1/decisions/{id}").json()["state"] == "rewarded"


def test_three_kills(tmp_path: Path) -> None:
    check_lives(tmp_path, None, 3)


@pytest.mark.slow
def test_two_hundred_kills(tmp_path: Path) -> None:
    check_lives(tmp_path, None, 200)


@pytest.mark.slow
def test_two_hundred_kills_on_postgresql(tmp_path: Path, postgres: str) -> None:
    check_lives(tmp_path, postgres, 200)
