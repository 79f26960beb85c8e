"""`balaclava serve`: how it starts, what it says, how it ends."""

from __future__ import annotations

import re
import signal
import socket
import time
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

import balaclava as bl
from balaclava.cli import main
from balaclava.client import Client
from balaclava.service.demo import (
    ABOUT,
    DEMO_EXPERIMENT,
    LOST_SHARE,
    PARAMETERS,
    POLICY,
    PURCHASES,
    REPORT_DELAY,
    VISITORS,
    WINDOW,
    WINNER_AFTER,
)
from tests.service.servers import Process, in_a_thread


def test_one_command_and_it_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Process("--port", "0", cwd=tmp_path) as process:
        address = process.wait_for(r"balaclava serves at (\S+)\n")
        key = process.wait_for(r"this once: (\S+)\n")
        assert address.startswith("http://127.0.0.1:")
        with Client(address, key) as client:
            client.create_experiment(
                "page", "dp-imed", ["a", "b"], reward_window=60.0, parameters={"epsilon": 1.0}
            )
            assert client.decide("page").label in "ab"
        assert httpx.get(f"{address}/readyz").json() == {"status": "ready"}
        assert httpx.get(f"{address}/v1/experiments").status_code == 401
        # A second one on the same file is refused, and so is one at the same port.
        port = address.rpartition(":")[2]
        assert "balaclava.db" in refusal("--port", "0")
        assert "another --port" in refusal("--port", port, "--database", "new.db")
        assert not (tmp_path / "new.db").exists()
        assert process.end(signal.SIGINT) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("balaclava.db", "balaclava.db.lock", "balaclava.key", "balaclava.ledger")
    ]


def refusal(*arguments: str) -> str:
    """The one line that says why it does not start."""
    done = CliRunner().invoke(main, ["serve", *arguments])
    assert done.exit_code == 2, done.output
    (line,) = done.stderr.splitlines()
    assert line.startswith("balaclava: ")
    return line


def test_what_it_does_not_start_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "loopback" in refusal("--no-keys", "--host", "0.0.0.0")
    assert "PostgreSQL" in refusal("--workers", "2")
    for path in ("decisions", "/decisions/", "//e.example", "/a?b", "/../x", "/a b", "https://e/"):
        assert "--root-path" in refusal("--root-path", path)
    assert list(tmp_path.iterdir()) == []


def test_the_first_key_is_in_a_file_and_lines_have_a_time(tmp_path: Path) -> None:
    options = ("--port", "0", "--admin-key-file", "admin.key")
    with Process(*options, cwd=tmp_path) as process:
        address = process.wait_for(r"balaclava serves at (\S+)\n")
        key = (tmp_path / "admin.key").read_text().strip()
        assert (tmp_path / "admin.key").stat().st_mode & 0o777 == 0o600
        with Client(address, key) as client:
            assert len(client.keys()) == 1
        (tmp_path / "balaclava.db").unlink()
        until = time.monotonic() + 30  # it looks at most once a second
        while httpx.get(f"{address}/readyz").status_code == 200 and time.monotonic() < until:
            time.sleep(0.2)
        assert httpx.get(f"{address}/readyz").status_code == 503
        process.wait_for(r"\n(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S+ ERROR a commit failed: )")
        process.end()
        assert key not in process.output
    other = ("--port", "0", "--database", str(tmp_path / "other.db"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        assert "--admin-key-file" in refusal(*other, "--admin-key-file", "admin.key")
    assert (tmp_path / "admin.key").read_text().strip() == key  # not overwritten


def test_metrics_have_a_version_and_the_time_of_commits(tmp_path: Path) -> None:
    with in_a_thread(tmp_path) as (address, key, _), Client(address, key) as client:
        client.create_key("read")
        headers = {"Authorization": f"Bearer {key}"}
        text = httpx.get(f"{address}/metrics", headers=headers).text
    assert f'balaclava_build_info{{version="{bl.__version__}"}} 1.0' in text
    assert "# TYPE balaclava_commit_seconds histogram" in text
    (count,) = re.findall(r"balaclava_commit_seconds_count (\S+)", text)
    assert float(count) >= 1


def test_many_arms_do_not_stop_others(tmp_path: Path) -> None:
    """10,000 arms used to block the event loop for seconds."""
    arms = [f"arm {number}" for number in range(10_000)]
    began = time.process_time()
    bl.policy("dp-imed", arms=arms, epsilon=1.0)
    assert time.process_time() - began < 1.0  # quadratic, it took several
    with in_a_thread(tmp_path) as (address, key, _):
        body = {"name": "many", "policy": "dp-imed", "parameters": {"epsilon": 1.0}}
        body |= {"arms": arms, "reward_window": 60.0}
        headers = {"Authorization": f"Bearer {key}"}
        done = httpx.post(f"{address}/v1/experiments", json=body, headers=headers, timeout=60)
        assert done.status_code == 201


@pytest.mark.slow
def test_several_workers_on_postgresql(tmp_path: Path, postgres: str) -> None:
    with Process("--database", postgres, "--workers", "2", "--port", "0", cwd=tmp_path) as process:
        address = process.wait_for(r"balaclava serves at (\S+)\n")
        key = process.wait_for(r"this once: (\S+)\n")
        with Client(address, key, patience=60.0) as client:
            client.create_experiment(
                "page", "dp-imed", ["a", "b"], reward_window=60.0, parameters={"epsilon": 1.0}
            )
            for _ in range(8):  # each on a connection of its own: some reach the other worker
                with Client(address, key) as other:
                    other.reward(other.decide("page"), 1.0)
            assert client.results("page")["decisions"] == 8
        pattern = re.compile(r'requests_total\{.*/decisions".*status="200"\} (\d+)')
        for _ in range(4):  # whichever worker answers, it counts the decisions of both
            headers = {"Authorization": f"Bearer {key}"}
            text = httpx.get(f"{address}/metrics", headers=headers, timeout=60).text
            assert sum(map(float, pattern.findall(text))) == 8, text
            assert text.count("balaclava_build_info{") == 1
        assert process.end() in (0, -signal.SIGTERM)


def test_behind_a_proxy_under_a_path(tmp_path: Path) -> None:
    """Whether the proxy takes the path away or not, and with no slash too many."""
    with in_a_thread(tmp_path, root_path="/decisions") as (address, key, _):
        base = address.removesuffix("/decisions")
        for url in (base, f"{base}/decisions", f"{base}/decisions/"):
            with Client(url, key) as client:
                assert client.experiments() == []
        page = httpx.get(f"{base}/decisions/", follow_redirects=True)
        assert page.url.path.startswith("/decisions/")
        assert httpx.get(f"{base}/decisions/report.js").status_code == 200


def test_without_keys_a_page_from_elsewhere_is_refused(tmp_path: Path) -> None:
    with in_a_thread(tmp_path, keys=False) as (address, _, _):
        port = address.rpartition(":")[2]
        for name in ("127.0.0.1", "localhost", "[::1]", "127.0.0.1:99"):
            assert httpx.get(f"{address}/v1/experiments", headers={"Host": name}).is_success
        for headers in (
            *({"Host": name} for name in ("evil.example", f"evil.example:{port}", "10.0.0.1", "")),
            *({"Origin": name} for name in ("https://evil.example", "null", "http://10.0.0.1")),
        ):
            answer = httpx.post(f"{address}/v1/keys", json={"role": "admin"}, headers=headers)
            assert answer.status_code in (400, 403), headers
        local = {"Origin": f"http://localhost:{port}"}
        assert httpx.get(f"{address}/v1/keys", headers=local).json() == {"keys": []}


@pytest.mark.slow
def test_the_demo_learns_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with Process("--demo", "--port", "0", cwd=tmp_path) as process:
        address = process.wait_for(r"a demo at (\S+)/ ")
        process.wait_for(r"(\d+ s  plain)")
        assert (
            DEMO_EXPERIMENT in httpx.get(f"{address}/", follow_redirects=True).text
        )  # without a key
        with Client(address) as client:
            results = client.results(DEMO_EXPERIMENT)
            assert [arm["label"] for arm in results["arms"]] == list(PURCHASES)
            assert client.privacy(DEMO_EXPERIMENT)["per_person"]["epsilon"] == 1.0
            client.pause(DEMO_EXPERIMENT)
            time.sleep(1.5)
            before = client.resume(DEMO_EXPERIMENT)["decisions"]
            deadline = time.monotonic() + 60
            while client.experiment(DEMO_EXPERIMENT)["decisions"] < before + 20:  # they come back
                assert time.monotonic() < deadline
                time.sleep(0.2)
        process.wait_for(r"('\w+' (leads|is the best))")
        assert process.end(signal.SIGINT) == 0
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=1)


def test_the_demo_says_how_many_visitors_a_winner_takes() -> None:
    """Rates that shops have; the median of 60 simulated runs is within 20 % of what it says."""
    assert 0.01 <= min(PURCHASES.values()) < max(PURCHASES.values()) <= 0.1
    assert f"about {WINNER_AFTER:,} visitors" in ABOUT
    (row,) = bl.simulate(
        bl.policy(POLICY, arms=len(PURCHASES), **PARAMETERS),
        bl.environment("bernoulli", means=list(PURCHASES.values())),
        horizon=4 * WINNER_AFTER,
        repetitions=60,
        seed=1,
        delay=bl.Delay(mean=VISITORS * REPORT_DELAY, lost=LOST_SHARE),
        settle="window",
        patience=int(VISITORS * WINDOW),
        missing=0.0,
        winners=True,
    ).winners()
    assert (row.right, row.wrong) == (1.0, 0.0)
    assert 0.8 < row.median_round / WINNER_AFTER < 1.2
