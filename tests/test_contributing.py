"""The checklist for a policy is complete: a throw-away one needs its own file and its test."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOOLS = Path(sys.executable).parent

POLICY = '''"""DP-ETC: explore, release once, commit (a throw-away policy, Algorithm 1)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from balaclava._core.declared import Epsilon, Range
from balaclava._core.kernels import kernel
from balaclava.policies.base import Kernels, PrivateBoundedPolicy, register
from balaclava.privacy.mechanisms.laplace import laplace_release


class Params(NamedTuple):
    """What the kernels see."""

    arms: int
    reward_range: tuple[float, float]
    epsilon: float
    pulls: int


class Explored(NamedTuple):
    """Counts and sums of each arm, and the arm to commit to."""

    counts: np.ndarray
    sums: np.ndarray
    chosen: np.ndarray  # -1 before


@kernel
def begin(params: Params) -> Explored:
    arms = params.arms
    return Explored(
        counts=np.zeros(arms, np.int64), sums=np.zeros(arms), chosen=np.full(1, -1, np.int64)
    )


@kernel(borrows=True)
def choose(params: Params, state: Explored, t: int, context: Any, rng: Any) -> tuple[int, int]:
    return (t - 1) % params.arms if state.chosen[0] < 0 else state.chosen[0], 0


@kernel(borrows=True)
def learn(
    params: Params, state: Explored, t: int, arm: int, reward: float, phase: int, rng: Any
) -> None:
    if state.counts[arm] == params.pulls:
        return
    state.counts[arm] += 1
    state.sums[arm] += reward
    explored = 0
    for a in range(params.arms):
        explored += state.counts[a] == params.pulls
    if explored == params.arms:
        for a in range(params.arms):
            state.sums[a] = laplace_release(rng, state.sums[a], 1.0, params.epsilon)
        state.chosen[0] = np.argmax(state.sums)


@register
class DPETC(PrivateBoundedPolicy):
    """Pull every arm `pulls` times, then play the arm whose noisy sum is highest.

    For a first look only: elimination and indices have less regret.

    Privacy:
        epsilon-differential privacy of the whole trajectory. Each reward enters one released
        sum, of sensitivity 1; what comes later is not looked at.

    Parameters:
        epsilon: privacy loss.
        pulls: of each arm, before it is decided.

    Example:
        >>> import balaclava as bl
        >>> agent = bl.policy("dp-etc", arms=2, epsilon=5.0, pulls=20).agent(seed=1)
        >>> for _ in range(40):
        ...     decision = agent.ask()
        ...     agent.tell(decision, reward=(0.1, 0.9)[decision.arm])
        >>> agent.ask().arm
        1

    References:
        Nobody. A throw-away policy. 2001.
    """

    name = "dp-etc"
    reference = "Nobody 2001"
    kernels: ClassVar[Kernels] = Kernels(begin, choose, learn)
    epsilon: Epsilon
    pulls: Annotated[int, Range(1, 10**6)] = 5

    def constants(self) -> Params:
        return Params(self.arms, self.reward_range, self.epsilon, self.pulls)
'''

TEST = '''"""DP-ETC decides once, by what it was told."""

from __future__ import annotations

import balaclava as bl


def test_the_better_arm_is_played_for_good() -> None:
    agent = bl.policy("dp-etc", arms=2, epsilon=100.0, pulls=3).agent(seed=1)
    arms = []
    for _ in range(20):
        decision = agent.ask()
        arms.append(decision.arm)
        agent.tell(decision, reward=float(decision.arm))
    assert arms == [0, 1] * 3 + [1] * 14
'''


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with two files more: a policy, and its test."""
    house = tmp_path_factory.mktemp("house")
    for path in ("src", "tests", "docs", "benchmarks", "examples"):
        unneeded = shutil.ignore_patterns("__pycache__", ".*_cache")
        shutil.copytree(ROOT / path, house / path, ignore=unneeded)
    for file in ROOT.iterdir():
        if file.is_file() and file.suffix in (".md", ".toml", ".cff"):
            shutil.copy(file, house)
    (house / "src/balaclava/policies/bounded/dp_etc.py").write_text(POLICY, encoding="utf-8")
    (house / "tests/policies/bounded/test_dp_etc.py").write_text(TEST, encoding="utf-8")
    return house


def run(house: Path, *command: str) -> None:
    done = subprocess.run(
        command,
        cwd=house,
        env={**os.environ, "PYTHONPATH": str(house / "src")},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def test_it_keeps_the_style_and_the_direction_of_imports(house: Path) -> None:
    run(house, str(TOOLS / "ruff"), "check", "--no-cache", "src", "tests/policies")
    run(house, str(TOOLS / "ruff"), "format", "--no-cache", "--check", "src", "tests/policies")
    run(house, str(TOOLS / "lint-imports"), "--no-cache")


@pytest.mark.conformance
@pytest.mark.slow
def test_it_needs_no_other_file(house: Path) -> None:
    """Its test and its doctest, the conformance suite, a quick audit, and all that lists it."""
    tests = (
        "tests/policies/bounded/test_dp_etc.py",
        "src/balaclava/policies/bounded/dp_etc.py",
        "tests/testing/test_conformance.py",
        "tests/auditing/test_audit.py",
        "tests/oracles",
        "tests/test_docs.py",
        "tests/test_house.py",
        "tests/cli/test_cli.py",
        "tests/advice/choose/test_recommend.py",
    )
    chosen = (
        "dp_etc or dp-etc or every_policy or every_bounded or policy_page or links or names "
        "or gallery_shows or keep_to_the_project or catalogue or known"
    )
    pytest_ = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist")
    run(house, *pytest_, *tests, "-k", chosen)
