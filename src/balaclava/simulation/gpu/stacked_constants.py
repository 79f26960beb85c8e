"""The constants of several pairs in one launch: packed on the host, one pair's on the device.

Pairs that have the same kernels and constants of the same kinds can be played by one launch: each
number of a pair becomes an element of an array, and each array the beginning of a row of one.
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


def packed(values: Sequence[Any]) -> Any:
    """The same for arrays of any sizes: each is filled up, beside the sizes of all pairs.

    >>> packed([(1, np.array([0.5])), (2, np.array([0.25, 0.75]))])
    (array([1, 2]), (array([[0.5 , 0.  ],
           [0.25, 0.75]]), array([[1],
           [2]])))
    """
    first = values[0]
    if isinstance(first, tuple):
        return tuple(packed(parts) for parts in zip(*values, strict=True))
    if not isinstance(first, np.ndarray):
        return np.array(values)
    sizes = np.array([array.shape for array in values])
    full = np.zeros((len(values), *sizes.max(axis=0)), first.dtype)
    for row, array in zip(full, values, strict=True):
        row[tuple(map(slice, array.shape))] = array
    return full, sizes


def picker(value: Any, several: bool) -> Callable[[Any, int], Any]:
    """A function of what is packed, and of the number of a pair: that pair's value.

    A compiler must know the class of a tuple and how many parts it has, so it is written out.
    """
    if not several:
        return lambda values, pair: values
    namespace: dict[str, Any] = {}
    exec(f"def pick(values, pair):\n    return {_expression(value, '', namespace)}", namespace)
    pick: Callable[[Any, int], Any] = namespace["pick"]
    return pick


def _expression(value: Any, path: str, namespace: dict[str, Any]) -> str:
    if isinstance(value, np.ndarray):
        sizes = (f":values{path}[1][pair, {axis}]" for axis in range(value.ndim))
        return f"values{path}[0][{', '.join(['pair', *sizes])}]"
    if not isinstance(value, tuple):
        return f"values{path}[pair]"
    name = f"{type(value).__name__}_{len(namespace)}"
    namespace[name] = type(value)
    parts = [_expression(part, f"{path}[{i}]", namespace) for i, part in enumerate(value)]
    return f"{name}({', '.join(parts)})" if hasattr(value, "_fields") else f"({', '.join(parts)},)"
