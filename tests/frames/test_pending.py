"""Notes on open decisions."""

from __future__ import annotations

from balaclava.frames import pending
from tests.frames.frame_machine import require_ranges


def test_a_note_is_taken_once_and_the_oldest_is_dropped() -> None:
    state = pending.begin_pending(3, 2)
    assert state.notes.shape == (3, 2)
    rows = [pending.new_note(state) for _ in range(2)]
    assert (rows, state.count.tolist()) == ([1, 2], [2])
    assert not pending.next_is_taken(state)
    assert pending.new_note(state) == 0
    assert pending.next_is_taken(state)
    assert [pending.take_note(state, number) for number in (-1, 0, 4)] == [pending.FORGOTTEN] * 3
    assert pending.take_note(state, 2) == 2
    assert pending.take_note(state, 2) == pending.FORGOTTEN
    assert pending.new_note(state) == 1  # the first decision's note is dropped
    assert pending.take_note(state, 1) == pending.FORGOTTEN
    assert not pending.next_is_taken(state)
    assert state.numbers.tolist() == [3, 4, 0]


def test_faults() -> None:
    state = pending.begin_pending(3, 1)
    assert list(state.faults(0)) == []
    require_ranges(state, 7, {"count": (0, 7), "numbers": (0, 7)})
