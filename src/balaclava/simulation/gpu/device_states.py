"""States of many games on the device, and access to the state of one game.

`begin` runs once, on the host. Each array of the state gets a last axis for the games, so that
neighbouring threads read neighbouring numbers. While a game is played:

- Arrays of one element are local; the compiler turns them into registers.
- Other arrays are in the block's shared memory if they are small together.
- Otherwise they are views of the game's column.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from balaclava.simulation.gpu.device import device_compiler

_MOST_SENT_BYTES = 1 << 24  # bytes of repeated states sent to the device; more are repeated there
_COPY_BLOCKS = 1 << 11  # blocks of the copying kernel
# Bytes of a game in shared memory. 7 blocks of 64 games fill the 228 kB of a multiprocessor (H100).
_SHARED_BYTES = 512


class StateAccess(NamedTuple):
    """Functions with which the device's loop reads and writes one game."""

    view: Callable[..., Any]  # of (states, game): the state of a game
    write_back: Callable[..., None]  # of (states, game, state): store local copies
    restart: Callable[..., None]  # of (state, origin): reset to the initial state


def map_arrays(value: Any, change: Callable[[np.ndarray], Any]) -> Any:
    """Apply `change` to every array of nested tuples."""
    if isinstance(value, np.ndarray):
        return change(value)
    if isinstance(value, tuple):
        parts = [map_arrays(part, change) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


def state_bytes(state: Any) -> int:
    """The bytes of one game's state."""
    return sum(array.nbytes for _, array in _arrays(state))


def repeat_per_game(array: np.ndarray, games: int) -> np.ndarray:
    """Move the first axis, the pairs, to the end, and repeat each pair for its games."""
    return np.ascontiguousarray(np.repeat(np.moveaxis(array, 0, -1), games, axis=-1))


def repeat_on_device(
    array: np.ndarray, games: int, stream: Any, keep: Callable[[Any], None] = lambda _: None
) -> Any:
    """`repeat_per_game` on the device: large arrays are repeated there, not sent.

    `keep` gets the temporary array: freeing it at once would wait for all running games.
    """
    from numba import cuda

    if array.nbytes * games <= _MOST_SENT_BYTES:
        return cuda.to_device(repeat_per_game(array, games), stream=stream)
    pairs, *shape = array.shape
    whole = cuda.device_array((*shape, pairs * games), array.dtype, stream=stream)
    cells = np.ascontiguousarray(np.moveaxis(array, 0, -1)).reshape(-1, pairs, 1)
    origins = cuda.to_device(cells.view(np.uint8), stream=stream)
    keep(origins)
    with device_compiler:  # the first call compiles
        _copier()[_COPY_BLOCKS, 256, stream](origins, games, whole.reshape(-1).view(np.uint8))
    return whole


@functools.cache
def _copier() -> Any:
    """A kernel that repeats the bytes of each cell of each pair for its games."""
    from numba import cuda

    def copy(origins: Any, games: int, copies: Any) -> None:
        _, pairs, size = origins.shape
        for i in range(cuda.grid(1), copies.size, cuda.gridsize(1)):
            column, byte = i // size, i % size
            cell, place = column // (pairs * games), column % (pairs * games)
            copies[i] = origins[cell, place // games, byte]

    return cuda.jit(copy)


def _arrays(value: Any, path: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """Yield each array with the indices that lead to it."""
    if isinstance(value, tuple):
        for i, part in enumerate(value):
            yield from _arrays(part, f"{path}[{i}]")
    elif isinstance(value, np.ndarray):
        yield path, value


def access_source(state: Any, threads: int) -> str:
    """The source of `StateAccess`; loops with equal sources are compiled once."""
    return _write(state, threads, {})


def state_access(state: Any, threads: int) -> StateAccess:
    """Compile the functions for this state, in blocks of `threads` threads.

    The compiler needs the class and length of each tuple and the sizes of local and shared arrays,
    so the source is generated: `Tally(own0, states[1][:, game], ...)`.
    """
    from numba import cuda

    namespace: dict[str, Any] = {"cuda": cuda}
    exec(_write(state, threads, namespace), namespace)
    return StateAccess(
        *(cuda.jit(device=True, inline=True)(namespace[f]) for f in StateAccess._fields)
    )


def _write(state: Any, threads: int, namespace: dict[str, Any]) -> str:
    from numba import from_dtype

    arrays = dict(_arrays(state))
    shared = sum(array.nbytes for array in arrays.values() if array.size > 1) <= _SHARED_BYTES
    names, view, write_back, restart = {}, ["lane = cuda.threadIdx.x"], ["pass"], ["pass"]
    for number, (path, array) in enumerate(arrays.items()):
        own, kind, axes = f"own{number}", f"kind{number}", range(array.ndim)
        namespace[kind] = from_dtype(array.dtype)
        # Loops with run-time bounds: unrolled copies take many registers.
        single = array.size == 1
        loops = [] if single else [f"for i{a} in range(state{path}.shape[{a}]):" for a in axes]
        here = ", ".join("0" if single else f"i{a}" for a in axes)
        there = f"states{path}[{here}, game]"
        restart += _nested([*loops, f"state{path}[{here}] = origin{path}[{here}]"])
        names[path] = own
        if single:
            view.append(f"{own} = cuda.local.array({array.shape}, {kind})")
        elif shared:
            size, *inner = array.shape
            # Rows of odd length avoid bank conflicts.
            shape = (threads, *array.shape) if inner else (threads, size | 1)
            row = "lane" if inner else f"lane, :{size}"
            view.append(f"{own} = cuda.shared.array({shape}, {kind})[{row}]")
        else:
            names[path] = f"states{path}[{', '.join(':' for _ in axes)}, game]"
            continue
        copies = [loop.replace("state[", "states[") for loop in loops]
        view += _nested([*copies, f"{own}[{here}] = {there}"])
        write_back += _nested([*copies, f"{there} = state{path}[{here}]"])
    view.append(f"return {_expression(state, '', names, namespace)}")
    functions = {
        "view(states, game)": view,
        "write_back(states, game, state)": write_back,
        "restart(state, origin)": restart,
    }
    return "\n".join(f"def {head}:\n    " + "\n    ".join(body) for head, body in functions.items())


def _nested(lines: list[str]) -> list[str]:
    return ["    " * depth + line for depth, line in enumerate(lines)]


def _expression(value: Any, path: str, names: dict[str, str], namespace: dict[str, Any]) -> str:
    if isinstance(value, tuple):
        parts = [
            _expression(part, f"{path}[{i}]", names, namespace) for i, part in enumerate(value)
        ]
        if not hasattr(value, "_fields"):
            return f"({', '.join(parts)},)"
        name = f"{type(value).__name__}_{len(namespace)}"
        namespace[name] = type(value)
        return f"{name}({', '.join(parts)})"
    return names.get(path, f"states{path}")
