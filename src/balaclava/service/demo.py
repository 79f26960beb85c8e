"""`balaclava serve --demo`: a temporary service with simulated visitors over HTTP.

The server, its database, the client and the noise are real. Each visitor sees one of four pages,
and 3 to 8 in 100 buy. Purchases are reported seconds later, and one in ten reports is lost. A
visitor without a report counts as no purchase, so the released means are of reported purchases. The
policy, dp-top-two, plays to name the best page; at these rates that takes some 11,000 visitors.
"""

import asyncio
import contextlib
import itertools
import random
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import uvicorn

from balaclava.client import AsyncClient, ServiceDecision
from balaclava.errors import ServiceConflictError, ServiceError
from balaclava.service.http.app import create_app
from balaclava.service.http.middleware import is_loopback
from balaclava.service.http.server import ServerSettings, first_key, uvicorn_config

DEMO_EXPERIMENT = "landing-page"
PURCHASES = {"plain": 0.03, "photo": 0.04, "video": 0.05, "map": 0.08}  # share that buys
POLICY, PARAMETERS = "dp-top-two", {"epsilon": 1.0}
WINNER_AFTER = 11_000  # visitors until a winner is named, in half of the runs; tests simulate it
WINDOW = 2.0  # seconds in which a purchase may be reported
VISITORS = 200  # per second, at most
CONCURRENT_VISITORS = 20
REPORT_DELAY, LOST_SHARE = 0.5, 0.1  # mean delay of a report in seconds; share of lost reports
ABOUT = f"""\
Four pages, which sell to 3, 4, 5 and 8 % of simulated visitors; one report in ten is lost.
Naming the best page takes about {WINNER_AFTER:,} visitors: {WINNER_AFTER / VISITORS:.0f} s at \
{VISITORS} per second, which a busy machine
does not reach, and {WINNER_AFTER / 1_000:.0f} days in a shop with 1,000 visitors a day.
For your rates: balaclava plan --arms 4 --rate 0.05 --difference 0.03
Ctrl-C stops the demo and removes its files.
"""


def serve_demo(host: str, port: int, say: Callable[[str], None]) -> None:
    """Serve a temporary database to simulated visitors, until stopped."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that its files are removed
    with tempfile.TemporaryDirectory(prefix="balaclava-demo-") as folder:
        database = str(Path(folder) / "demo.db")
        settings = ServerSettings(
            database, host=host, port=port, keys=not is_loopback(host)
        ).checked()
        with settings.listener() as listener:
            service = settings.open()
            key = first_key(service) if settings.keys else None
            address = settings.address(listener.getsockname()[1])
            say(f"balaclava serves a demo at {address}/ : open it in a browser")
            if key is not None:
                say(f"admin key: {key}")
            say(ABOUT)
            visitors = Visitors(address, key, say)
            visitors.start()
            try:
                app = create_app(service, keys=settings.keys)
                uvicorn.Server(uvicorn_config(app, settings)).run(sockets=[listener])
            finally:
                visitors.stop()


class Visitors(threading.Thread):
    """A thread of simulated visitors."""

    def __init__(self, address: str, key: str | None, say: Callable[[str], None]) -> None:
        super().__init__(name="visitors", daemon=True)
        self._address, self._key, self._say = address, key, say
        self._loop = asyncio.new_event_loop()
        self._visits: asyncio.Task[None] | None = None
        self._purchases: set[asyncio.Task[None]] = set()  # not yet reported

    def run(self) -> None:
        self._visits = self._loop.create_task(self._visit())
        with contextlib.suppress(asyncio.CancelledError, ServiceError):
            self._loop.run_until_complete(self._visits)
        self._loop.close()

    def stop(self) -> None:
        if self._visits is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._visits.cancel)
        self.join()

    async def _visit(self) -> None:
        async with AsyncClient(self._address, self._key, deadline=30.0) as client:
            await client.create_experiment(
                DEMO_EXPERIMENT,
                POLICY,
                list(PURCHASES),
                parameters=PARAMETERS,
                reward_window=WINDOW,
                default_reward=0.0,
                owner="the demo",
                purpose="Which page sells best, without revealing who bought.",
            )
            try:
                queues = (self._queue(client, number) for number in range(CONCURRENT_VISITORS))
                await asyncio.gather(self._watch(client), *queues)
            finally:
                for task in self._purchases:
                    task.cancel()

    async def _queue(self, client: AsyncClient, number: int) -> None:
        """Simulate visitors one after the other."""
        for turn in itertools.count():
            await asyncio.sleep(random.expovariate(VISITORS / CONCURRENT_VISITORS))
            try:
                decision = await client.decide(DEMO_EXPERIMENT, f"visitor {number} of turn {turn}")
            except ServiceConflictError:  # paused: visitors come back later
                await asyncio.sleep(1.0)
                continue
            if random.random() < PURCHASES[decision.label] and random.random() >= LOST_SHARE:
                task = asyncio.create_task(self._buy(client, decision))
                self._purchases.add(task)
                task.add_done_callback(self._purchases.discard)

    async def _buy(self, client: AsyncClient, decision: ServiceDecision) -> None:
        await asyncio.sleep(random.expovariate(1.0 / REPORT_DELAY))
        with contextlib.suppress(ServiceError):  # after the window
            await client.reward(decision, 1.0)

    async def _watch(self, client: AsyncClient) -> None:
        began = time.monotonic()
        while True:
            await asyncio.sleep(1.0)
            results = await client.results(DEMO_EXPERIMENT)
            shares = "  ".join(f"{arm['label']} {arm['share']:4.0%}" for arm in results["arms"])
            self._say(f"{time.monotonic() - began:4.0f} s  {shares}  {results['sentence']}")
