"""A decider without a database: it serves finished experiments from a signed snapshot.

It stores no person and makes no decision that learns. A person's arm is a digest of the person and
the snapshot's salt, so that every edge gives a person the same arm. The public key is pinned. The
newest snapshot that was seen lies in a file: an older one is refused, also after a restart.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse

from balaclava._core.extras import require_extra
from balaclava.service.http.answers import StatusOut
from balaclava.service.http.payloads import DecisionsIn, DecisionsOut
from balaclava.service.http.server import ServerSettings, configure_logging, uvicorn_config
from balaclava.service.problems import Problem, StartError, problem_response
from balaclava.service.protocols.feature_flags import add_feature_flags, flag_value
from balaclava.service.protocols.signed_snapshot import EdgeSnapshot, SnapshotError, verify

log = logging.getLogger("balaclava.service")

# Seconds; guesses
REFRESH_SECONDS = 60.0  # between two fetches: a finished experiment arrives that late
_FETCH_SECONDS = 10.0  # timeout of a fetch
_LARGEST_SNAPSHOT = 50_000_000  # bytes: a hundred thousand flags


class EdgeDecider:
    """Keeps the newest valid snapshot of a URL or a file."""

    def __init__(self, source: str, public_key: str, cache: str, key: str | None = None) -> None:
        self._source, self._public_key, self._key = source, public_key, key
        self._cache = Path(cache)
        self._tag = ""
        self._newest: EdgeSnapshot | None = None
        with contextlib.suppress(OSError, SnapshotError):
            self._newest = verify(self._cache.read_bytes(), public_key, now=0.0)

    def refresh(self) -> None:
        """Fetch the snapshot, and keep it if it is valid and not older.

        Raises:
            SnapshotError: It cannot be fetched, or is not used; the message says why.
        """
        document = self._fetch()
        if document is None:
            return  # unchanged
        snapshot = verify(document, self._public_key, time.time(), self._newest)
        if snapshot != self._newest:
            part = self._cache.with_name(f"{self._cache.name}.part")
            try:
                part.write_bytes(document)
                os.replace(part, self._cache)
            except OSError as error:
                raise SnapshotError(
                    f"cannot write the cache {self._cache}: {error.strerror}; without it an older "
                    "snapshot would be accepted after a restart"
                ) from None
        self._newest = snapshot

    def _fetch(self) -> bytes | None:
        """The document; None if it is the one that was fetched before."""
        if "://" not in self._source:
            try:
                return Path(self._source).read_bytes()
            except OSError as error:
                raise SnapshotError(f"cannot read {self._source}: {error.strerror}") from None
        require_extra("httpx", "fetching the snapshot")
        import httpx

        headers = {"If-None-Match": self._tag}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        try:
            answer = httpx.get(self._source, headers=headers, timeout=_FETCH_SECONDS)
        except httpx.HTTPError as error:
            raise SnapshotError(f"cannot fetch the snapshot: {type(error).__name__}") from None
        if answer.status_code == 304:
            return None
        if answer.status_code != 200 or len(answer.content) > _LARGEST_SNAPSHOT:
            raise SnapshotError(f"cannot fetch the snapshot: HTTP {answer.status_code}")
        self._tag = answer.headers.get("etag", "")
        return answer.content

    def try_refresh(self) -> None:
        """Refresh, and log why if that fails: the snapshot in use stays until it expires."""
        try:
            self.refresh()
        except SnapshotError as error:
            log.warning("the snapshot was not refreshed: %s", error)

    @property
    def snapshot(self) -> EdgeSnapshot:
        """The newest snapshot; raises if there is none that is still valid."""
        if self._newest is None or self._newest.expires <= time.time():
            raise Problem(503, "there is no valid snapshot; see the log", retry_after=60)
        return self._newest

    # Flags

    async def flags(
        self, person: str, key: str | None = None, attributes: Any = None
    ) -> list[dict[str, Any]]:
        """The flags of a person, one or all."""
        snapshot = self.snapshot
        return [_edge_flag(snapshot, each, person) for each in _names(snapshot, key)]

    async def expose(self, key: str, person: str, attributes: Any) -> None:
        """Nothing is decided here."""


def _names(snapshot: EdgeSnapshot, key: str | None) -> list[str]:
    if key is None:
        return list(snapshot.flags)
    if key not in snapshot.flags:
        raise Problem(404, "the snapshot has no finished experiment of this name")
    return [key]


def _edge_flag(snapshot: EdgeSnapshot, name: str, person: str) -> dict[str, Any]:
    labels, shares = snapshot.flags[name]
    reason = "STATIC" if 1.0 in shares else "SPLIT"
    arm = snapshot.arm(name, person)
    return flag_value(name, labels, arm, reason, {"exposed": False})


def create_edge_app(decider: EdgeDecider) -> FastAPI:
    """Build the ASGI application, which refreshes the snapshot while it runs."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        refreshing = asyncio.create_task(_keep_fresh(decider))
        yield
        refreshing.cancel()

    app = FastAPI(
        title="balaclava edge",
        lifespan=lifespan,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # paths may name flags
        docs_url=None,
        redoc_url=None,
    )
    flags = APIRouter(tags=["decide"])
    add_feature_flags(flags, decider)
    app.include_router(flags)

    @app.exception_handler(Problem)
    async def _problem(request: Request, problem: Problem) -> JSONResponse:
        return problem_response(problem)

    @app.post("/v1/experiments/{name}/decisions", tags=["decide"])
    async def decide_at_edge(name: str, payload: DecisionsIn) -> DecisionsOut:
        """Give the person's arm. Nothing learns: the decision id is empty."""
        snapshot = decider.snapshot
        _names(snapshot, name)
        repeated = payload.person or payload.request_id
        decisions = []
        for place in range(payload.count):
            # A request_id gets the same decisions again, each drawn for itself.
            person = payload.person or f"{repeated or secrets.token_hex(16)}\0{place}"
            arm = snapshot.arm(name, person)
            labels, shares = snapshot.flags[name]
            made = {"decision_id": "", "arm": arm, "label": labels[arm]}
            decisions.append(made | {"propensity": shares[arm], "learns": False})
        return JSONResponse({"decisions": decisions})  # type: ignore[return-value]

    @app.get("/healthz", tags=["health"], response_model=StatusOut)
    async def edge_alive() -> dict[str, str]:
        """Answer while the process is alive."""
        return {"status": "alive"}

    @app.get("/readyz", tags=["health"], response_model=StatusOut)
    async def edge_ready() -> dict[str, str]:
        """Answer whether there is a valid snapshot."""
        return {"status": "ready", "flags": str(len(decider.snapshot.flags))}

    return app


async def _keep_fresh(decider: EdgeDecider) -> None:
    while True:
        await asyncio.sleep(REFRESH_SECONDS * (0.5 + secrets.randbelow(1_000) / 1_000))
        await asyncio.to_thread(decider.try_refresh)


def first_snapshot(decider: EdgeDecider) -> None:
    """Fetch at the start: a wrong URL or key is noticed at once, unless the cache still serves."""
    try:
        decider.refresh()
    except SnapshotError as error:
        try:
            _ = decider.snapshot
        except Problem:
            raise StartError(str(error)) from None
        log.warning("the cached snapshot is served: %s", error)


def serve_edge(decider: EdgeDecider, settings: ServerSettings, say: Callable[[str], None]) -> None:
    """Serve until stopped; `say` gets the address."""
    configure_logging(settings.log_format)
    with settings.checked().listener() as listener:
        first_snapshot(decider)
        say(f"balaclava serves an edge at {settings.address(listener.getsockname()[1])}")
        app = create_edge_app(decider)
        uvicorn.Server(uvicorn_config(app, settings)).run(sockets=[listener])
