"""`balaclava audit`."""

from __future__ import annotations

import json

import pytest

from tests.cli.running import invoke


def test_audit_as_json() -> None:
    small = ("--epsilon", "1", "--trials", "4000", "--pairs", "40")
    answer = invoke("audit", "dp-se", *small, "--json", "--set", "radius_scale=0.1", "--quick")
    assert answer.exit_code == 0, answer.output
    said = json.loads(answer.output)
    assert said["verdict"] == "consistent"
    assert said["parameters"]["radius_scale"] == 0.1
    assert said["replay"]["pairs"] == 40


def test_audit_in_words() -> None:
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
