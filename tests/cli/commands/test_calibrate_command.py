"""`balaclava calibrate`: with a file, and with answers."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from balaclava.cli import main

EXPERIMENT = """
horizon = 500
repetitions = 10
seed = 1
[environments.near]
name = "bernoulli"
means = [0.5, 0.6]
[environments.far]
name = "bernoulli"
means = [0.5, 0.9]
[policies.ucb1]
"""


def test_command(tmp_path):
    file = tmp_path / "plausible.toml"
    file.write_text(EXPERIMENT)
    run = CliRunner().invoke(
        main, ["calibrate", str(file), "--policy", "ucb1", "--held-out", "far"]
    )
    assert run.exit_code == 0, run.output
    assert "ucb1: radius_scale = " in run.output
    assert "far (held out)" in run.output
    few = ["calibrate", str(file), "--policy", "ucb1", "--risk", "0.9", "--device", "cpu"]
    run = CliRunner().invoke(main, few)
    assert run.exit_code == 2
    assert "take at least 40" in run.output
    for wrong in (["--policy", "ucb"], ["--policy", "ucb1", "--held-out", "fare"]):
        run = CliRunner().invoke(main, ["calibrate", str(file), *wrong])
        assert run.exit_code == 2
        assert "did you mean" in run.output
    run = CliRunner().invoke(
        main,
        ["calibrate", str(file), "--policy", "ucb1", "--held-out", "near", "--held-out", "far"],
    )
    assert run.exit_code == 2
    assert "every environment is held out" in run.output


def calibrated(*arguments, text=""):
    run = CliRunner().invoke(main, ["calibrate", *map(str, arguments)], input=text)
    return run.exit_code, " ".join(run.output.split())


def test_command_with_answers_instead_of_a_file():
    """Problems follow from an average and a difference, by options or by answers."""
    runs = ("--policy", "ucb1", "--repetitions", 4, "--workers", 1)
    size = ("--arms", 2, "--horizon", 300)
    code, output = calibrated(*runs, *size, "--average", 0.2, "--difference", 0.3)
    assert code == 0, output
    assert "one ahead: all arms at 0.2 but one at 0.5; spread: arms from 0 to 0.5" in output
    assert "closer (held out)" in output
    assert "use: bl.policy('ucb1', arms=2, radius_scale=" in output
    assert "assumed: rewards=bounded" in output
    text = "1\n1\n1\n0\n1\n2\n300\n1\n0.2\n0.3\n"  # kind, trust, scope, range, numbers, around
    assert output[output.index("ucb1: radius_scale") :] in calibrated("--ask", *runs, text=text)[1]
    code, output = calibrated("--rewards", "bounded")
    assert (code, "dp-imed has no scale: there is nothing to calibrate" in output) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give FILE.toml, or answers such as"),
        (("--policy", "dp-see"), "did you mean 'dp-se'"),
        (("--policy", "ucb1", "--average", 2), "average = 2.0 is not allowed"),
        (("--policy", "ucb1", "--average", 0.5, "--difference", 0.6), "leaves [0, 1]"),
        (("--policy", "ucb1", "--held-out", "close"), "give FILE.toml"),
        (("x.toml", "--arms", 3), "--arms is only for use without a file"),
        (("x.toml",), "give --policy"),
        (("--rewards", "adversarial", "--average", 0.5), "are for bounded rewards"),
    ],
)
def test_command_refuses_answers_that_do_not_fit(arguments, message):
    code, output = calibrated(*arguments)
    assert code != 0
    assert message in output
