"""Installed without extras: an agent runs, a device reports, and what is missing says so.

The environments are real ones without this one's packages: each holds links to the distributions
that are asked for, and to what these require themselves.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import tomllib
import venv
from collections.abc import Iterable
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from balaclava._core.extras import EXTRAS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "balaclava"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def required(names: Iterable[str]) -> set[str]:
    """The distributions, and those that they require."""
    known: set[str] = set()
    waiting = [Requirement(name) for name in names]
    while waiting:
        name = waiting.pop().name
        if name not in known:
            known.add(name)
            needs = [Requirement(line) for line in distribution(name).requires or []]
            waiting += [need for need in needs if not need.marker or need.marker.evaluate()]
    return known


def environment(folder: Path, names: Iterable[str]) -> Path:
    """A virtual environment with these distributions and the package; its Python."""
    venv.create(folder, with_pip=False)
    site = next(folder.glob("lib/python*/site-packages"))
    (site / "balaclava").symlink_to(PACKAGE)
    for name in required(names):
        installed = distribution(name)
        tops = {file.parts[0] for file in installed.files or []} - {"..", "__pycache__"}
        for top in tops:
            (site / top).symlink_to(Path(str(installed.locate_file(top))))
    return folder / "bin" / "python"


def run(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-I", *arguments], capture_output=True, text=True, timeout=300, cwd=python.parent
    )


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("base") / "venv", PROJECT["dependencies"])


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("device") / "venv", ["numpy", "opendp"])


def test_the_extras_bring_what_the_base_goes_without() -> None:
    extras = PROJECT["optional-dependencies"]
    brings = {
        name: {Requirement(line).name.replace("-", "_") for line in lines}
        for name, lines in extras.items()
    }
    for module, extra in EXTRAS.items():
        assert module in brings[extra], f"{module} is not in the extra {extra!r}"
    base = {Requirement(line).name for line in PROJECT["dependencies"]}
    assert base == {"numpy", "opendp", "click", "rich"}


def test_the_oldest_versions_are_those_that_are_tried() -> None:
    """The lower end of every range of the base and of the lab is in the lock file."""
    lines = (ROOT / "requirements-oldest.lock").read_text(encoding="utf-8").splitlines()
    tried = dict(line.lower().rstrip(" \\").split("==") for line in lines if "==" in line)
    extras = PROJECT["optional-dependencies"]
    for line in (*PROJECT["dependencies"], *extras["lab"], *extras["files"], *extras["sweep"]):
        requirement = Requirement(line)
        (least,) = [part.version for part in requirement.specifier if part.operator == ">="] or [""]
        if least:
            assert Version(tried[requirement.name.lower()]).release[
                : len(least.split("."))
            ] == tuple(int(part) for part in least.split(".")), requirement.name


def test_the_base_is_alone(base: Path) -> None:
    """The environment is what it claims to be: nothing of the extras can be imported."""
    code = "import sys; from importlib.util import find_spec as f; print(*filter(f, sys.argv[1:]))"
    done = run(base, "-c", code, *EXTRAS, "pytest")
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr


AGENTS = """
import json
import balaclava as bl
from balaclava.testing import examples

worked = []
for entry in bl.list_policies():
    for policy in examples(entry.policy):
        agent = policy.agent()
        for _ in range(20):
            context = policy.practice_context
            decision = agent.ask() if context is None else agent.ask(context)
            low, high = policy.accepts
            reward = low if low > float("-inf") else 0.25
            if policy.report_kernel is None:
                agent.tell(decision, reward)
            else:
                level = agent.report_level(decision)
                agent.tell_report(decision, policy.report(reward, level))
        assert agent.guarantee.explain()
        assert str(agent)
        agent = bl.restore(json.loads(json.dumps(agent.save())))
        agent.ask() if context is None else agent.ask(context)
    worked.append(entry.name)
print(json.dumps(worked))
"""


def test_every_policy_runs_as_an_agent(base: Path) -> None:
    done = run(base, "-c", AGENTS)
    assert done.returncode == 0, done.stderr[-3000:]
    worked = json.loads(done.stdout)
    files = [
        path for path in (PACKAGE / "policies").rglob("*.py") if "@register" in path.read_text()
    ]
    assert len(worked) >= len(files) > 40


MISSING = """
import balaclava as bl
from balaclava.errors import MissingPartError

world = bl.environment("bernoulli", means=[0.4, 0.6])
policy = bl.policy("dp-ftpl-new", arms=2, epsilon=1.0, delta=0.01, horizon=100)
for act in (
    lambda: bl.simulate(policy, world, horizon=10, repetitions=1, seed=1),
    lambda: bl.audit(policy, trials=100),
    lambda: bl.calibrate(bl.policy("dp-se", arms=2, epsilon=1.0, horizon=100), [world],
                         horizon=100, repetitions=2, seed=1),
    lambda: bl.load("results.parquet"),
    lambda: bl.reproduce("wang2024-fig1"),
    lambda: bl.environment("empirical", path="log.csv", arm="arm", reward="reward"),
    lambda: bl.environment("gaussian", means=[0.0, 1.0]).moment(2),
    lambda: policy.guarantee.over(5, delta=0.1),
    lambda: bl.testing.check_policy(bl.policy("ucb1", arms=2)),
):
    try:
        act()
    except MissingPartError as error:
        assert isinstance(error, ImportError)
        print(error)
"""


def test_what_is_missing_names_its_extra(base: Path) -> None:
    done = run(base, "-c", MISSING)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert lines[0] == (
        "simulation needs numba, which is not installed; install it with "
        "pip install 'balaclava[lab]'"
    )
    assert len(lines) == MISSING.count("lambda")
    extras = [line.rpartition("pip install ")[2] for line in lines]
    lab, files = "'balaclava[lab]'", "'balaclava[files]'"
    assert extras == [lab, lab, lab, files, files, files, lab, lab, lab], lines


def test_a_command_says_in_one_line_what_is_missing(base: Path, tmp_path: Path) -> None:
    experiment, log = tmp_path / "quickstart.toml", tmp_path / "log.csv"
    experiment.write_bytes((ROOT / "examples" / "quickstart.toml").read_bytes())
    log.write_text("page,clicked\na,1\nb,0\na,0\nb,1\n")
    for arguments in (
        ("simulate", str(experiment), "--out", str(tmp_path / "out")),
        ("demo", "--out", str(tmp_path / "demo")),
        ("audit", "dp-se", "--epsilon", "1"),
        ("compare", str(log), "--arm", "page", "--reward", "clicked"),
        ("explore", str(log), "--arm", "page", "--reward", "clicked"),
        ("reproduce", "wang2024-fig1", "--out", str(tmp_path / "figure")),
    ):
        extra = "lab" if arguments[0] in ("demo", "audit") else "files"
        done = run(base, "-m", "balaclava", *arguments)
        assert done.returncode == 2, (arguments, done.stderr)
        (line,) = done.stderr.splitlines()
        assert line.startswith("balaclava: ")
        assert line.endswith(f"install it with pip install 'balaclava[{extra}]'")


def test_the_service_and_its_client_name_their_extras(base: Path) -> None:
    done = run(base, "-c", "from balaclava.client import Client; Client('http://127.0.0.1:8765')")
    assert done.stderr.rstrip().endswith("pip install 'balaclava[client]'")
    for arguments, extra in ((("--demo",), "serve"), (("--database", "postgresql://h/d"), "serve")):
        done = run(base, "-m", "balaclava", "serve", *arguments)
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert line.endswith(f"install it with pip install 'balaclava[{extra}]'")


def test_commands_that_need_no_extra(base: Path) -> None:
    for arguments in (
        ("--help",),
        ("policies", "dp-imed"),
        ("environments",),
        ("reproduce", "--list"),
    ):
        done = run(base, "-m", "balaclava", *arguments)
        assert (done.returncode, done.stderr) == (0, ""), arguments


DEVICE = """
import sys
from balaclava.privacy.device_report import truncated_report
from balaclava.privacy.mechanisms.randomized_response import bernoulli_report
from balaclava.privacy.randomness import SystemRandomness

reports = [truncated_report(3.7, level=10.0, epsilon=1.0) for _ in range(20)]
bits = {bernoulli_report(SystemRandomness(), 0.5, 1.0) for _ in range(200)}
print(len(set(reports)), sorted(bits), sorted({"click", "rich"} & set(sys.modules)))
"""


def test_a_device_reports_with_numpy_and_opendp_alone(device: Path) -> None:
    """Two of 20 reports are equal with a chance below 10^-4, on a grid of a million steps."""
    assert run(device, "-c", "import click").returncode == 1
    assert run(device, "-c", "import rich").returncode == 1
    done = run(device, "-c", DEVICE)
    assert done.stdout.strip() == "20 [0.0, 1.0] []", done.stderr


# Where a part is asked for on behalf of what is only reached from there.
DOORS = {
    "_core/cache.py": "_core/kernels.py",
    "_core/fast_compiler.py": "_core/kernels.py",
    "auditing/games/device_games.py": "simulation/gpu/device.py",
    "client/": "client/clients.py",
    "logs/numerals.py": "logs/reader.py",
    "papers/": "papers/harness/reproduction.py",
    "service/": "cli/commands/serve_command.py",
    "simulation/gpu/": "simulation/gpu/device.py",
}


def part_uses(path: Path) -> tuple[set[str], set[str]]:
    """The parts that a module imports when it runs, and those that it asks for first."""
    imported, asked = set(), set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in set(ast.walk(tree)) - typing_only:
        if isinstance(node, ast.Import):
            imported |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").split(".")[0])
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "require_extra":
            asked |= {name.value for name in node.args[:1] if isinstance(name, ast.Constant)}
    return imported & set(EXTRAS), asked


def test_no_part_is_imported_unasked() -> None:
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        imported, asked = part_uses(path)
        door = next((door for inside, door in DOORS.items() if name.startswith(inside)), None)
        if imported and door:
            text = (PACKAGE / door).read_text(encoding="utf-8")
            assert re.search(r"\b(require_extra|find_spec)\(", text), f"{door} asks for no part"
            continue
        assert imported <= asked, (
            f"{name} imports {sorted(imported - asked)}, which the base goes without; call "
            "require_extra(module, purpose) before the import"
        )
