"""`balaclava backup` and `restore`: complete, private, repeatable, and refused at times."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from balaclava.cli import main
from balaclava.client import Client
from balaclava.service.http.server import ServerSettings
from balaclava.service.problems import StartError
from balaclava.service.store import backup
from tests.service.servers import in_a_thread


def run(*arguments: Any, code: int = 0) -> str:
    done = CliRunner().invoke(main, [str(each) for each in arguments])
    assert done.exit_code == code, done.output
    return done.output.strip()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_back_up_twice_while_it_runs_and_restore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = tmp_path / "balaclava.db"
    old = os.umask(0)  # as careless as can be
    try:
        with in_a_thread(tmp_path) as (address, key, _), Client(address, key) as client:
            client.create_experiment(
                "page", "dp-imed", ["a", "b"], reward_window=60.0, parameters={"epsilon": 1.0}
            )
            client.decide("page", count=10)
            first = Path(run("backup", tmp_path / "backups", "--database", database))
            client.decide("page", count=10)
            monkeypatch.setattr(backup.time, "strftime", lambda *_: "later")
            second = Path(run("backup", tmp_path / "backups", "--database", database))
            monkeypatch.undo()
            assert first != second
            refused = run("restore", first, "--database", database, code=2)
            assert "in use by another process" in refused
    finally:
        os.umask(old)
    assert {mode(each) for each in (tmp_path / "backups", first, second)} == {0o700}
    files = [*first.iterdir(), *second.iterdir()]
    assert sorted(each.name for each in files) == ["database.db"] * 2 + ["secret.key"] * 2
    assert {mode(each) for each in files} == {0o600}
    said = run("restore", first, "--database", database)
    assert "--restored" in said
    assert "set aside" in said
    assert mode(database) == 0o600
    settings = ServerSettings(str(database))
    with pytest.raises(StartError, match="--restored"):
        settings.open()
    service = ServerSettings(str(database), restored=True).open()
    assert service.experiment("page")["decisions"] == 10
    service.close()


def test_what_cannot_be_restored_changes_nothing(tmp_path: Path) -> None:
    database = tmp_path / "balaclava.db"
    ServerSettings(str(database)).open().close()
    copy = Path(run("backup", tmp_path / "backups", "--database", database))
    before = database.read_bytes()
    key = (copy / "secret.key").read_bytes()
    (copy / "secret.key").write_bytes(b"x" * 32)
    assert "not the secret key" in run("restore", copy, "--database", database, code=2)
    (copy / "secret.key").write_bytes(key)
    damaged = bytearray((copy / "database.db").read_bytes())
    damaged[5_000:9_000] = os.urandom(4_000)
    (copy / "database.db").write_bytes(damaged)
    said = run("restore", copy, "--database", database, code=2)
    assert "malformed" in said or "damaged" in said
    assert len(said.splitlines()) == 1
    (copy / "database.db").unlink()
    assert "is not a backup" in run("restore", copy, "--database", database, code=2)
    assert "does not exist" in run("backup", copy, "--database", tmp_path / "no.db", code=2)
    assert "pg_dump" in run("backup", copy, "--database", "postgresql://here/db", code=2)
    assert database.read_bytes() == before
