"""One row for each participant: the first, with its arm."""

from typing import Literal, NamedTuple

import numpy as np

from balaclava._core.number_format import counted
from balaclava.logs.repeats import repeated_rows

# What a row that is kept stands for: a decision, or a participant, who has the first arm only.
Per = Literal["row", "person"]
_AS_IN_SERVICE = (
    "Run the experiment alike, with one decision for each participant (sticky in the service)."
)


class FirstRows(NamedTuple):
    """Which rows are the first of their participant, and what that leaves out."""

    mask: np.ndarray
    findings: list[str]


def first_rows(arms: np.ndarray, people: np.ndarray, times: np.ndarray | None) -> FirstRows:
    """Find the first row of each participant: by time, or without times in the order of the file.

    >>> arms, people = np.array([0, 1, 1, 0]), np.array([5, 5, 6, 6])
    >>> first_rows(arms, people, np.array([2.0, 1.0, 1.0, 1.0])).mask
    array([False,  True,  True, False])
    """
    order = np.argsort(people, kind="stable") if times is None else np.lexsort((times, people))
    starts = np.concatenate([[True], np.diff(people[order]) != 0])
    mask = np.empty(people.size, bool)
    mask[order] = starts
    later = int((~mask).sum())
    if not later:
        return FirstRows(mask, [])
    persons = np.cumsum(starts) - 1
    other_arm = arms[order] != arms[order][starts][persons]
    moved = np.unique(persons[other_arm]).size
    several, whole = np.unique(persons[~starts]).size, int(starts.sum())
    how = "" if times is not None else ", in the order of the file"
    findings = [
        f"{later:,} of {people.size:,} rows were left out: they are later rows of "
        f"{counted(several, 'participant')} of {whole:,}. Each counts once, with the first "
        f"arm{how}. {_AS_IN_SERVICE}"
    ]
    if moved:
        findings.append(
            f"{counted(moved, 'participant')} of {whole:,} ({moved / whole:.1%}) got another arm "
            "later. What came after that counts for the first arm, so arms look more alike than "
            "they are."
        )
    columns = [arms, people] if times is None else [arms, people, times]
    doubled = 0 if times is None else repeated_rows(columns, times)
    if doubled:
        findings.append(
            f"{counted(doubled, 'row')} repeat another row in arm, participant and time. Was the "
            "log exported or joined twice? They do not count here."
        )
    return FirstRows(mask, findings)
