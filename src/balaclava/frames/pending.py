"""What a policy must still know of a decision when its reward comes.

A policy that draws its arm at random divides the loss by the chance that the arm had, and that
chance is gone by the time of the reward. It is noted here under the decision's number, which the
decision carries as its phase. Where more rewards are outstanding than there is room for, the
oldest decision is forgotten, and its reward counts for nothing when it comes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.kernels import kernel
from balaclava._core.states import range_faults

FORGOTTEN = -1


class Pending(NamedTuple):
    """Notes on the latest decisions."""

    count: np.ndarray  # type: ignore[assignment]  # one element: decisions so far
    numbers: np.ndarray  # [room]: the decision whose notes are here, 0 for none
    notes: np.ndarray  # [room, width]

    def faults(self, decisions: int) -> Iterator[str]:
        """What cannot be after so many decisions."""
        yield from range_faults(0, decisions, count=self.count, numbers=self.numbers)


@kernel
def begin_pending(room: int, width: int) -> Pending:
    """Room for the notes, `width` numbers each, of `room` decisions."""
    return Pending(np.zeros(1, np.int64), np.zeros(room, np.int64), np.zeros((room, width)))


@kernel(borrows=True)
def new_note(pending: Pending) -> int:
    """The row to write the next decision's notes in; its number is then `pending.count[0]`."""
    pending.count[0] += 1
    row = pending.count[0] % pending.numbers.size
    pending.numbers[row] = pending.count[0]
    return int(row)


@kernel(borrows=True)
def take_note(pending: Pending, number: int) -> int:
    """The row with the decision's notes, given once; FORGOTTEN if there is none."""
    row = number % pending.numbers.size
    if number < 1 or pending.numbers[row] != number:
        return FORGOTTEN
    pending.numbers[row] = 0
    return int(row)


@kernel(borrows=True)
def next_is_taken(pending: Pending) -> bool:
    """Whether the next note will push out one whose reward has not come."""
    return bool(pending.numbers[(pending.count[0] + 1) % pending.numbers.size] != 0)


@kernel(borrows=True)
def forget_note(params: Any, state: Any, t: int, arm: int, phase: int, rng: Any) -> None:
    """`forget` of a policy that keeps notes: the row is free again."""
    take_note(state.pending, phase)
