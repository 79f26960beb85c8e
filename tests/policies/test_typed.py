"""Names and parameters of policies and environments are known before anything runs."""

from __future__ import annotations

import re
from pathlib import Path

import build_stubs as stubs
import pytest

import balaclava as bl
from balaclava import policies
from balaclava.errors import ParameterError
from balaclava.policies.base import POLICIES

ROOT = Path(__file__).parents[2]
CALLS = """
import balaclava as bl
from balaclava.policies import DPIMED
right: DPIMED = bl.policy("dp-imed", arms=["a", "b"], epsilon=1.0, horizon=100)
bl.policy("dp-imed", arms=3, epsilom=1.0).agent()
refused: bl.Policy = bl.policy("dp-se", arms=3)
bl.policy("robust-ucb", arms=3, horizon=9, moment_order=2.0, moment_bound=1, estimator="x").agent()
DPIMED(arms=3, epsilom=1.0)
bl.policy("doubling-ucb", arms=3, epsilon=1.0, first=3).agent()
for name in ("dp-se", "dp-imed"):
    bl.policy(name, arms=2, epsilon=1.0, horizon=9).agent()
for entry in bl.list_policies():
    bl.policy(entry.name, arms=2, horizon=9).agent()
bl.policy(bl.PolicyName("my-own"), arms=2, anything=3).agent()
bl.environment("bernoulli", means=[0.4, 0.6]).arms
bl.environment("my-own", means=[0.4, 0.6]).arms
bl.environment("pareto", means=[0.4, 0.6], shap=2.0).arms
bl.environment("linear", theta=[0.4, 0.6], noise="normal").arms
for world in bl.list_environments():
    bl.environment(world.name, anything=3).arms
"""


def test_stubs_have_every_name_and_parameter() -> None:
    text = stubs.factories_stub()
    for entry in [*bl.list_policies(), *bl.list_environments()]:
        cls = entry[1]
        if cls.__module__.startswith("balaclava."):
            _, _, signature = text.partition(f'name: Literal["{entry.name}"]')
            assert signature, entry.name
            signature, _, _ = signature.partition("@overload")
            for name in cls.annotations:
                assert f"    {name}: " in signature, (entry.name, name)
    assert "import DPIMED as DPIMED\n" in stubs.policies_stub()


@pytest.mark.slow  # half a minute where nothing is cached
def test_wrong_calls_are_errors_of_a_type_checker(tmp_path: Path) -> None:
    mypy = pytest.importorskip("mypy.api")
    stubs.write()
    file = tmp_path / "calls.py"
    file.write_text(CALLS, encoding="utf-8")
    config = str(ROOT / "pyproject.toml")
    output, _, status = mypy.run(["--strict", "--config-file", config, str(file)])
    assert status == 1
    errors = re.findall(r"calls\.py:(\d+): error: (.*)", output)
    assert [int(line) for line, _ in errors] == [5, 6, 7, 8, 17, 18]  # a line each
    said = dict(errors)
    assert "WrongParameters[Literal['dp-imed takes arms, epsilon; optional: " in said["5"]
    assert "WrongParameters[Literal['dp-se takes arms, epsilon; optional: " in said["6"]
    assert "WrongParameters[Literal['pareto takes means, shape']]" in said["17"]


def test_classes_by_name() -> None:
    from balaclava.policies import DPIMED

    assert POLICIES.get("dp-imed") is DPIMED
    assert "DPIMED" in dir(policies)
    with pytest.raises(ImportError):
        from balaclava.policies import DPIMEDD  # type: ignore[attr-defined]  # noqa: F401
    for name in dir(policies):
        assert getattr(policies, name).__name__ == name


def test_every_policy_takes_a_horizon() -> None:
    ucb1 = bl.policy("ucb1", arms=2, horizon=100)
    assert ucb1 == bl.policy("ucb1", arms=2)
    assert bl.policy("exp3", arms=2, horizon=100).horizon == 100
    with pytest.raises(ParameterError, match="ucb1: horizon = 0 is not allowed"):
        bl.policy("ucb1", arms=2, horizon=0)
    with pytest.raises(ParameterError, match="unknown parameter 'horizons'"):
        bl.policy(bl.PolicyName("ucb1"), arms=2, horizons=100)
