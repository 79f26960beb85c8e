"""The command line: help, errors in one line, plug-ins, completion."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import balaclava as bl
from balaclava.cli import main
from tests.cli.running import invoke


def test_import_after_the_command_says_where_it_stands() -> None:
    answer = invoke("simulate", "--import", "mine", "sweep.toml")
    assert answer.exit_code == 2
    assert "balaclava --import MODULE simulate ..." in answer.output
    assert "No such option '--improt'" in invoke("simulate", "--improt", "x").output


def test_help_teaches_and_version() -> None:
    assert invoke("--version").output == f"main {bl.__version__}\n"
    for command in ("policies", "environments", "demo", "simulate"):
        answer = invoke(command, "--help")
        assert answer.exit_code == 0
        assert f"Example: balaclava {command}" in answer.output
        assert command in invoke("--help").output


def test_help_is_light() -> None:
    code = (
        "import sys\nfrom balaclava.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit as end: assert end.code == 0\n"
        "heavy = ('numba', 'scipy', 'pyarrow', 'matplotlib', 'opendp', 'numpy', 'rich')\n"
        "print(*(name for name in heavy if name in sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stderr, done.returncode) == ("\n", 0)
    assert "balaclava demo" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("policies", "ucb2"), "no policy is called 'ucb2'; did you mean 'ucb1'?"),
        (
            ("policies", "my-own"),
            "import its module first: on the command line, balaclava --import",
        ),
        (("environments", "bernouli"), "did you mean 'bernoulli'?"),
        (("simulate", "none.toml"), "none.toml does not exist; check the path"),
        (("simulate", "small.toml", "--out", "small.toml"), "cannot be created or written"),
        (("--import", "no_such_module", "policies"), "No module named 'no_such_module'"),
    ],
)
def test_errors_are_one_line(experiment: Path, arguments: tuple[str, ...], message: str) -> None:
    answer = invoke(*arguments)
    assert answer.exit_code == 2
    assert answer.stdout == ""
    assert answer.stderr.startswith("balaclava: ")
    assert answer.stderr.count("\n") == 1
    assert message in answer.stderr


def test_policy_of_ones_own(experiment: Path, tmp_path: Path) -> None:
    (tmp_path / "my_policies.py").write_text(
        "import balaclava as bl\n"
        "@bl.register\n"
        "class Mine(bl.Policy):\n"
        "    'Mine.'\n"
        "    name = 'mine'\n"
        "    kernels = bl.policy('ucb1', arms=1).kernels\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "balaclava", "--import", "my_policies", "policies"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert any(line.startswith("mine ") for line in done.stdout.splitlines())


def test_names_complete_in_the_shell() -> None:
    for words, names in (("audit dp-ime", ["dp-imed"]), ("environments stu", ["student-t"])):
        environment = {
            "COMP_WORDS": f"balaclava {words}",
            "COMP_CWORD": "2",
            "_BALACLAVA_COMPLETE": "bash_complete",
        }
        answer = CliRunner().invoke(main, [], env=environment, prog_name="balaclava")
        assert answer.output.split() == [f"plain,{name}" for name in names]
