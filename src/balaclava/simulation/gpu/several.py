"""The constants of several pairs in one launch: stacked on the host, one pair's on the device.

Pairs that have the same kernels, and constants of the same kinds and sizes, can be played by one
launch: each number of a pair becomes an element of an array, and each array a row of one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


def kind_of(value: Any, *, sizes: bool = True) -> Any:
    """What two values must have in common to be stacked: classes, types and sizes."""
    if isinstance(value, tuple):
        return type(value), tuple(kind_of(part, sizes=sizes) for part in value)
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape if sizes else value.ndim
    return type(value)


def stacked(values: Sequence[Any]) -> Any:
    """Values of one kind as plain tuples of arrays, whose first axis is that of the pairs.

    >>> stacked([(1, (0.5,)), (2, (0.25,))])
    (array([1, 2]), (array([0.5 , 0.25]),))
    """
    first = values[0]
    if isinstance(first, tuple):
        return tuple(stacked(parts) for parts in zip(*values, strict=True))
    return np.array(values)


def picker(value: Any, several: bool) -> Callable[[Any, int], Any]:
    """A function of what a launch is given, and of the number of a pair: that pair's value.

    A compiler must know the class of a tuple and how many parts it has, so it is written out.
    """
    if not several:
        return lambda values, pair: values
    namespace: dict[str, Any] = {}
    exec(f"def pick(values, pair):\n    return {_expression(value, '', namespace)}", namespace)
    pick: Callable[[Any, int], Any] = namespace["pick"]
    return pick


def _expression(value: Any, path: str, namespace: dict[str, Any]) -> str:
    if not isinstance(value, tuple):
        return f"values{path}[pair]"
    name = f"{type(value).__name__}_{len(namespace)}"
    namespace[name] = type(value)
    parts = [_expression(part, f"{path}[{i}]", namespace) for i, part in enumerate(value)]
    return f"{name}({', '.join(parts)})" if hasattr(value, "_fields") else f"({', '.join(parts)},)"
