"""The doors: public names, what authors import, and plug-ins of installed distributions."""

from __future__ import annotations

import ast
import importlib
import math
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Annotated

import pytest

import balaclava as bl
from balaclava import authoring
from balaclava.authoring import Environment, Epsilon, Policy, PositiveMeans, Range, kernel
from balaclava.errors import ParameterError, PolicyError
from balaclava.testing import ConformanceError, check_environment
from balaclava.testing.environment_checks import independent_rounds_are_equal

ROOT = Path(__file__).parents[1]
PAGES = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
OUTSIDE = [  # what only uses the package, or plays somebody who does
    *PAGES,
    *(ROOT / "docs").glob("*.py"),
    *(ROOT / "docs" / "extensions").glob("*.py"),
    *(ROOT / "examples").iterdir(),
    *(ROOT / "benchmarks").glob("*.py"),
    *(ROOT / "tests" / "oracles").rglob("*.py"),
]


def test_packages_are_packages() -> None:
    import balaclava.environments.bernoulli as environment
    import balaclava.policies.bounded.dp_imed as policy

    assert policy.DPIMED is bl.list_policies()[names(bl.list_policies()).index("dp-imed")].policy
    assert environment.Bernoulli.name == "bernoulli"
    assert bl.policies.__path__
    assert bl.environments.__path__


def names(entries: list) -> list[str]:
    return [entry.name for entry in entries]


def test_public_names_are_listed_once() -> None:
    stub = ast.parse((ROOT / "src" / "balaclava" / "__init__.pyi").read_text(encoding="utf-8"))
    lines = [line for line in stub.body if isinstance(line, ast.ImportFrom)]
    listed = [name.asname for line in lines for name in line.names]
    assert sorted(listed) == bl.__all__ == dir(bl)
    assert len(set(listed)) == len(listed)


def test_names_on_the_pages_exist() -> None:
    """`bl.name`, and every import of the package, in code and in text."""
    checked = 0
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for name in set(re.findall(r"\bbl\.(\w+)", text)):
            assert hasattr(bl, name), f"{page.name} mentions bl.{name}"
            checked += 1
        for dotted in set(re.findall(r"`(balaclava(?:\.\w+)+)", text)):
            assert resolves(dotted), f"{page.name} mentions {dotted}"
            checked += 1
    assert checked > 40


def resolves(dotted: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    try:
        importlib.import_module(dotted)
    except ModuleNotFoundError:
        module, _, name = dotted.rpartition(".")
        return hasattr(importlib.import_module(module), name)
    return True


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_nothing_outside_imports_an_underscore(path: Path) -> None:
    if path.is_file():
        uses = re.findall(r"balaclava\._\w*", path.read_text(encoding="utf-8"))
        assert not uses, f"{path.name} uses {uses[0]}; import from balaclava.authoring"


def test_the_old_listing_functions_are_gone() -> None:
    for path in (*OUTSIDE, *(ROOT / "src").rglob("*.py")):
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"\bbl\.(policies|environments)\(", text), path


def test_every_kind_of_parameter_has_its_door() -> None:
    """And every frame, but those of the drivers."""
    from balaclava._core import declared

    kinds = {name for name, thing in vars(declared).items() if hasattr(thing, "__metadata__")}
    assert kinds <= set(authoring.__all__)
    left_out = {"patience", "arm_slots", "leases", "__init__"}
    for path in (ROOT / "src" / "balaclava" / "frames").glob("*.py"):
        module = importlib.import_module(f"balaclava.frames.{path.stem}")
        if path.stem in left_out:
            continue
        assert getattr(authoring, path.stem, None) is module, f"frames.{path.stem} has no door"


class BareArm(bl.Policy):
    """Its `choose` forgets the phase."""

    name = "bare-arm"
    kernels = bl.policy("ucb1", arms=1).kernels._replace(choose=lambda *_: 0)


class Broken(bl.Policy):
    """Its `choose` raises the same kind of error."""

    name = "broken-choose"
    kernels = bl.policy("ucb1", arms=1).kernels._replace(choose=lambda *_: sum(None))


def test_choose_without_a_phase_says_what_is_wanted() -> None:
    wanted = "bare-arm: its `choose` must return an arm and the phase.*write `return arm, 0`"
    with pytest.raises(PolicyError, match=wanted):
        BareArm(arms=2).agent(seed=1).ask()
    world = bl.environment("bernoulli", means=[0.2, 0.8])
    with pytest.raises(PolicyError, match=wanted):
        bl.simulate(BareArm(arms=2), world, horizon=10, repetitions=1, seed=1)
    with pytest.raises(TypeError, match="not iterable"):  # an error of the author's own code
        Broken(arms=2).agent(seed=1).ask()


def test_kinds_may_be_local() -> None:
    """A class may be written inside a function, and its annotations be text: here they are."""
    Share = Annotated[float, Range(0, 1, "a share")]

    class Local(Policy):
        """For this test."""

        name = "local-kinds"
        share: Share = 0.5
        epsilon: Epsilon

    class Narrower(Local):
        """Adds one more."""

        name = "narrower"
        other: Share

    assert list(Narrower.annotations) == ["arms", "share", "epsilon", "other"]
    with pytest.raises(ParameterError, match=r"other = 2 is not allowed.*in \[0, 1\]"):
        Narrower(arms=2, epsilon=1.0, other=2)
    with pytest.raises(ParameterError, match=r"epsilon = 0 is not allowed"):
        Narrower(arms=2, epsilon=0, other=0.1)


class Waiting(Environment):
    """Waiting times: exponential rewards."""

    name = "waiting-here"
    means: PositiveMeans
    reward_range = (0.0, math.inf)

    @staticmethod
    @kernel(borrows=True)
    def draw(world, t, arm, rng):
        return rng.exponential(world.means[arm])


class OutOfRange(Waiting):
    """Says that rewards are at most 1, and draws larger ones."""

    name = "out-of-range"
    reward_range = (0.0, 1.0)


class OutOfStep(Waiting):
    """Uses up more random numbers for the second arm."""

    name = "out-of-step"

    @staticmethod
    @kernel(borrows=True)
    def draw(world, t, arm, rng):
        reward = 0.0
        for _ in range(arm + 1):
            reward = rng.exponential(world.means[arm])
        return reward


class OffTheMark(Waiting):
    """Draws twice what its means say."""

    name = "off-the-mark"

    @staticmethod
    @kernel(borrows=True)
    def draw(world, t, arm, rng):
        return rng.exponential(2.0 * world.means[arm])

    def moments(self, order, *, central=False):
        return math.gamma(order + 1) * self.means**order if not central else self.means**2


class Fading(Waiting):
    """Draws less and less, and does not say so."""

    name = "fading"

    @staticmethod
    @kernel(borrows=True)
    def draw(world, t, arm, rng):
        return rng.exponential(world.means[arm]) / t


class SaidToFade(Fading):
    """The same, which says so."""

    name = "said-to-fade"
    independent = False


def test_rounds_that_differ_must_be_said() -> None:
    independent_rounds_are_equal(SaidToFade(means=[1.0, 2.0]))
    with pytest.raises(ConformanceError, match="its rounds differ"):
        independent_rounds_are_equal(Fading(means=[1.0, 2.0]))


def test_an_environment_of_ones_own_passes() -> None:
    check_environment(Waiting(means=[1.0, 2.0]))


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (OutOfRange, "draws outside"),
        (OutOfStep, "different random numbers"),
        (OffTheMark, "arm 0 do not average to its mean"),
    ],
)
def test_a_faulty_environment_is_caught(cls, message) -> None:
    with pytest.raises(ConformanceError, match=message):
        check_environment(cls(means=[1.0, 2.0]))


PLUG_IN = """
    import math
    from balaclava.authoring import (
        Environment, Kernels, Policy, PositiveMeans, begin_tally, kernel, learn_tally,
        register_environment,
    )

    @kernel(borrows=True)
    def choose(params, state, t, context, rng):
        return t % params.arms, 0

    class InTurn(Policy):
        "Each arm in its turn."
        name = "in-turn"
        kernels = Kernels(begin_tally, choose, learn_tally)

    class Taken(Policy):
        "Under a name that is taken."
        name = "ucb1"
        kernels = Kernels(begin_tally, choose, learn_tally)

    @register_environment
    class Constant(Environment):
        "Always the mean."
        name = "constant"
        means: PositiveMeans
        reward_range = (0.0, math.inf)

        @staticmethod
        @kernel(borrows=True)
        def draw(world, t, arm, rng):
            return world.means[arm]
"""

ENTRY_POINTS = """
    [balaclava.policies]
    in-turn = plugged:InTurn
    ucb1 = plugged:Taken
    nothing = plugged:Nothing

    [balaclava.environments]
    constant = plugged
    absent = no_such_module
"""

USE = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import balaclava as bl
    policy = bl.policy("in-turn", arms=2)
    world = bl.environment("constant", means=[1.0, 2.0])
    bl.list_policies(), bl.list_environments()
for warning in caught:
    print(warning.category.__name__, warning.message)
results = bl.simulate(policy, world, horizon=10, repetitions=2, seed=1)
print(results.final_regret("in-turn").tolist(), type(bl.policy("ucb1", arms=2)).__module__)
"""


@pytest.fixture
def distribution(tmp_path: Path) -> dict[str, str]:
    """An environment's variables, in which a distribution with plug-ins is installed."""
    (tmp_path / "plugged.py").write_text(textwrap.dedent(PLUG_IN))
    info = tmp_path / "some_bandits-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some-bandits\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(textwrap.dedent(ENTRY_POINTS))
    paths = [str(tmp_path), str(ROOT / "src")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def test_installed_plug_ins(distribution: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", USE], env=distribution, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    *caught, last = done.stdout.splitlines()
    assert last == "[5.0, 5.0] balaclava.policies.classic.ucb1"
    assert len(caught) == 3, caught
    assert all(line.startswith("PlugInWarning the plug-in ") for line in caught)
    assert all(line.endswith("update or uninstall some-bandits") for line in caught)
    for fault in ("'ucb1' is taken", "no attribute 'Nothing'", "No module named 'no_such_module'"):
        assert sum(fault in line for line in caught) == 1, fault


def test_plug_ins_on_the_command_line(distribution: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "balaclava", "policies", "in-turn"],
        env=distribution,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0
    assert "Each arm in its turn." in done.stdout
    lines = done.stderr.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("balaclava: warning: the plug-in ") for line in lines)
