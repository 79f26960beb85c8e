"""The Model Context Protocol, as a host speaks it: JSON-RPC over the pipes of `balaclava mcp`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from balaclava.client import Client
from tests.service.servers import in_a_thread


class Host:
    """A host with a server of its own, which it asks one request after the other."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self._number = 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", "balaclava", "mcp", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **environment},
            text=True,
        )

    def send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": parameters}
        self.send(json.dumps(message))
        answer = self.receive()
        assert (answer["jsonrpc"], answer["id"]) == ("2.0", self._number)
        return answer

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        return self.ask("tools/call", name=tool, arguments=arguments)["result"]

    def close(self) -> int:
        """End the input, as a host does; the server's status."""
        self._process.communicate(timeout=60)
        return self._process.returncode


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """A host with an admin's key, who is given less than the key may read."""
    with in_a_thread(tmp_path) as (address, key, _):
        with Client(address, key) as client:
            more: dict[str, Any] = {"parameters": {"epsilon": 1.0}, "reward_window": 3600.0}
            client.create_experiment("page", "dp-imed", ["plain", "map"], **more)
            client.rewards([(each, 1.0) for each in client.decide("page", count=10)])
        host = Host("--url", address, BALACLAVA_KEY=key)
        yield host
        assert host.close() == 0


def test_a_host_reads_experiments(host: Host) -> None:
    began = host.ask("initialize", protocolVersion="2025-06-18", capabilities={})["result"]
    assert began["protocolVersion"] == "2025-06-18"
    assert began["capabilities"] == {"tools": {}}
    host.send('{"jsonrpc": "2.0", "method": "notifications/initialized"}')  # no answer
    assert host.ask("ping")["result"] == {}
    tools = {each["name"]: each for each in host.ask("tools/list")["result"]["tools"]}
    assert tools.keys() == {
        *("list_experiments", "experiment_results", "experiment_privacy", "experiment_plan")
    }
    assert all(each["annotations"]["readOnlyHint"] for each in tools.values())
    listed = host.call("list_experiments")
    assert listed["structuredContent"]["experiments"][0]["name"] == "page"
    assert json.loads(listed["content"][0]["text"]) == listed["structuredContent"]
    results = host.call("experiment_results", experiment="page", confidence=0.9)
    assert results["structuredContent"]["decisions"] == 10
    # An admin's key reads counts of arrived rewards, which have no noise: they do not leave here.
    assert "windows" not in results["structuredContent"]
    assert "rewarded" not in results["content"][0]["text"]
    privacy = host.call("experiment_privacy", experiment="page")
    assert privacy["structuredContent"]["guarantee"]["epsilon"] == 1.0
    plan = host.call("experiment_plan", experiment="page", smallest_difference=0.1)
    assert plan["structuredContent"]["learning_decisions"] == 10


def test_errors_are_answers(host: Host) -> None:
    unknown = host.ask("initialize", protocolVersion="1999-01-01")["result"]
    assert unknown["protocolVersion"] == "2025-11-25"
    missing = host.call("experiment_results", experiment="no such")
    assert missing["isError"]
    assert "does not exist" in missing["content"][0]["text"]
    assert host.call("experiment_plan", experiment="page", confidence=7)["isError"]
    for tool, arguments in (
        ("experiment_results", {}),
        ("experiment_results", {"experiment": 7}),
        ("list_experiments", {"experiment": "page"}),
        ("finish", {"experiment": "page"}),
    ):
        answer = host.ask("tools/call", name=tool, arguments=arguments)
        assert answer["error"]["code"] == -32602
    assert host.ask("resources/list")["error"]["code"] == -32601
    for line, code in (("{", -32700), ("[]", -32600), ('{"id": 1}', -32600)):
        host.send(line)
        assert host.receive()["error"]["code"] == code
