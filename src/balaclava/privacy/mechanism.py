"""What is known of every mechanism: its terms, and how it answers when the answer is released.

A mechanism is a kernel that says in its arguments what it protects and at what price. The
arguments go by fixed names, in this order and as far as the mechanism has them:

    value        what depends on the data
    sensitivity  how far one reward can move it (1 where there is no such argument)
    epsilon      the privacy loss
    delta        the probability outside it (0 where there is no such argument)

The secure randomness answers through `exact`; an auditor reads the `terms`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from balaclava._core import kernels as _kernel
from balaclava.errors import PrivacyError

Function = TypeVar("Function", bound=Callable[..., Any])


class Terms(NamedTuple):
    """One release: what is protected, and at what price."""

    value: float
    sensitivity: float
    epsilon: float
    delta: float


@dataclass(frozen=True)
class Mechanism:
    """One entry of the table: everything but the floating-point body."""

    name: str
    exact: Callable[[Terms], float]  # the same law on an integer grid, with exact noise
    local: bool  # whether the answer is a report that leaves its owner
    arguments: tuple[str, ...]
    require: Callable[[Terms], None]  # raises where the law does not keep its terms

    def terms(self, *arguments: Any) -> Terms:
        """The terms of a call, from what the kernel was given after `rng`."""
        given = {"sensitivity": 1.0, "delta": 0.0}
        given |= zip(self.arguments, (float(argument) for argument in arguments), strict=True)
        return Terms(**given)


_TABLE: dict[Callable[..., Any], Mechanism] = {}


def mechanism(
    name: str,
    exact: Callable[[Terms], float],
    *,
    local: bool = False,
    require: Callable[[Terms], None] = lambda _: None,
    borrows: bool = False,
) -> Callable[[Function], Function]:
    """Mark a kernel `(rng, value, [sensitivity,] epsilon[, delta])` as a mechanism.

    Compiled, or interpreted with a plain numpy generator, its body runs: floating-point noise,
    good for simulation only. The secure randomness calls `exact` instead. `borrows=True` says that
    the body makes no array, so it is compiled without reference counts.
    """

    def mark(function: Function) -> Function:
        _, *arguments = inspect.signature(function).parameters
        if not {"value", "epsilon"} <= set(arguments) <= set(Terms._fields):
            raise PrivacyError(
                f"{function.__name__}: the arguments of a mechanism are rng, value, [sensitivity,] "
                f"epsilon and [delta], not {', '.join(arguments)}"
            )
        _TABLE[function] = Mechanism(name, exact, local, tuple(arguments), require)
        return _kernel.mechanism(function, borrows=borrows)

    return mark


def mechanism_of(function: Callable[..., Any]) -> Mechanism:
    """The entry of a kernel that was marked with `mechanism`: its body or its public name."""
    body = getattr(function, "__wrapped__", function)
    if body not in _TABLE:
        raise PrivacyError(
            f"{function.__name__} is not a declared mechanism, so its noise cannot be made exact; "
            "mark it with balaclava.privacy.mechanism.mechanism"
        )
    return _TABLE[body]
