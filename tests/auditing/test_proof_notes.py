"""Proof notes: there is one for everything private, and what it names exists."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

from balaclava.auditing.proof_notes import (
    code_place,
    proof_notes,
    proof_of,
    read_note,
    with_used,
)
from balaclava.errors import ParameterError
from balaclava.policies.base import POLICIES
from balaclava.privacy.mechanisms.base import declared_mechanism, declared_mechanisms
from balaclava.privacy.randomness import SystemRandomness
from balaclava.testing.conformance import played
from balaclava.testing.examples import examples

ROOT = Path(__file__).parents[2]
NOTES = sorted(proof_notes())
OWN = {
    name: cls
    for name, cls in POLICIES.classes().items()
    if cls.model != "none" and cls.__module__.startswith("balaclava.")
}
MECHANISMS = [
    declared.name
    for body, declared in declared_mechanisms()
    if body.__module__.startswith("balaclava.")
]
LONGEST_PHASE = 4_000  # rounds before gdp-elim-new releases something
SCOPES = {
    "trajectory": "whole trajectory",
    "decision": "Each decision",
    "report": "each report",
} | {"joint": "joint"}
FRAMES = sorted(path.stem for path in (ROOT / "src/balaclava/frames").glob("[!_]*.py"))


@functools.cache
def functions_of(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("name", sorted(OWN))
def test_every_private_policy_has_a_note(name: str) -> None:
    note = proof_of(OWN[name])
    assert note is not None
    claims = [words in note.claim for words in (SCOPES[OWN[name].scope], "local")]
    assert claims == [True, OWN[name].model == "local"]


@pytest.mark.parametrize("subject", MECHANISMS)
def test_every_mechanism_has_a_note(subject: str) -> None:
    assert proof_of(subject) is not None


@pytest.mark.parametrize("frame", FRAMES)
def test_every_frame_has_a_note_or_is_in_a_step_of_one(frame: str) -> None:
    steps = [step for note in proof_notes().values() for step in note.steps]
    named = {tuple(place.split(".")[:2]) for step in steps for place in step.code}
    assert proof_of(frame) is not None or ("frames", frame) in named


@pytest.mark.parametrize("name", NOTES)
def test_what_a_note_names_exists(name: str) -> None:
    note = proof_notes()[name]
    assert set(note.uses) <= set(NOTES)
    for step in note.steps:
        for place in step.code:
            assert code_place(place) is not None
        for test in step.tests:
            file, _, function = test.partition("::")
            assert function in functions_of(file), test


@pytest.mark.parametrize("name", NOTES)
def test_a_note_lies_beside_its_module(name: str) -> None:
    path = proof_notes()[name].path
    assert path.with_name(f"{name}.py").is_file()


def test_every_note_is_read() -> None:
    paths = (ROOT / "src" / "balaclava").rglob("*.proof.md")
    assert proof_notes.__wrapped__().keys() == {path.name.partition(".")[0] for path in paths}


def test_subjects_exist_and_have_one_note() -> None:
    classes = {base.__name__ for cls in OWN.values() for base in cls.__mro__}
    subjects = [subject for note in proof_notes().values() for subject in note.subjects]
    assert len(subjects) == len(set(subjects))
    modules = {note.name for note in proof_notes().values()}
    assert set(subjects) <= classes | set(MECHANISMS) | modules


def test_code_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(AttributeError, match=r"balaclava\.frames\.pools\.no_such"):
        code_place("frames.pools.no_such")


GOOD = """# Title

- For: `X`
- Uses: nothing
- Derived by: immediate

## Claim

c

## Neighbours

n

## Argument

1. **One.** Text.
   - Code: `a.b`
   - Test: `t.py::test_a`, `t.py::test_b`
2. **Two.** Text.
   - Code: `a.b`
   - Test: `t.py::test_a`
"""


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("## Neighbours\n\nn\n\n", ""),
        ("- Derived by: immediate\n", ""),
        ("   - Test: `t.py::test_a`\n", ""),
        ("2. **Two", "3. **Two"),
        ("`a.b`\n   - Test: `t.py::test_a`\n", "nowhere\n   - Test: `t.py::test_a`\n"),
    ],
)
def test_a_note_without_the_form_is_refused(right: str, wrong: str, tmp_path: Path) -> None:
    path = tmp_path / "x.proof.md"
    path.write_text(GOOD, encoding="utf-8")
    steps = read_note(path).steps
    assert [(step.code, len(step.tests)) for step in steps] == [(("a.b",), 2), (("a.b",), 1)]
    assert right in GOOD
    path.write_text(GOOD.replace(right, wrong), encoding="utf-8")
    with pytest.raises(ParameterError, match=r"x\.proof\.md"):
        read_note(path)


@pytest.mark.parametrize("name", sorted(OWN))
def test_a_policy_draws_by_the_mechanisms_of_its_note_alone(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A base class's note must fit what a policy below it does."""
    drawn: set[str] = set()
    release = SystemRandomness.release

    def recorded(self: SystemRandomness, body: object, *arguments: object) -> object:
        drawn.add(declared_mechanism(body).name)  # type: ignore[arg-type]
        return release(self, body, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(SystemRandomness, "release", recorded)
    for policy in examples(OWN[name]):
        for t, _ in enumerate(played(policy, policy.agent(), LONGEST_PHASE)):
            if t >= 200 and (drawn or name == "random"):
                break
    note = proof_of(OWN[name])
    assert note is not None
    covered = {subject for each in with_used(note) for subject in each.subjects}
    assert drawn <= covered
    assert drawn or name == "random"
