"""The uvicorn server, in one process or several workers."""

from __future__ import annotations

import datetime
import gc
import ipaddress
import logging
import os
import re
import socket
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from json import dumps, loads
from typing import Any

import uvicorn
from fastapi import FastAPI

from balaclava.service.engine.jobs import CreateKey
from balaclava.service.http.app import create_app
from balaclava.service.http.connections import LIMITS
from balaclava.service.http.metrics import FOLDER_VARIABLE
from balaclava.service.http.middleware import is_loopback
from balaclava.service.problems import StartError
from balaclava.service.service import Service

_SETTINGS_VARIABLE = "BALACLAVA_SERVE"  # environment variable with the settings of workers

_ROOT_PATH = re.compile(r"(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*")


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
    accept_clock: bool = False
    admin_key_file: str | None = None
    webhook_network: tuple[str, ...] = ()
    log_format: str = "text"
    telemetry: bool = False

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
        if not _ROOT_PATH.fullmatch(self.root_path):
            raise StartError(
                f"--root-path must be a path such as /decisions, without a slash at its end, not "
                f"{self.root_path!r}"
            )
        for network in self.webhook_network:
            try:
                ipaddress.ip_network(network)
            except ValueError:
                raise StartError(
                    f"--webhook-network must be a network such as 10.1.0.0/16, not {network!r}"
                ) from None
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
        service = Service.open(
            self.database,
            ledger=self.ledger,
            secrets=self.secrets,
            restored=self.restored,
            accept_clock=self.accept_clock,
            root_path=self.root_path,
            webhook_networks=self.webhook_network,
        )
        service.telemetry = self.telemetry
        return service


def first_key(service: Service, file: str | None = None) -> str | None:
    """Create an admin key if there is none; returns it, or None if it is in the file."""
    if service.has_admin_key():
        return None
    if file is None:
        return str(service.run_job(CreateKey(service.ledger, "admin", "first"))["key"])
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise StartError(
            f"cannot create --admin-key-file {file}: {error.strerror}; give a path that does not "
            "exist"
        ) from None
    with os.fdopen(descriptor, "w") as target:
        key = service.run_job(CreateKey(service.ledger, "admin", "first"))["key"]
        print(key, file=target)
    return None


class JsonLines(logging.Formatter):
    """A log line as a JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        """One line: JSON escapes line breaks."""
        moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        line = {
            "time": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return dumps(line)


def configure_logging(form: str = "text") -> None:
    """Log lines with a time and a level, of uvicorn and of the service, to stderr.

    Other handlers of the process stay: `logging.config` would close them.
    """
    handler = logging.StreamHandler()
    line: logging.Formatter = JsonLines()
    if form == "text":
        line = logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S%z")
    handler.setFormatter(line)
    for name, level in (("balaclava", logging.INFO), ("uvicorn", logging.WARNING)):
        logging.getLogger(name).handlers = [handler]
        logging.getLogger(name).setLevel(level)


def uvicorn_options(settings: ServerSettings) -> dict[str, Any]:
    """Options of uvicorn. Without an access log: it would contain decision ids."""
    return {
        "host": settings.host,
        "port": settings.port,
        "access_log": False,
        "log_level": "warning",
        "log_config": None,
        "timeout_keep_alive": 30,
        "timeout_graceful_shutdown": 10,
        "server_header": False,
        "ws": "none",
        **LIMITS,
    }


def uvicorn_config(app: Any, settings: ServerSettings) -> uvicorn.Config:
    """The configuration of a server in this process."""
    return uvicorn.Config(app, **uvicorn_options(settings))


def serve(
    settings: ServerSettings,
    greet: Callable[[str, str | None], None],
    make_app: Callable[..., FastAPI] = create_app,
) -> None:
    """Serve until stopped; `greet` gets the URL, and the first admin key if it is new."""
    settings = settings.checked()
    configure_logging(settings.log_format)
    with settings.listener() as listener:  # first: the port may be taken
        port = listener.getsockname()[1]
        service = settings.open()  # before the workers: errors and --restored happen once
        key = first_key(service, settings.admin_key_file) if settings.keys else None
        greet(settings.address(port), key)
        if settings.workers == 1:
            app = make_app(service, keys=settings.keys)
            _freeze_garbage_collector()
            uvicorn.Server(uvicorn_config(app, settings)).run(sockets=[listener])
            return
    service.close()
    once = ServerSettings(**{**asdict(settings), "restored": False})
    os.environ[_SETTINGS_VARIABLE] = dumps(asdict(once))
    with tempfile.TemporaryDirectory(prefix="balaclava-metrics-") as folder:
        os.environ[FOLDER_VARIABLE] = folder  # any worker answers for all
        uvicorn.run(  # opens a new socket, which the workers share
            "balaclava.service.http.server:worker",
            factory=True,
            workers=settings.workers,
            **{**uvicorn_options(settings), "port": port},
        )


def worker() -> FastAPI:
    """The application of one worker process."""
    settings = ServerSettings(**loads(os.environ[_SETTINGS_VARIABLE]))
    configure_logging(settings.log_format)
    app = create_app(settings.open(), keys=settings.keys)
    _freeze_garbage_collector()
    return app


def _freeze_garbage_collector() -> None:
    """Exempt loaded modules from garbage collection, which would pause requests."""
    gc.collect()
    gc.freeze()
