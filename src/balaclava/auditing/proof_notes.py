"""Proof notes: the claim of every mechanism, frame and private policy, and its proof, counted.

A note is a file `<module>.proof.md` beside the code that it is about, in one form: what it is for,
the notes that it uses, who else derived it, the claim, the neighbours, and the argument in steps.
Each step names the code that does it and the tests that would fail if the code did not. A policy
has the note of its own class or of the nearest base class that has one.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from balaclava.errors import ParameterError
from balaclava.policies.base import POLICIES, Policy

ENDING = ".proof.md"
_PACKAGE = Path(__file__).parents[1]
_NOTE_SECTIONS = ("Claim", "Neighbours", "Argument")
_STEP = re.compile(r"^(\d+)\. (.*?)\n   - Code: (.*?)\n   - Test: (.*?)\n?$", re.DOTALL)
_QUOTED = re.compile(r"`([^`]+)`")


class ProofStep(NamedTuple):
    """One step of an argument."""

    text: str
    code: tuple[str, ...]  # dotted names in the package
    tests: tuple[str, ...]  # file::function


class ProofNote(NamedTuple):
    """A proof note; `name` is that of its file."""

    name: str
    title: str
    subjects: tuple[str, ...]  # mechanisms by name, classes of policies, modules
    uses: tuple[str, ...]  # names of notes
    derived_by: str
    claim: str
    neighbours: str
    steps: tuple[ProofStep, ...]
    path: Path

    @property
    def text(self) -> str:
        """The whole note, as Markdown."""
        return self.path.read_text(encoding="utf-8")


@functools.cache
def proof_notes() -> dict[str, ProofNote]:
    """All notes of the package, by name.

    Raises:
        ParameterError: If a note does not have the form; the message names the file and the part.
    """
    paths = sorted(_PACKAGE.rglob(f"*{ENDING}"))
    notes = {note.name: note for note in map(read_note, paths)}
    if len(notes) < len(paths):
        raise ParameterError("two proof notes have the same name; rename one file")
    return notes


def read_note(path: Path) -> ProofNote:
    """Read a note.

    Args:
        path: Its file.

    Returns:
        Its parts.

    Raises:
        ParameterError: If it does not have the form.
    """
    head, *sections = path.read_text(encoding="utf-8").split("\n## ")
    title, _, facts = head.partition("\n")
    values = dict(re.findall(r"^- ([\w ]+): (.+)$", facts, re.MULTILINE))
    bodies = dict(section.split("\n", 1) for section in sections)
    if tuple(bodies) != _NOTE_SECTIONS or set(values) != {"For", "Uses", "Derived by"}:
        raise ParameterError(
            f"{path.name}: a proof note has the lines For, Uses and Derived by, and the sections "
            f"{', '.join(_NOTE_SECTIONS)}, in this order"
        )
    return ProofNote(
        name=path.name.removesuffix(ENDING),
        title=title.removeprefix("# "),
        subjects=_quoted(values["For"]),
        uses=_quoted(values["Uses"]),
        derived_by=values["Derived by"],
        claim=bodies["Claim"].strip(),
        neighbours=bodies["Neighbours"].strip(),
        steps=tuple(_steps(path.name, bodies["Argument"].strip())),
        path=path,
    )


def _steps(file: str, argument: str) -> Iterable[ProofStep]:
    for number, part in enumerate(re.split(r"\n(?=\d+\. )", argument), 1):
        match = _STEP.match(part)
        if match is None or int(match[1]) != number or not all(map(_quoted, match.group(3, 4))):
            raise ParameterError(
                f"{file}: step {number} must begin with its number, and end with a line of Code "
                "and a line of Test"
            )
        yield ProofStep(match[2], _quoted(match[3]), _quoted(match[4]))


def _quoted(text: str) -> tuple[str, ...]:
    return tuple(_QUOTED.findall(text))


def proof_of(subject: str | type[Policy]) -> ProofNote | None:
    """Return the note of a mechanism or a policy.

    Args:
        subject: The name of a mechanism, or a class of policies.

    Returns:
        The note; None if there is none.
    """
    names = [subject] if isinstance(subject, str) else [cls.__name__ for cls in subject.__mro__]
    by_subject = {name: note for note in proof_notes().values() for name in note.subjects}
    return next((by_subject[name] for name in names if name in by_subject), None)


def covered_policies() -> dict[str, list[str]]:
    """Names of registered private policies, by the name of their note."""
    covered: dict[str, list[str]] = {}
    for name, cls in sorted(POLICIES.classes().items()):
        note = proof_of(cls) if cls.model != "none" else None
        if note is not None:
            covered.setdefault(note.name, []).append(name)
    return covered


def with_used(note: ProofNote) -> list[ProofNote]:
    """The note, those that it uses, those that these use, and so on."""
    used: dict[str, ProofNote] = {}
    pending = [note.name]
    while pending:
        name = pending.pop(0)
        if name not in used:
            used[name] = proof_notes()[name]
            pending += used[name].uses
    return list(used.values())


def code_place(name: str) -> Any:
    """Find the code that a step names.

    Args:
        name: Dotted name within the package, such as `frames.pools.add_reward`.

    Returns:
        The module, class or function.

    Raises:
        AttributeError: If there is none.
    """
    parts = name.split(".")
    place: Any = importlib.import_module("balaclava")
    for i, part in enumerate(parts, 1):
        if not hasattr(place, part):
            try:
                importlib.import_module(".".join(["balaclava", *parts[:i]]))
            except ModuleNotFoundError:
                raise AttributeError(f"balaclava.{name} does not exist") from None
        place = getattr(place, part)
    return place
