"""A year of the service on SQLite, its clock moved by hand: do disk and restart time stay flat?

    python benchmarks/service_year.py --decisions 10000000

Decisions come evenly over the year, a thousand in a request, without persons: for each person one
row stays for good. Every tenth gets a reward. Prints a line a month.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

from balaclava.service import service as service_module
from balaclava.service.engine.definition import ExperimentDefinition
from balaclava.service.engine.jobs import (
    CreateExperiment,
    MakeDecisions,
    ReceivedReward,
    RecordRewards,
)
from balaclava.service.engine.writer import Clock
from balaclava.service.service import Service

YEAR, REQUEST, MONTHS = 365 * 86_400.0, 1_000, 12
SHOP = ExperimentDefinition.checked(
    name="shop",
    policy="dp-imed",
    parameters={"epsilon": 1.0},
    arms=["plain", "friendly", "map", "call"],
    reward_window=7 * 86_400.0,
    default_reward=0.0,
)


class SetClock(Clock):
    """Stands still until the benchmark moves it."""

    moment = 1_800_000_000.0

    def now(self) -> float:
        return SetClock.moment

    def catch_up(self, moment: float) -> None:
        SetClock.moment = max(SetClock.moment, moment)


def size(folder: Path) -> float:
    """Megabytes of the database and its log."""
    return sum(file.stat().st_size for file in folder.glob("year.db*")) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--decisions", type=int, default=10_000_000)
    requests = parser.parse_args().decisions // REQUEST
    service_module.Clock = SetClock  # type: ignore[misc]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        service = Service.open(str(folder / "year.db"))
        service.run_job(CreateExperiment(service.ledger, SHOP))
        began = time.perf_counter()
        print(f"{'month':>5} {'decisions':>11} {'kept':>10} {'MB':>8} {'restart s':>9} {'s':>7}")
        for number in range(requests):
            SetClock.moment += YEAR / requests
            job = MakeDecisions(service.vault, "shop", REQUEST, f"request {number}")
            made = json.loads(service.run_job(job))["decisions"]
            received = [ReceivedReward(each["decision_id"], "reward", 1.0) for each in made[::10]]
            service.run_job(RecordRewards(received))
            month, before = (number + 1) * MONTHS // requests, number * MONTHS // requests
            if month > before:
                service.close()
                disk, start = size(folder), time.perf_counter()
                service = Service.open(str(folder / "year.db"))
                restart = time.perf_counter() - start
                with service.storage.reading() as connection:
                    kept = connection.exec_driver_sql("SELECT count(*) FROM decisions").scalar()
                seconds = time.perf_counter() - began
                total = (number + 1) * REQUEST
                print(
                    f"{month:5} {total:11,} {kept:10,} {disk:8.1f} {restart:9.2f} {seconds:7.0f}",
                    flush=True,
                )
        service.close()


if __name__ == "__main__":
    main()
