"""The pages about the service: their commands run, against services that really run."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from balaclava.cli.commands.serve_command import serve
from balaclava.client import Client
from balaclava.service.http.server import ServerSettings
from balaclava.service.problems import StartError
from tests.service.servers import in_a_thread

ROOT = Path(__file__).parents[2]
HERE = "http://127.0.0.1:8765"  # as the pages have it
SETUP = re.compile(r"^api\(\) .*\nURL=.*\n", re.MULTILINE)


def text(page: str) -> str:
    return (ROOT / "docs" / page).read_text(encoding="utf-8")


def blocks(section: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


def section(page: str, title: str) -> str:
    (part,) = [part for part in text(page).split("\n## ") if part.startswith(f"{title}\n")]
    return part


def run(command: list[str], folder: Path, address: str = "", key: str = "") -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        [part.replace(HERE, address) for part in command],
        cwd=folder,
        env={**os.environ, "KEY": key, "PATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def shell(script: str, folder: Path, address: str = "", key: str = "") -> str:
    if shutil.which("curl") is None:
        pytest.skip("no curl is installed")
    setup = SETUP.search(text("service.md"))
    assert setup is not None
    return run(["bash", "-euo", "pipefail", "-c", setup[0] + script], folder, address, key)


def test_the_quick_start_runs(tmp_path: Path) -> None:
    page = text("service.md")
    with in_a_thread(tmp_path) as (address, key, _):
        said = shell("\n".join(blocks(page, "sh")), tmp_path, address, key)
        assert '"recorded":true' in said.replace(" ", "")
        assert '"left_epsilon":2.0' in said.replace(" ", "")
        python, recipe = blocks(page, "python")
        said = run([sys.executable, "-c", python], tmp_path, address, key)
        assert "1,002 decisions" in said
        call = f"with Client({address!r}, {key!r}) as c:\n    bought(c, 'landing-page', 'ida')"
        recipe = f"from balaclava.client import Client\n{recipe}\n{call}"
        run([sys.executable, "-c", recipe], tmp_path, address, key)


def test_a_backup_is_made_and_restored(tmp_path: Path) -> None:
    saving, restoring = blocks(section("operate.md", "Backups"), "sh")  # as written
    with in_a_thread(tmp_path) as (address, key, _), Client(address, key) as client:
        client.create_experiment(
            "page", "dp-imed", ["a", "b"], reward_window=60.0, parameters={"epsilon": 1.0}
        )
        client.decide("page", count=10)
        shell(saving, tmp_path)
        client.decide("page", count=10)
    shell(restoring, tmp_path)
    settings = ServerSettings(str(tmp_path / "balaclava.db"))
    with pytest.raises(StartError, match="--restored"):
        settings.open()
    service = ServerSettings(settings.database, restored=True).open()
    assert service.experiment("page")["decisions"] == 10
    assert service.privacy("page")["restored"] == 1
    service.close()
    settings.open().close()  # it is said once


def test_keys_are_rotated_and_made_anew(tmp_path: Path) -> None:
    rotating, revoking = blocks(section("operate.md", "Keys"), "sh")
    with in_a_thread(tmp_path) as (address, key, service):
        shell(rotating, tmp_path, address, key)
        assert [each["revoked"] is None for each in service.list_keys()] == [True, False]
    shell(revoking, tmp_path)
    with in_a_thread(tmp_path) as (address, new, _), Client(address, new) as client:
        assert new != key
        assert len(client.keys()) == 3


def test_what_to_watch_is_there(tmp_path: Path) -> None:
    watching = section("operate.md", "What to watch")
    with in_a_thread(tmp_path) as (address, key, _):
        (script,) = blocks(watching, "sh")
        assert "balaclava_waiting 0.0" in shell(script, tmp_path, address, key)
        metrics = shell(f"api {HERE}/metrics", tmp_path, address, key)
    for name in set(re.findall(r"`(balaclava_\w+)", watching)):
        assert name in metrics, name


def test_every_way_to_start_is_understood() -> None:
    """Each `balaclava serve` on the pages, in the unit and in the container file."""
    unit = configparser.ConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(blocks(text("operate.md"), "ini")[0])
    container = (ROOT / "Containerfile").read_text(encoding="utf-8")
    (entry,) = re.findall(r"^ENTRYPOINT (\[.*\])$", container, re.MULTILINE)
    (rest,) = re.findall(r"^CMD (\[.*\])$", container, re.MULTILINE)
    lines = [
        unit["Service"]["ExecStart"].removeprefix("/opt/balaclava/bin/"),
        " ".join(eval(entry) + eval(rest)),
    ]
    for page in ("service.md", "operate.md", "split.md"):
        shown = "\n".join(blocks(text(page), "console")).splitlines()
        lines += [line for line in shown if line.startswith("balaclava serve")]
    assert len(lines) >= 7
    for line in lines:
        arguments = shlex.split(line)
        assert arguments[:2] == ["balaclava", "serve"]
        options = serve.make_context("serve", arguments[2:]).params
        options = {
            name: value
            for name, value in options.items()
            if name not in ("demo", "no_keys", "aggregator")
        }
        assert ServerSettings(**options).checked()
    with pytest.raises(click.NoSuchOption):  # the check can fail
        serve.make_context("serve", ["--nothing"])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd is installed")
def test_the_unit_is_isolated(tmp_path: Path) -> None:
    unit = tmp_path / "balaclava.service"
    unit.write_text(blocks(text("operate.md"), "ini")[0])
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=30", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout[-200:]  # exposure at most 3.0 of 10


def test_the_table_of_requests_is_complete(tmp_path: Path) -> None:
    page = section("service.md", "All requests")
    with in_a_thread(tmp_path) as (address, key, _):
        schema = shell(f"api {HERE}/openapi.json", tmp_path, address, key)
    import json

    for path in json.loads(schema)["paths"]:
        short = re.sub(r"\{\w*id\}", "{id}", path)
        last = "/" + short.rpartition("/")[2]
        assert f"`{short}" in page or f" {short}" in page or f"`{last}`" in page, path
