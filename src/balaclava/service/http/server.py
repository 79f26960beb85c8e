"""The uvicorn server, in one process or several workers."""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Callable
from dataclasses import asdict, dataclass
from json import dumps, loads
from typing import Any

import uvicorn
from fastapi import FastAPI

from balaclava.service.engine.jobs import CreateKey
from balaclava.service.http.app import create_app
from balaclava.service.http.middleware import is_loopback
from balaclava.service.problems import StartError
from balaclava.service.service import Service

_SETTINGS_VARIABLE = "BALACLAVA_SERVE"  # environment variable with the settings of workers


@dataclass(frozen=True)
class ServerSettings:
    """Options of `balaclava serve`."""

    database: str = "balaclava.db"
    ledger: str | None = None
    secrets: str | None = None
    host: str = "127.0.0.1"
    port: int = 8765
    workers: int = 1
    root_path: str = ""
    keys: bool = True
    restored: bool = False

    def checked(self) -> ServerSettings:
        """Return the settings; raises if they are unsafe or cannot work."""
        if not self.keys and not is_loopback(self.host):
            raise StartError(
                f"--no-keys needs a loopback address, such as 127.0.0.1, not {self.host}: any "
                "caller would be an admin"
            )
        if self.workers > 1 and not self.database.startswith("postgresql"):
            raise StartError(
                "SQLite takes one worker; for more use PostgreSQL (--database postgresql://...)"
            )
        return self

    def listener(self) -> socket.socket:
        """Listen at host and port; port 0 selects a free one."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        try:
            return socket.create_server((self.host, self.port), family=family, backlog=2048)
        except OSError as error:
            raise StartError(
                f"cannot listen at {self.host} port {self.port}: {error.strerror or error}; use "
                "another --port or --host"
            ) from None

    def address(self, port: int) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{port}{self.root_path}"

    def open(self) -> Service:
        return Service.open(
            self.database,
            ledger=self.ledger,
            secrets=self.secrets,
            restored=self.restored,
            root_path=self.root_path,
        )


def first_key(service: Service) -> str | None:
    """Create an admin key if there is none; returns it, or None."""
    if any(key["role"] == "admin" and key["revoked"] is None for key in service.list_keys()):
        return None
    return str(service.run_job(CreateKey("admin", "first"))["key"])


def uvicorn_config(app: Any, settings: ServerSettings, **more: Any) -> uvicorn.Config:
    """The configuration of uvicorn, without the access log: it would contain decision ids."""
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        access_log=False,
        log_level="warning",
        timeout_keep_alive=30,
        timeout_graceful_shutdown=10,
        server_header=False,
        **more,
    )


def serve(settings: ServerSettings, greet: Callable[[str, str | None], None]) -> None:
    """Serve until stopped; `greet` gets the URL, and the first admin key if it is new."""
    settings = settings.checked()
    with settings.listener() as listener:  # first: the port may be taken
        port = listener.getsockname()[1]
        service = settings.open()  # before the workers: errors and --restored happen once
        greet(settings.address(port), first_key(service) if settings.keys else None)
        if settings.workers == 1:
            app = create_app(service, keys=settings.keys)
            _freeze_garbage_collector()
            uvicorn.Server(uvicorn_config(app, settings)).run(sockets=[listener])
            return
    service.close()
    once = ServerSettings(**{**asdict(settings), "restored": False})
    os.environ[_SETTINGS_VARIABLE] = dumps(asdict(once))
    uvicorn.run(  # opens a new socket, which the workers share
        "balaclava.service.http.server:worker",
        factory=True,
        host=settings.host,
        port=port,
        workers=settings.workers,
        access_log=False,
        log_level="warning",
        server_header=False,
    )


def worker() -> FastAPI:
    """The application of one worker process."""
    settings = ServerSettings(**loads(os.environ[_SETTINGS_VARIABLE]))
    app = create_app(settings.open(), keys=settings.keys)
    _freeze_garbage_collector()
    return app


def _freeze_garbage_collector() -> None:
    """Exempt loaded modules from garbage collection, which would pause requests."""
    gc.collect()
    gc.freeze()
