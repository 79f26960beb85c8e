"""Helpers for the states of policies: range checks, names in saves, ring buffers."""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

from balaclava._core.kernels import kernel

_State = TypeVar("_State", bound=type[Any])
MOST_CHANCE = 1.0 + 1e-9  # a sum of probabilities, with room for rounding
MOST_PLANNED = 2**62  # decisions that a plan may name: 64-bit integers count twice as far


def range_faults(low: float, high: float, **arrays: np.ndarray) -> Iterator[str]:
    """Name the arrays with an element below `low`, above `high`, or not a number."""
    for name, array in arrays.items():
        if not ((array >= low) & (array <= high)).all():
            yield f"{name} holds a number out of its range"


def stored_as(**stored: str) -> Callable[[_State], _State]:
    """Keep the names that saves use for renamed fields of a state: `new="old"`.

    Saves and databases name and order the arrays of a state by its fields. Rename a field freely,
    and declare its old name here; do not reorder or drop fields. `added_later` declares new ones.

    Example:
        >>> from typing import NamedTuple
        >>> @stored_as(rewards="gains")
        ... class State(NamedTuple):
        ...     rewards: np.ndarray
        >>> stored_name(State, "rewards")
        'gains'
    """

    def mark(state: _State) -> _State:
        unknown = set(stored) - set(state._fields)
        if unknown:
            raise TypeError(f"{state.__name__} has no field {sorted(unknown)[0]!r}")
        state._stored_names = stored
        return state

    return mark


def added_later(*fields: str) -> Callable[[_State], _State]:
    """Name the fields that saves of earlier versions lack; `Policy.fill_added` fills them."""

    def mark(state: _State) -> _State:
        state._added_fields = fields
        return state

    return mark


def holds_slots(*fields: str) -> Callable[[_State], _State]:
    """Name the fields of a state whose one element is an arm's place in it, or -1 for none."""

    def mark(state: _State) -> _State:
        state._slot_fields = fields
        return state

    return mark


def stored_name(state: type[Any], field: str) -> str:
    names: dict[str, str] = getattr(state, "_stored_names", {})
    return names.get(field, field)


@kernel(borrows=True)
def ring_index(number: int, size: int) -> int:
    """The index of a number in a ring buffer, whose size is a power of two."""
    # The constant proves that the index is not negative, which saves a check on each access.
    return int(number & ((size - 1) & (2**31 - 1)))
