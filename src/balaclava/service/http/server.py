"""The server: the application on uvicorn, in one process or several."""

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

_SETTINGS = "BALACLAVA_SERVE"  # how worker processes are told


@dataclass(frozen=True)
class ServerSettings:
    """What `balaclava serve` was asked for."""

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
        """Refuse what cannot work, or must not."""
        if not self.keys and not is_loopback(self.host):
            raise StartError(
                f"--no-keys is allowed on a loopback address only, and {self.host} is none: "
                "whoever could reach it might do everything"
            )
        if self.workers > 1 and not self.database.startswith("postgresql"):
            raise StartError(
                "an SQLite file has one writer; several workers need PostgreSQL "
                "(--database postgresql://...)"
            )
        return self

    def listener(self) -> socket.socket:
        """A socket at the address; port 0 takes a free one."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        try:
            return socket.create_server((self.host, self.port), family=family, backlog=2048)
        except OSError as error:
            raise StartError(
                f"cannot listen at {self.host} port {self.port}: {error.strerror or error}; give "
                "another --port or --host"
            ) from None

    def address(self, port: int) -> str:
        """Where it is found."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{port}{self.root_path}"

    def open(self) -> Service:
        """The service that it describes."""
        return Service.open(
            self.database,
            ledger=self.ledger,
            secrets=self.secrets,
            restored=self.restored,
            root_path=self.root_path,
        )


def first_key(service: Service) -> str | None:
    """An admin key, if there is none yet: shown once."""
    if any(key["role"] == "admin" and key["revoked"] is None for key in service.list_keys()):
        return None
    return str(service.run_job(CreateKey("admin", "first"))["key"])


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listens at."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def uvicorn_config(app: Any, settings: ServerSettings, **more: Any) -> uvicorn.Config:
    """How uvicorn is to run it. Access lines are off: they would hold decision ids."""
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
    """Serve until stopped. `greet` is told the address, and the first key if one was made."""
    settings = settings.checked()
    with settings.listener() as listener:  # before anything is made: a port may be taken
        port = listener.getsockname()[1]
        service = settings.open()  # whatever is wrong is said once, and --restored is done once
        greet(settings.address(port), first_key(service) if settings.keys else None)
        if settings.workers == 1:
            app = create_app(service, keys=settings.keys)
            _keep_what_is_loaded()
            uvicorn.Server(uvicorn_config(app, settings)).run(sockets=[listener])
            return
    service.close()
    once = ServerSettings(**{**asdict(settings), "restored": False})
    os.environ[_SETTINGS] = dumps(asdict(once))
    uvicorn.run(  # it makes a socket of its own that the workers share
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
    settings = ServerSettings(**loads(os.environ[_SETTINGS]))
    app = create_app(settings.open(), keys=settings.keys)
    _keep_what_is_loaded()
    return app


def _keep_what_is_loaded() -> None:
    """Let the collector of garbage leave modules alone: to go through them takes a tenth of a
    second, for which nobody would be answered.
    """
    gc.collect()
    gc.freeze()
