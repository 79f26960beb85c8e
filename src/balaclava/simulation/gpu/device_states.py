"""The states of many games at once, and that of one game while it is played.

`begin` runs once, on the host. Each array of what it returns gets a last axis for the games, so
that neighbouring threads read neighbouring numbers. While a game is played,

- its arrays of one element are local, which the compiler turns into registers,
- its other arrays are in the shared memory of the block, if they are small,
- or else they are views of the game's place on the last axis.

States may hold other named tuples.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from balaclava.simulation.gpu.device import compiler

_SENT = 1 << 24  # bytes, at most
_COPY_BLOCKS = 1 << 11
_SHARED = 512  # bytes of a game: 64 games a block and 7 blocks fill what a multiprocessor has


class Access(NamedTuple):
    """How the loop on the device gets at one game."""

    view: Callable[..., Any]  # of (states, game): the state of a game, to be played with
    put_back: Callable[..., None]  # of (states, game, state): what was copied, where it belongs
    restart: Callable[..., None]  # of (state, origin): the beginning, without a last axis


def mapped(value: Any, change: Callable[[np.ndarray], Any]) -> Any:
    """The same named tuples, with every array changed."""
    if isinstance(value, np.ndarray):
        return change(value)
    if isinstance(value, tuple):
        parts = [mapped(part, change) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


def bytes_of(state: Any) -> int:
    """The memory that the state of one game takes."""
    return sum(array.nbytes for _, array in _arrays(state))


def spread(array: np.ndarray, games: int) -> np.ndarray:
    """The first axis, of the pairs, as the last one, each of them so many times."""
    return np.ascontiguousarray(np.repeat(np.moveaxis(array, 0, -1), games, axis=-1))


def spread_on_device(
    array: np.ndarray, games: int, stream: Any, keep: Callable[[Any], None] = lambda _: None
) -> Any:
    """The same, made there if it is large: a host could neither hold it nor send it soon.

    What is sent for it is handed to `keep`: to give it back at once would wait for all that is
    played beside.
    """
    from numba import cuda

    if array.nbytes * games <= _SENT:
        return cuda.to_device(spread(array, games), stream=stream)
    pairs, *shape = array.shape
    whole = cuda.device_array((*shape, pairs * games), array.dtype, stream=stream)
    cells = np.ascontiguousarray(np.moveaxis(array, 0, -1)).reshape(-1, pairs, 1)
    origins = cuda.to_device(cells.view(np.uint8), stream=stream)
    keep(origins)
    with compiler:  # the first time it compiles
        _copier()[_COPY_BLOCKS, 256, stream](origins, games, whole.reshape(-1).view(np.uint8))
    return whole


@functools.cache
def _copier() -> Any:
    """Writes the bytes of each cell of each pair as often as there are games."""
    from numba import cuda

    def copy(origins: Any, games: int, copies: Any) -> None:
        _, pairs, size = origins.shape
        for i in range(cuda.grid(1), copies.size, cuda.gridsize(1)):
            column, byte = i // size, i % size
            cell, place = column // (pairs * games), column % (pairs * games)
            copies[i] = origins[cell, place // games, byte]

    return cuda.jit(copy)


def _arrays(value: Any, path: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """Each array, and the indices that lead to it."""
    if isinstance(value, tuple):
        for i, part in enumerate(value):
            yield from _arrays(part, f"{path}[{i}]")
    elif isinstance(value, np.ndarray):
        yield path, value


def source_of(state: Any, threads: int) -> str:
    """The functions of `Access`, in Python; loops of equal sources are compiled once."""
    return _write(state, threads, {})


def access_of(state: Any, threads: int) -> Access:
    """The functions for this state, in blocks of so many threads.

    A compiler must know how many parts a tuple has and of which class it is, and how large local
    and shared arrays are, so the functions are written out:
    `Tally(own0, states[1][:, game], ...)`.
    """
    from numba import cuda

    namespace: dict[str, Any] = {"cuda": cuda}
    exec(_write(state, threads, namespace), namespace)
    return Access(*(cuda.jit(device=True, inline=True)(namespace[f]) for f in Access._fields))


def _write(state: Any, threads: int, namespace: dict[str, Any]) -> str:
    from numba import from_dtype

    arrays = dict(_arrays(state))
    shared = sum(array.nbytes for array in arrays.values() if array.size > 1) <= _SHARED
    names, view, put_back, restart = {}, ["lane = cuda.threadIdx.x"], ["pass"], ["pass"]
    for number, (path, array) in enumerate(arrays.items()):
        own, kind, axes = f"own{number}", f"kind{number}", range(array.ndim)
        namespace[kind] = from_dtype(array.dtype)
        # Over bounds that are known when it runs: written out, copies take many registers.
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
            # An odd row keeps threads off each other's banks.
            shape = (threads, *array.shape) if inner else (threads, size | 1)
            row = "lane" if inner else f"lane, :{size}"
            view.append(f"{own} = cuda.shared.array({shape}, {kind})[{row}]")
        else:
            names[path] = f"states{path}[{', '.join(':' for _ in axes)}, game]"
            continue
        copies = [loop.replace("state[", "states[") for loop in loops]
        view += _nested([*copies, f"{own}[{here}] = {there}"])
        put_back += _nested([*copies, f"{there} = state{path}[{here}]"])
    view.append(f"return {_expression(state, '', names, namespace)}")
    functions = {
        "view(states, game)": view,
        "put_back(states, game, state)": put_back,
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
