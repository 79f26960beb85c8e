"""Mutants are made, run and counted as they should be."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import mutants

ROOT = Path(__file__).parents[2]
MODULE, TESTS = "frames/tally.py", "tests/frames/test_tally.py"
FAULTS = (
    "starting_arm: state.pulls[arm] < start -> state.pulls[arm] <= start",
    "count_reward: state.pulls[arm] += 1 -> state.pulls[arm] -= 1",
    "count_reward: state.unknown[0] -= 1 -> state.unknown[0] += 1",
)
HARMLESS = "starting_arm: state.unknown[0] > 0 -> state.unknown[0] >= 0"


def test_faults_are_killed_and_an_equivalent_survives(tmp_path: Path) -> None:
    names = [f"{MODULE}:{change}" for change in (*FAULTS, HARMLESS)]
    results = tmp_path / "mutants.jsonl"
    command = [sys.executable, "benchmarks/mutants.py", "--modules", MODULE, "--tests", TESTS]
    command += ["--results", str(results), "--jobs", "2", "--only", *names]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    lines = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    status = {line["mutant"]: line["status"] for line in lines if "mutant" in line}
    assert status == dict(zip(names, [*["killed"] * 3, "survived"], strict=True))
    again = subprocess.run([*command, "--seconds", "0"], capture_output=True, cwd=ROOT, check=False)
    assert b"4 mutants: 3 killed" in again.stdout  # they are recalled
    assert b"killed " not in again.stdout.partition(b"4 mutants")[0]  # and not run again
    assert "4 mutants: 3 killed" in run.stdout


def test_each_kind_of_change_is_made() -> None:
    source = """
LIMIT = 3


class Kind(NamedTuple):
    late: bool = False


def law(x: float = 1.0, *, low: int = 0) -> float:
    "Words 1 + 1."
    note(x)
    if x < low and not low:
        raise ValueError("x" + "y")
    x -= 1
    return max(-x, 2.0 * low) + 0.5
"""
    made = {(each.kind, each.change) for each in mutants.mutants("law.py", source)}
    assert made == {
        ("dropped call", "note(x) -> pass"),
        ("connective", "x < low and not low -> (x < low or not low)"),
        ("comparison", "x < low -> x <= low"),
        ("connective", "not low -> bool(low)"),
        ("sign", "x -= 1 -> x += 1"),
        ("constant", "1 -> 2 in x -= 1"),
        ("sign", "max(-x, 2.0 * low) + 0.5 -> (max(-x, 2.0 * low) - 0.5)"),
        ("bound", "max(-x, 2.0 * low) -> min(-x, 2.0 * low)"),
        ("sign", "-x -> (x)"),
        ("scale", "2.0 * low -> (2.0 * low) * 2"),
        ("scale", "2.0 * low -> (2.0 * low) / 2"),
        ("constant", "2.0 -> 4.0 in return max(-x, 2.0 * low) + 0.5"),
        ("constant", "0.5 -> 1.0 in return max(-x, 2.0 * low) + 0.5"),
    }


def test_the_reasons_are_of_mutants_that_exist() -> None:
    reasons = mutants.equivalent()
    homes = {name.partition(":")[0] for name in reasons}
    names = {mutant.name for module in homes for mutant in mutants.mutants(module)}
    assert sorted(set(reasons) - names) == []
    assert all(len(reason) > 20 for reason in reasons.values())


def test_every_module_has_tests_that_guard_it() -> None:
    for name in mutants.modules(list(mutants.ROOMS)):
        example, *tests = mutants.guards(name)
        assert (ROOT / example).exists()
        assert tests
        assert all((ROOT / file).exists() for file in tests)


def test_a_longer_sample_begins_with_the_shorter() -> None:
    short = mutants.sample(["frames/tally.py"], 3, 1)
    assert mutants.sample(["frames/tally.py"], 6, 1)[:3] == short
    assert short != mutants.sample(["frames/tally.py"], 3, 2)


def test_a_test_covers_the_function_that_it_calls_and_those_inside() -> None:
    (mutant, *_) = mutants.mutants("frames/law.py", "def outer():\n    def law():\n        f()\n")
    assert mutant.function == "outer.law"
    for call in ("outer", "outer.law", "outer.law.deeper"):
        assert mutants.covers(f"frames/law.py:{call}", mutant)
    for call in ("frames/law.py:out", "frames/law.py:outer.other", "frames/other.py:outer"):
        assert not mutants.covers(call, mutant)


def test_the_shortest_tests_come_first_within_the_budget() -> None:
    tests = [(2.0, "b"), (0.5, "a"), (9.0, "c")]
    assert mutants.within(3.0, tests) == [(0.5, "a"), (2.0, "b")]
