"""A year of the service on SQLite, its clock moved by hand: do disk and restart time stay flat?

    python benchmarks/service_year.py --decisions 10000000
    python benchmarks/service_year.py --decisions 10000000 --persons 100000

Decisions come evenly over the year, a thousand in a request, without persons. With `--persons` each
decision has a request of its own, with a request_id and one of so many returning persons, for each
of whom one row stays for good. Every tenth decision gets a reward. Nothing goes over HTTP: the
writer gets the same jobs. Prints a line a month.
"""

import argparse
import json
import random
import resource
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
    rewards_per_person=1_000,
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


def decide(service: Service, number: int, persons: int) -> list[str]:
    """Ids of the decisions of a step of the clock."""
    jobs = [MakeDecisions(service.vault, "shop", REQUEST, f"request {number}")]
    if persons:
        jobs = [
            MakeDecisions(
                service.vault, "shop", 1, f"{number} {n}", f"p{random.randrange(persons)}"
            )
            for n in range(REQUEST)
        ]
    answers = [service.writer.submit(job) for job in jobs]
    made = [each for answer in answers for each in json.loads(answer.result())["decisions"]]
    return [each["decision_id"] for each in made]


def memory() -> float:
    """Resident memory of this process, in megabytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--decisions", type=int, default=10_000_000)
    parser.add_argument("--persons", type=int, default=0)
    asked = parser.parse_args()
    requests = asked.decisions // REQUEST
    service_module.Clock = SetClock  # type: ignore[misc]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        service = Service.open(str(folder / "year.db"))
        service.run_job(CreateExperiment(service.ledger, SHOP))
        began = time.process_time()
        print("month   decisions       kept  disk MB  memory MB  restart s  processor s")
        for number in range(requests):
            SetClock.moment += YEAR / requests
            made = decide(service, number, asked.persons)
            received = [ReceivedReward(id, "reward", 1.0) for id in made[::10]]
            service.run_job(RecordRewards(received))
            month, before = (number + 1) * MONTHS // requests, number * MONTHS // requests
            if month > before:
                service.close()
                disk, start = size(folder), time.process_time()
                service = Service.open(str(folder / "year.db"))
                restart = time.process_time() - start
                with service.storage.reading() as connection:
                    kept = connection.exec_driver_sql("SELECT count(*) FROM decisions").scalar()
                seconds = time.process_time() - began
                total = (number + 1) * REQUEST
                print(
                    f"{month:5} {total:11,} {kept:10,} {disk:8.1f} {memory():10.0f} "
                    f"{restart:10.2f} {seconds:12.0f}",
                    flush=True,
                )
        service.close()


if __name__ == "__main__":
    main()
