"""Notes on open decisions, which a policy needs when their rewards come.

A policy that draws its arm at random divides the loss by the arm's chance, which changes before the
loss comes. It is noted under the decision's number, which the decision carries as its phase. If
more decisions are open than there is room for, the oldest note is dropped, and its reward does not
count.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.kernels import kernel
from balaclava._core.states import range_faults

FORGOTTEN = -1  # in place of a row: the decision has no note


class Pending(NamedTuple):
    """Notes on the latest decisions, in a ring."""

    count: np.ndarray  # type: ignore[assignment]  # one element: decisions so far
    numbers: np.ndarray  # [room]: the decision whose notes are here, 0 for none
    notes: np.ndarray  # [room, width]

    def faults(self, decisions: int) -> Iterator[str]:
        yield from range_faults(0, decisions, count=self.count, numbers=self.numbers)


@kernel
def begin_pending(room: int, width: int) -> Pending:
    """Room for notes of `width` numbers on `room` decisions."""
    return Pending(np.zeros(1, np.int64), np.zeros(room, np.int64), np.zeros((room, width)))


@kernel(borrows=True)
def new_note(pending: Pending) -> int:
    """The row for the next decision's note; its number is then `pending.count[0]`."""
    pending.count[0] += 1
    row = pending.count[0] % pending.numbers.size
    pending.numbers[row] = pending.count[0]
    return int(row)


@kernel(borrows=True)
def take_note(pending: Pending, number: int) -> int:
    """Take the decision's note, once: its row, or FORGOTTEN."""
    row = number % pending.numbers.size
    if number < 1 or pending.numbers[row] != number:
        return FORGOTTEN
    pending.numbers[row] = 0
    return int(row)


@kernel(borrows=True)
def next_is_taken(pending: Pending) -> bool:
    """Whether the next note will drop one of an open decision."""
    return bool(pending.numbers[(pending.count[0] + 1) % pending.numbers.size] != 0)


@kernel(borrows=True)
def free_note(pending: Pending) -> int:
    """The row of the next decision's note; FORGOTTEN if too many decisions are open."""
    if next_is_taken(pending):
        return FORGOTTEN
    return (pending.count[0] + 1) % pending.numbers.size


@kernel(borrows=True)
def forget_note(params: Any, state: Any, t: int, arm: int, phase: int, rng: Any) -> None:
    """`forget` of a policy that keeps notes: free the row."""
    take_note(state.pending, phase)
