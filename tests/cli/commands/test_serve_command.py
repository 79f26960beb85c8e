"""Options of `balaclava serve` from a file and from the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from balaclava.cli import main

server = pytest.importorskip("balaclava.service.http.server")


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The settings with which a server would have started."""
    seen: list[Any] = []
    monkeypatch.setattr(server, "serve", lambda settings, greet: seen.append(settings))
    return seen


def run(*arguments: str, **variables: str) -> Any:
    return CliRunner().invoke(main, ["serve", *arguments], env=variables)


def test_the_command_line_comes_before_the_environment_before_the_file(
    settings: list[Any], tmp_path: Path
) -> None:
    file = tmp_path / "service.toml"
    file.write_text(
        'database = "file.db"\nport = 1\nhost = "::1"\nlog-format = "json"\n'
        'webhook-network = ["10.0.0.0/8", "192.168.0.0/16"]\n'
    )
    variables = {"BALACLAVA_PORT": "2", "BALACLAVA_HOST": "127.0.0.2"}
    assert run("--config", str(file), "--host", "127.0.0.3", **variables).exit_code == 0
    (made,) = settings
    assert (made.database, made.port, made.host) == ("file.db", 2, "127.0.0.3")
    assert made.webhook_network == ("10.0.0.0/8", "192.168.0.0/16")
    assert made.log_format == "json"
    assert run(BALACLAVA_CONFIG=str(file)).exit_code == 0
    assert settings[1].port == 1


@pytest.mark.parametrize("name", ["RESTORED", "ACCEPT_CLOCK", "NO_KEYS", "DEMO"])
def test_what_is_for_one_start_is_not_in_the_environment(settings: list[Any], name: str) -> None:
    assert run(**{f"BALACLAVA_{name}": "1"}).exit_code == 0
    (made,) = settings
    assert (made.restored, made.accept_clock, made.keys) == (False, False, True)


@pytest.mark.parametrize("content", ["restored = true", "prot = 1", "port = ", "no-keys = true"])
def test_a_file_is_checked(settings: list[Any], tmp_path: Path, content: str) -> None:
    file = tmp_path / "service.toml"
    file.write_text(content)
    answer = run("--config", str(file))
    assert answer.exit_code == 2
    assert "--config" in answer.output
    assert settings == []
    assert run("--config", str(tmp_path / "missing.toml")).exit_code == 2


def test_the_demo_keeps_nothing_and_refuses_a_database(tmp_path: Path) -> None:
    """Started with a database it would seem to store what it removes."""
    answer = run("--demo", "--database", str(tmp_path / "own.db"), "--workers", "2")
    assert answer.exit_code == 2
    words = " ".join(answer.output.split())
    assert "takes --host and --port only; leave out --database, --workers" in words
    assert list(tmp_path.iterdir()) == []
