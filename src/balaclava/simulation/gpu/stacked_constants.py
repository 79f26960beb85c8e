"""Constants of several pairs in one launch: packed on the host, unpacked on the device.

A pair is a policy and an environment. One launch can play pairs with the same kernels and the same
kinds of constants. Numbers become elements of an array, and arrays become rows, padded to the
longest.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


def value_kind(value: Any, *, sizes: bool = True) -> Any:
    """What two values must share to be stacked: classes, types and sizes."""
    if isinstance(value, tuple):
        return type(value), tuple(value_kind(part, sizes=sizes) for part in value)
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape if sizes else value.ndim
    return type(value)


def stacked(values: Sequence[Any]) -> Any:
    """Stack values of one kind into tuples of arrays; the first axis is the pair.

    >>> stacked([(1, (0.5,)), (2, (0.25,))])
    (array([1, 2]), (array([0.5 , 0.25]),))
    """
    first = values[0]
    if isinstance(first, tuple):
        return tuple(stacked(parts) for parts in zip(*values, strict=True))
    return np.array(values)


def packed(values: Sequence[Any]) -> Any:
    """Stack values whose arrays differ in size: padded arrays, each with the sizes of all pairs.

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
    """Write a function of packed values and a pair's number that returns that pair's value.

    The compiler needs the class and length of each tuple, so its source is generated.
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
