"""The command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import balaclava as bl
from balaclava.cli import main

EXPERIMENT = """
horizon = 500
repetitions = 3
seed = 1

[environment]
name = "bernoulli"
means = [0.4, 0.6]

[policies.ucb1]

[policies.bolder]
name = "ucb1"
radius_scale = 0.5
"""
QUICKSTART = Path(__file__).parents[2] / "examples" / "quickstart.toml"


def invoke(*arguments: Any) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "small.toml"
    path.write_text(EXPERIMENT)
    return path


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


def test_policies() -> None:
    answer = invoke("policies")
    assert answer.exit_code == 0
    header, *lines = answer.output.splitlines()
    assert header.split()[0] == "policy"
    assert len(lines) == len(bl.list_policies())  # one line each, not wrapped at 80 columns
    (line,) = [line for line in lines if line.startswith("ucb1 ")]
    assert "sqrt(2 log t / n)" in line
    assert line.endswith("Auer, Cesa-Bianchi, Fischer 2002")
    assert "\x1b" not in answer.output
    names = {line.split()[0] for line in invoke("policies", "--private").output.splitlines()[1:]}
    assert names == {entry.name for entry in bl.list_policies() if entry.guarantee != "none"}
    assert "ucb1 " in invoke("policies", "--not-private").output


def test_one_policy() -> None:
    answer = invoke("policies", "ucb1")
    assert "rewards in [0, 1]" in answer.output  # not eaten as markup
    assert "radius_scale  1.0       a number above 0" in answer.output
    assert "arms          required  a whole number at least 1  number of arms" in answer.output


def test_environments() -> None:
    answer = invoke("environments")
    assert len(answer.output.splitlines()) == 1 + len(bl.list_environments())
    assert "chance of a reward of 1" in invoke("environments", "bernoulli").output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("policies", "ucb2"), "no policy is called 'ucb2'; did you mean 'ucb1'?"),
        (("environments", "bernouli"), "did you mean 'bernoulli'?"),
        (("simulate", "none.toml"), "none.toml does not exist; check the path"),
        (("simulate", "small.toml", "--out", "small.toml"), "cannot be made"),
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


def test_simulate(experiment: Path, tmp_path: Path) -> None:
    answer = invoke("simulate", experiment)
    assert answer.exit_code == 0, answer.output
    assert answer.stderr == ""  # no progress where nobody looks
    out = tmp_path / "small-results"
    assert {path.name for path in out.iterdir()} == {
        "cells",
        "manifest.json",
        "results.parquet",
        "regret.png",
        "summary.txt",
    }
    results = bl.load(out / "results.parquet")
    assert results.regret("bolder").shape[0] == 3
    table = str(results.summary())
    assert (out / "summary.txt").read_text(encoding="utf-8") == table + "\n"
    assert answer.stdout.startswith(table)
    before = (out / "results.parquet").read_bytes()
    invoke("simulate", experiment, "--workers", 2, "--out", tmp_path / "again")
    assert (tmp_path / "again" / "results.parquet").read_bytes() == before


@pytest.mark.parametrize("name", ["dp-imed", "prae-central", "dp-htinf-experts"])
def test_what_a_policy_inherits_is_shown(name: str) -> None:
    output = invoke("policies", name).output
    assert "What never comes counts nowhere" in output
    assert "holdout" in output
    assert ("explore " in output) == (name != "dp-htinf-experts")


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


def test_demo_policies_fit_together() -> None:
    from balaclava.cli.commands.demo_command import DEMO_HORIZON, DEMO_MEANS, demo_policies
    from balaclava.simulation.engine import require_compatible

    baseline, *private = demo_policies()
    assert baseline.name == "imed"
    assert [policy.guarantee.epsilon for policy in private] == [1.0] * 6
    assert {policy.scope for policy in private} == {"trajectory", "decision", "report"}
    assert {policy.rewards for policy in private} == {"bounded", "real"}
    world = bl.environment("bernoulli", means=DEMO_MEANS)
    for policy in (baseline, *private):
        require_compatible(policy.name, policy, world, DEMO_HORIZON)


def test_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two policies for speed: which are chosen is tested above."""
    few = {"imed": {}, "ldp-ucb-bernoulli": {"epsilon": 1.0}}
    monkeypatch.setattr("balaclava.cli.commands.demo_command._DEMO_POLICIES", few)
    out = tmp_path / "pictures"
    answer = invoke("demo", "--out", out)
    assert answer.exit_code == 0, answer.output
    assert "ldp-ucb-bernoulli  ε=1 per report  consistent  0." in answer.output
    assert answer.output.endswith(
        f"wrote {out / 'demo.png'}\nwrote {out / 'report.html'}: open it in a browser\n"
    )
    assert (out / "demo.png").stat().st_size > 10_000
    assert "ldp-ucb-bernoulli" in (out / "report.html").read_text(encoding="utf-8")


def test_quickstart_is_readable() -> None:
    from balaclava.experiments.experiment_file import read_experiment

    assert "ucb1" in read_experiment(QUICKSTART).policies


@pytest.mark.crash
@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_ctrl_c_keeps_what_was_finished(experiment: Path, tmp_path: Path) -> None:
    """A real process with a real terminal for its progress, and a real SIGINT."""
    import pty

    bl.simulate(  # leaves the compiled loop on disk
        bl.policy("ucb1", arms=2),
        bl.environment("bernoulli", means=[0.4, 0.6]),
        horizon=1,
        repetitions=1,
        seed=0,
    )
    text = EXPERIMENT.replace("horizon = 500", "horizon = 200000")
    experiment.write_text(text.replace("repetitions = 3", "repetitions = 20000"))
    terminal, child_side = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "balaclava", "simulate", str(experiment), "--workers", "1"],
        stdout=subprocess.PIPE,
        stderr=child_side,
        cwd=tmp_path,
        # A test run in the background hands down an ignored SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    os.close(child_side)
    try:
        seen = b""
        while b"playing" not in seen:
            seen += os.read(terminal, 4096)
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline:
            seen += os.read(terminal, 4096)
        process.send_signal(signal.SIGINT)
        try:
            while more := os.read(terminal, 4096):
                seen += more
        except OSError:
            pass  # how Linux says that the other side has closed
        stdout, _ = process.communicate(timeout=20)
    finally:
        process.kill()
        os.close(terminal)
    assert process.returncode == 130
    results = bl.load(tmp_path / "small-results" / "results.parquet")
    finished = sum(results.final_regret(label).size for label in results.labels)
    assert 0 < finished < 40000
    assert f"interrupted after {finished} of 40000 repetitions; they are kept in" in seen.decode()
    assert "rounds/s" in seen.decode()
    assert str(results.summary()) in stdout.decode()
    assert (tmp_path / "small-results" / "regret.png").exists()


@pytest.mark.crash
def test_ctrl_c_before_anything_is_finished(
    experiment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from balaclava.simulation.engine import Pool

    def interrupted(self: Pool, *_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Pool, "finished", interrupted)
    answer = invoke("simulate", experiment)
    assert answer.exit_code == 130
    assert "after 0 of 6 repetitions; nothing was finished; run the same" in answer.stderr
    out = tmp_path / "small-results"
    assert sorted(path.name for path in out.iterdir()) == ["cells", "manifest.json"]
    assert not list((out / "cells").iterdir())


def test_audit_in_words_and_as_json() -> None:
    small = ("--epsilon", "1", "--trials", "4000", "--pairs", "40")
    answer = invoke("audit", "dp-se", *small)
    assert answer.exit_code == 0, answer.output
    assert "CONSISTENT" in answer.output
    answer = invoke("audit", "dp-se", *small, "--json", "--set", "radius_scale=0.1", "--quick")
    said = json.loads(answer.output)
    assert said["verdict"] == "consistent"
    assert said["parameters"]["radius_scale"] == 0.1
    assert said["replay"]["pairs"] == 40


def test_audit_of_a_policy_that_claims_nothing() -> None:
    answer = invoke("audit", "ucb1", "--trials", "4000", "--pairs", "40")
    assert answer.exit_code == 0
    assert "NOT PRIVATE" in answer.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nobody",), "no policy is called 'nobody'"),
        (("dp-se", "--epsilon", "-1"), "epsilon = -1.0 is not allowed"),
        (("dp-se",), "'epsilon' is missing"),
        (("dp-se", "--epsilon", "1", "--set", "armz=3"), "unknown parameter 'armz'"),
        (("dp-se", "--epsilon", "1", "--set", "armz"), "name=value"),
        (("dp-se", "--epsilon", "1", "--trials", "0"), "trials = 0"),
    ],
)
def test_audit_refuses_in_one_line(arguments: tuple[str, ...], message: str) -> None:
    answer = invoke("audit", *arguments)
    assert answer.exit_code == 2
    assert message in answer.output


def test_arms_by_number_or_by_name() -> None:
    for arms, code in (("3", "arms=3"), ("plain, map", "arms=['plain', 'map']")):
        answer = invoke("choose", "--no-ask", "--no-simulate", "--arms", arms)
        assert answer.exit_code == 0, answer.output
        assert code in answer.output
    for wrong, words in (("plain", "such as plain,friendly,map"), ("a,a", "twice")):
        answer = invoke("choose", "--no-ask", "--no-simulate", "--arms", wrong)
        assert answer.exit_code == 2
        assert words in answer.output


def test_an_example_to_begin_with(experiment: Path) -> None:
    text = invoke("example").output
    assert text == QUICKSTART.read_text(encoding="utf-8").replace("quickstart", "experiment")


def test_json_for_scripts(experiment: Path) -> None:
    answer = invoke("simulate", experiment, "--json")
    assert answer.exit_code == 0, answer.output
    (setting,) = json.loads(answer.stdout)
    assert (setting["horizon"], setting["environment"]) == (500, "bernoulli")
    assert [row["label"] for row in setting["policies"]] == ["ucb1", "bolder"]
    assert json.loads(invoke("simulate", experiment, "--json").stdout) == [setting]  # finished
    (again,) = json.loads(invoke("summary", "small-results", "--json").stdout)
    assert again["policies"] == setting["policies"]
    assert "mean regret" in invoke("summary", "small-results").output
    names = {entry["name"] for entry in json.loads(invoke("policies", "--json").output)}
    assert names == {entry.name for entry in bl.list_policies()}
    one = json.loads(invoke("policies", "dp-imed", "--json").output)
    assert "epsilon" in {parameter["name"] for parameter in one["parameters"]}
    assert json.loads(invoke("environments", "--json").output)[0]["name"]


def test_policies_can_be_filtered() -> None:
    output = invoke("policies", "--rewards", "bounded", "--scope", "trajectory").output
    assert "dp-imed" in output
    assert "dp-ftpl-new" not in output
    assert "dpr-batch-ucb" not in output
    assert "is not one of" in invoke("policies", "--scope", "everything").output


def test_names_complete_in_the_shell() -> None:
    for words, names in (("audit dp-ime", ["dp-imed"]), ("environments stu", ["student-t"])):
        environment = {
            "COMP_WORDS": f"balaclava {words}",
            "COMP_CWORD": "2",
            "_BALACLAVA_COMPLETE": "bash_complete",
        }
        answer = CliRunner().invoke(main, [], env=environment, prog_name="balaclava")
        assert answer.output.split() == [f"plain,{name}" for name in names]


@pytest.mark.parametrize("width", [120, 80, 50, 30])
def test_a_table_fits_the_terminal(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No line is longer, and no word or number is broken."""
    from rich.console import Console

    from balaclava.cli import terminal

    monkeypatch.setattr(terminal, "_console", lambda: Console(width=width, color_system=None))
    header = ("policy", "privacy", "mean regret", *(f"{q} %" for q in (5, 25, 50, 75, 95)))
    row = ("bolder(radius_scale=0.25)", "not private", *("123456.7",) * 6)
    terminal.print_table(header, [row, row])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    words = " ".join(lines).replace(";", " ").split()
    assert words.count("123456.7") == 12
    assert words.count("bolder(radius_scale=0.25)") == 2
