"""`balaclava serve --demo`: a throw-away service, and made-up visitors who use it over HTTP.

Everything is real but the visitors: the server, its database on the disk, the client, the noise.
Each visitor sees one of four pages, and some of them buy. Purchases are reported seconds later, and
one in ten is lost on the way; a visitor of whom nothing is heard in time counts as having bought
nothing. One visitor in five gets any page: dp-imed by itself soon stops showing weak pages, and of
a page that is not shown it cannot be told how much worse it is. So a winner is named within a
minute or so.
"""

from __future__ import annotations

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
from balaclava.errors import ServiceError
from balaclava.service.http.app import create_app
from balaclava.service.http.middleware import is_loopback
from balaclava.service.http.server import ServerSettings, first_key, uvicorn_config

NAME = "landing-page"
PURCHASES = {"plain": 0.1, "photo": 0.15, "video": 0.2, "map": 0.6}  # the share who buy
POLICY, PARAMETERS = "dp-imed", {"epsilon": 1.0, "explore": 0.2}
WINDOW = 2.0  # seconds that a purchase may take to be reported
VISITORS = 100  # a second, at most
AT_ONCE = 20  # visitors who wait for their page
LATE, LOST = 0.5, 0.1  # mean seconds until a purchase is reported; the share that never is


def serve_demo(host: str, port: int, say: Callable[[str], None]) -> None:
    """Serve a database that is removed at the end, with visitors, until stopped."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that it is removed then, too
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
            say("Four pages, made-up visitors; Ctrl-C ends it and removes its files.\n")
            visitors = Visitors(address, key, say)
            visitors.start()
            try:
                server = uvicorn.Server(
                    uvicorn_config(create_app(service, keys=settings.keys), settings)
                )
                server.run(sockets=[listener])
            finally:
                visitors.stop()


class Visitors(threading.Thread):
    """People who come, look and perhaps buy, until they are stopped."""

    def __init__(self, address: str, key: str | None, say: Callable[[str], None]) -> None:
        super().__init__(name="visitors", daemon=True)
        self._address, self._key, self._say = address, key, say
        self._loop = asyncio.new_event_loop()
        self._visits: asyncio.Task[None] | None = None
        self._purchases: set[asyncio.Task[None]] = set()  # that are still to be reported

    def run(self) -> None:
        """In an event loop of its own."""
        self._visits = self._loop.create_task(self._come())
        with contextlib.suppress(asyncio.CancelledError, ServiceError):
            self._loop.run_until_complete(self._visits)
        self._loop.close()

    def stop(self) -> None:
        """No more visitors, at once."""
        if self._visits is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._visits.cancel)
        self.join()

    async def _come(self) -> None:
        async with AsyncClient(self._address, self._key) as client:
            await client.create_experiment(
                NAME,
                POLICY,
                list(PURCHASES),
                parameters=PARAMETERS,
                reward_window=WINDOW,
                default_reward=0.0,
                owner="the demo",
                purpose="Which page sells best, without telling who bought.",
            )
            try:
                queues = (self._queue(client, number) for number in range(AT_ONCE))
                await asyncio.gather(self._watch(client), *queues)
            finally:
                for task in self._purchases:
                    task.cancel()

    async def _queue(self, client: AsyncClient, number: int) -> None:
        """One visitor after the other."""
        for turn in itertools.count():
            await asyncio.sleep(random.expovariate(VISITORS / AT_ONCE))
            decision = await client.decide(NAME, f"visitor {number} of turn {turn}")
            if random.random() < PURCHASES[decision.label] and random.random() >= LOST:
                task = asyncio.create_task(self._buy(client, decision))
                self._purchases.add(task)
                task.add_done_callback(self._purchases.discard)

    async def _buy(self, client: AsyncClient, decision: ServiceDecision) -> None:
        await asyncio.sleep(random.expovariate(1.0 / LATE))
        with contextlib.suppress(ServiceError):  # too late, which is nobody's fault
            await client.reward(decision, 1.0)

    async def _watch(self, client: AsyncClient) -> None:
        began = time.monotonic()
        while True:
            await asyncio.sleep(1.0)
            results = await client.results(NAME)
            shares = "  ".join(f"{arm['label']} {arm['share']:4.0%}" for arm in results["arms"])
            self._say(f"{time.monotonic() - began:4.0f} s  {shares}  {results['sentence']}")
