"""A simulated year of one experiment with retention: rows, disk and restart, month by month.

    python benchmarks/service_retention.py                  # 2,000 decisions a day
    python benchmarks/service_retention.py --day 200 --days 90

The clock is simulated; the database, the ledger, the deletions and the restarts are real. Persons
and request ids are stored, 30 % of decisions get a reward, and the retention is the default: the
window of a day plus 30 days.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import balaclava.service.service as service_module
from balaclava.service.engine import jobs
from balaclava.service.engine.definition import ExperimentDefinition
from balaclava.service.engine.writer import Clock
from balaclava.service.service import Service

DAY, PERSONS, REWARDED, START = 86_400.0, 5_000, 0.3, 1.8e9


class SimulatedClock(Clock):
    """Stands still until it is moved."""

    moment = START

    def now(self) -> float:
        """The simulated time."""
        return self.moment

    def catch_up(self, moment: float) -> None:
        """Advance to a later time."""
        self.moment = max(self.moment, moment)


class Year:
    """The service, which is restarted, and its visitors."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.clock, self._rng = folder, SimulatedClock(), random.Random(1)
        service_module.Clock = lambda: self.clock  # type: ignore[assignment,misc]
        self.service = self.open()
        self.made = 0
        definition = ExperimentDefinition.checked(
            name="shop", policy="dp-imed", parameters={"epsilon": 1.0}, arms=list("abcd"),
            reward_window=DAY, default_reward=0.0, rewards_per_person=1_000,
        )  # fmt: skip
        self.service.run_job(jobs.CreateExperiment(self.service.ledger, definition))

    def open(self) -> Service:
        """Start the service."""
        paths = {name: str(self._folder / name) for name in ("ledger", "secrets")}
        return Service.open(str(self._folder / "shop.db"), accept_clock=True, **paths)

    def quarter(self, count: int) -> None:
        """Make decisions in tens, send rewards, and let six hours pass."""
        rewards, rng = [], self._rng
        for _ in range(count // 10):
            request, person = f"r{self.made}", f"p{rng.randrange(PERSONS)}"
            self.made += 10
            job = jobs.MakeDecisions(self.service.vault, "shop", 10, request, person)
            decisions: list[Any] = json.loads(self.service.run_job(job))["decisions"]
            rewards += [
                jobs.ReceivedReward(each["decision_id"], "reward", 1.0)
                for each in decisions
                if rng.random() < REWARDED
            ]
        self.service.run_job(jobs.RecordRewards(rewards))
        self.clock.moment += 0.25 * DAY
        for _ in range(3):  # ticks of the writer, with a transaction each
            self.service.writer._next_tick = 0.0
            self.service.run_job(jobs.NoteTime())

    def report(self, day: int) -> None:
        """Print rows and size, and restart."""
        with self.service.storage.reading() as connection:
            rows = connection.exec_driver_sql("SELECT count(*) FROM decisions").scalar()
        self.service.close()
        size = sum(file.stat().st_size for file in self._folder.glob("shop.db*"))
        began = time.process_time()
        self.service = self.open()
        self.service.run_job(jobs.MakeDecisions(self.service.vault, "shop"))
        cpu = time.process_time() - began
        print(
            f"day {day:>3}: {self.made:>9,} decisions made, {rows:>7,} rows, {size / 1e6:5.1f} MB, "
            f"restart and first decision {cpu:.2f} s of processor time",
            flush=True,
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--day", type=int, default=2_000, help="decisions a day")
    parser.add_argument("--days", type=int, default=365)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        year = Year(Path(folder))
        for day in range(1, asked.days + 1):
            for _ in range(4):
                year.quarter(asked.day // 4)
            if day % 30 == 5 or day == asked.days:
                year.report(day)
        year.service.close()


if __name__ == "__main__":
    main()
