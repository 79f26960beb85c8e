"""A client generated from /openapi.json, by a generator from PyPI, against the real service."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from balaclava.service.http.app import create_app
from balaclava.service.service import Service
from tests.service.servers import in_a_thread


def test_every_operation_has_a_name_of_its_own(open_service: Callable[..., Service]) -> None:
    """Generated clients call their functions by it."""
    schema = create_app(open_service()).openapi()
    operations = [each for methods in schema["paths"].values() for each in methods.values()]
    names = Counter(each["operationId"] for each in operations)
    assert names["decide"] == names["reward"] == names["evaluateFlag"] == 1
    assert set(names.values()) == {1}
    assert all(name.isidentifier() for name in names)


@pytest.mark.slow
def test_a_generated_client_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openapi_python_client")
    with in_a_thread(tmp_path) as (address, key, _):
        document = tmp_path / "openapi.json"
        document.write_bytes(httpx.get(f"{address}/openapi.json").content)
        generated = subprocess.run(
            [
                *(sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none"),
                *("--path", str(document), "--output-path", str(tmp_path / "generated_client")),
            ],
            capture_output=True,
            text=True,
        )
        assert generated.returncode == 0, generated.stdout + generated.stderr
        assert "unsupported" not in generated.stdout.lower()
        monkeypatch.syspath_prepend(str(tmp_path))
        call = Caller(importlib.import_module("generated_client").AuthenticatedClient(address, key))
        _use(call)


class Caller:
    """Calls functions of the generated package by their names."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.models = importlib.import_module("generated_client.models")

    def __call__(self, operation: str, *path: str, **more: Any) -> Any:
        module = importlib.import_module(f"generated_client.api.{operation}")
        return module.sync(*path, client=self._client, **more)


def _use(call: Caller) -> None:
    """From an experiment to its results, with types and with errors."""
    models = call.models
    parameters = models.ExperimentInParameters.from_dict({"epsilon": 1.0})
    body = models.ExperimentIn("page", "dp-imed", ["plain", "map"], 3600.0, parameters)
    made = call("admin.create", body=body)
    assert isinstance(made, models.ExperimentOut)
    assert made.guarantee.epsilon == 1.0
    asked = models.DecisionsIn(request_id="r", person="ann", count=3)
    answer = call("decide.decide", "page", body=asked)
    assert [each.learns for each in answer.decisions] == [True, False, False]
    assert call("decide.decide", "page", body=asked).decisions == answer.decisions
    first = answer.decisions[0]
    receipt = call("decide.reward", first.decision_id, body=models.RewardIn(value=1.0))
    assert receipt.recorded is True
    results = call("read.results", "page", confidence=0.9)
    assert results.decisions == 3
    assert {arm.label for arm in results.arms} == {"plain", "map"}
    context = models.FlagContext(targeting_key="bob")
    flag = call("decide.evaluate_flag", "page", body=models.FlagRequest(context))
    assert flag.value in ("plain", "map")
    missing = call("read.results", "no such")
    assert isinstance(missing, models.ProblemOut)
    assert (missing.status, missing.detail) == (404, "this experiment does not exist")
