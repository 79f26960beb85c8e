"""Copies and digests of a policy's state, a tree of named tuples with arrays as leaves."""

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np

_ALIGNMENT = 64  # bytes: a cache line


def copy_state(state: Any) -> Any:
    """A deep copy of a state."""
    return type(state)(
        *(part.copy() if isinstance(part, np.ndarray) else copy_state(part) for part in state)
    )


def pack_state(state: Any) -> tuple[Any, np.ndarray]:
    """A copy of a state in one block of memory, and that block: copying it restores the state."""
    memory = np.zeros(_packed_bytes(state) // 8, np.uint64)  # whole words copy much faster
    copy, _ = _place(state, memory, 0)
    return copy, memory


def _packed_bytes(state: Any) -> int:
    if isinstance(state, np.ndarray):
        return -(-state.nbytes // _ALIGNMENT) * _ALIGNMENT
    return sum(map(_packed_bytes, state))


def _place(state: Any, memory: np.ndarray, offset: int) -> tuple[Any, int]:
    if isinstance(state, np.ndarray):
        copy = np.ndarray(state.shape, state.dtype, memory.data, offset)
        copy[...] = state
        return copy, offset + _packed_bytes(state)
    parts = []
    for part in state:
        copy, offset = _place(part, memory, offset)
        parts.append(copy)
    return type(state)(*parts), offset


def fingerprint(state: Any) -> bytes:
    """A digest of all arrays of a state or of parameters, smaller than a copy."""
    digest = hashlib.sha256()
    for array in arrays_of(state):
        digest.update(np.ascontiguousarray(array).data)
    return digest.digest()


def arrays_of(state: Any) -> Iterator[np.ndarray]:
    """Every array of a state or of parameters, in order."""
    if isinstance(state, np.ndarray):
        yield state
    elif isinstance(state, tuple):
        for part in state:
            yield from arrays_of(part)
