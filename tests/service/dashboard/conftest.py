"""A service with something to show, and a key of each role."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from balaclava.service.credentials import ROLES
from balaclava.service.engine.definition import ExperimentDefinition
from balaclava.service.engine.jobs import (
    CreateExperiment,
    CreateKey,
    MakeDecisions,
    ReceivedReward,
    RecordRewards,
)
from balaclava.service.service import Service

HOSTILE = "<script>alert(1)<script> & \"q\" 'x' 50% 日本"
ARMS = ["<b>bold</b>", "العربية", "אבג\u202eback", "x" * 90]
MARKUP = "<img src=x onerror=alert(1)>"


class FilledService:
    """A service, and the traffic that it gets."""

    def __init__(self, folder: Path, **more: Any) -> None:
        self.service = Service.open(str(folder / "service.db"), **more)
        self.keys = {role: self.new_key(role) for role in ROLES}

    def new_key(self, role: str) -> str:
        job = CreateKey(self.service.ledger, role, f"{role} {MARKUP}")  # type: ignore[arg-type]
        return str(self.service.run_job(job)["key"])

    def create(self, name: str, **changes: Any) -> None:
        fields: dict[str, Any] = {
            "name": name,
            "policy": "dp-imed",
            "parameters": {"epsilon": 1.0},
            "arms": ["text", "call", "map"],
            "reward_window": 3600.0,
            "default_reward": 0.0,
        }
        self.service.run_job(
            CreateExperiment(self.service.ledger, ExperimentDefinition.checked(**fields | changes))
        )

    def decide(self, name: str, count: int, person: str | None = None) -> list[dict[str, Any]]:
        job = MakeDecisions(self.service.vault, name, count, None, person)
        return list(json.loads(self.service.run_job(job))["decisions"])

    def reward(self, decisions: list[dict[str, Any]], best: int) -> None:
        """1 for the best arm and 0 for the others."""
        outcomes = [
            ReceivedReward(each["decision_id"], "reward", float(each["arm"] == best))
            for each in decisions
        ]
        self.service.run_job(RecordRewards(outcomes))

    def fill(self) -> None:
        """One experiment of each kind, two of them with releases."""
        self.service.ledger.set_population(f"all {MARKUP}", 3.0, 1e-6)
        self.create("window", purpose="Fewer missed visits")
        self.decide("window", 40)
        self.create("arrival", settle="arrival", default_reward=None)
        self.create(HOSTILE, settle="arrival", arms=ARMS, purpose=MARKUP, owner=MARKUP)
        self.create("many", settle="arrival", arms=[f"offer {i}" for i in range(64)])
        for _ in range(10):
            for name in ("arrival", HOSTILE, "many"):
                self.reward(self.decide(name, 50), best=1)
        self.create("single", policy="dp-ftpl-gauss", parameters={"epsilon": 0.5, "delta": 1e-6})
        self.create("new", population=f"all {MARKUP}")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FilledService]:
    """For the tests of one file, which do not disturb one another."""
    filled = FilledService(tmp_path_factory.mktemp("service"))
    filled.fill()
    yield filled
    if filled.service.writer.alive:
        filled.service.close()
