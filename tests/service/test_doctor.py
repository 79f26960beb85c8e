"""`balaclava doctor`: each thing that goes wrong is found, and nothing is changed."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from balaclava.cli import main
from balaclava.service import doctor, start_checks
from balaclava.service.engine.definition import ExperimentDefinition
from balaclava.service.engine.jobs import CreateExperiment, MakeDecisions
from balaclava.service.http.server import ServerSettings
from balaclava.service.problems import StartError
from balaclava.service.service import Service
from tests.service.manual_service import SHOP


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[ServerSettings]:
    """A service that was used, with its ledger on another disk."""
    other = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=other) as folder:
        settings = ServerSettings(str(tmp_path / "service.db"), ledger=f"{folder}/ledger")
        service = settings.open()
        decide(service, create=True)
        service.close()
        yield settings


def decide(service: Service, *, create: bool = False) -> None:
    if create:
        definition = ExperimentDefinition.checked(**SHOP)
        service.run_job(CreateExperiment(service.ledger, definition))
    service.run_job(MakeDecisions(service.vault, "shop"))


def examined(settings: ServerSettings) -> dict[str, str]:
    """What is wrong, by subject, as the command says it."""
    done = CliRunner().invoke(
        main, ["doctor", "--database", settings.database, "--ledger", str(settings.ledger)]
    )
    wrong = [line[7:] for line in done.output.splitlines() if line.startswith("WRONG")]
    assert done.exit_code == bool(wrong), done.output
    return dict(line.split(": ", 1) for line in wrong)


def test_a_healthy_service_also_while_it_runs(settings: ServerSettings) -> None:
    assert examined(settings) == {}  # a ledger on the same disk is a warning only
    service = settings.open()
    assert examined(settings) == {}
    decide(service)
    service.close()
    settings.open().close()


def test_a_ledger_in_a_missing_folder_leaves_no_database(tmp_path: Path) -> None:
    settings = ServerSettings(str(tmp_path / "new.db"), ledger=str(tmp_path / "none" / "x.ledger"))
    with pytest.raises(StartError, match="folder of the ledger"):
        settings.open()
    assert list(tmp_path.iterdir()) == []


def test_what_is_wrong_is_found(settings: ServerSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    database, key = Path(settings.database), Path(settings.database).with_suffix(".key")
    backup = database.read_bytes()
    service = settings.open()
    decide(service)
    service.close()
    newest = database.read_bytes()
    database.write_bytes(backup)
    assert "--restored" in examined(settings)["ledger"]
    database.write_bytes(newest)
    content = key.read_bytes()
    key.write_bytes(b"x" * 32)
    assert "does not match" in examined(settings)["secret key"]
    key.write_bytes(content)
    database.chmod(0o644)
    assert "chmod 600" in examined(settings)["permissions"]
    database.chmod(0o600)
    with monkeypatch.context() as patch:
        later = time.time() + 400 * 86_400
        patch.setattr(start_checks.Clock, "now", lambda self: later)
        assert "set the clock" in examined(settings)["ledger"]
    with monkeypatch.context() as patch:
        patch.setattr(doctor, "_LEAST_FREE", 10**18)
        assert "make room" in examined(settings)["disk"]
    near = ServerSettings(settings.database, ledger=f"{settings.database}.ledger")
    shutil.copy(str(settings.ledger), str(near.ledger))
    assert examined(near) == {}
    (disk,) = (each for each in doctor.examine(near.database, near.ledger, None)
               if each.subject == "disk")  # fmt: skip
    assert disk.well is None
    assert "another one" in disk.text
    lost = ServerSettings(settings.database, ledger=f"{settings.database}.lost")
    assert "does not exist" in examined(lost)["ledger"]
    damaged = bytearray(newest)
    damaged[8_192:16_384] = os.urandom(8_192)
    database.write_bytes(damaged)
    assert "database" in examined(settings)
    database.unlink()
    assert "does not exist" in examined(settings)["database"]
    assert not database.exists()


def test_postgresql(postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = ServerSettings(postgres, ledger=str(tmp_path / "balaclava.ledger"))
    settings.open().close()
    assert examined(settings) == {}
