"""A policy's state for many games at once.

`begin` runs once, on the host. Each array of the state it returns gets a last axis for the games,
so that neighbouring threads read neighbouring numbers; a game's own state is a view of one place on
that axis. States may hold other named tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np


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
    return sum(array.nbytes for array in _arrays(state))


def _arrays(value: Any) -> Iterator[np.ndarray]:
    if isinstance(value, tuple):
        for part in value:
            yield from _arrays(part)
    elif isinstance(value, np.ndarray):
        yield value


def shape_of(state: Any) -> str:
    """The classes and the numbers of axes that a state is made of: what its view depends on."""
    return _expression(state, "states", {})


def view_of(state: Any) -> Callable[..., Any]:
    """The function `view(states, game)`: the state of one game, from those of all games.

    A compiler must know how many parts a tuple has and of which class it is, so the function is
    written out for this state: `Tally(states[0][:, game], states[1][:, game], ...)`.
    """
    classes: dict[str, type] = {}
    lines = f"def view(states, game):\n    return {_expression(state, 'states', classes)}\n"
    namespace: dict[str, Any] = dict(classes)
    exec(lines, namespace)
    view: Callable[..., Any] = namespace["view"]
    return view


def _expression(value: Any, path: str, classes: dict[str, type]) -> str:
    if isinstance(value, tuple):
        parts = [_expression(part, f"{path}[{i}]", classes) for i, part in enumerate(value)]
        if not hasattr(value, "_fields"):
            return f"({', '.join(parts)},)"
        name = f"{type(value).__name__}{len(classes)}"
        classes[name] = type(value)
        return f"{name}({', '.join(parts)})"
    if isinstance(value, np.ndarray):
        return f"{path}[{', '.join([':'] * value.ndim + ['game'])}]"
    return path
