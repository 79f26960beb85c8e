"""What is known of every mechanism: its terms, its law, and how it answers in a released run.

A mechanism is a kernel that says in its arguments what it protects and at what price. The
arguments go by fixed names, in this order and as far as the mechanism has them:

    value        what depends on the data: a number, or an array
    sensitivity  how far one reward can move it (1 where there is no such argument)
    epsilon      the privacy loss
    delta        the probability outside it (0 where there is no such argument)
    out          where the answer is written, if the value is an array: kernels allocate nothing

The secure randomness answers through `exact`; an auditor reads the `terms`, charges a moved value
by its `loss`, and compares what the body draws with its `law`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

from balaclava._core import kernels as _kernel
from balaclava._core.declared import ReleaseEpsilon, Sensitivity, check, check_claim
from balaclava.errors import ParameterError, PrivacyError

Function = TypeVar("Function", bound=Callable[..., Any])
Value = Any  # a number, or a tuple of them

ROUNDING = 2.0**-20  # of a sensitivity: what the spare step of `privacy.secure` pays for


class Terms(NamedTuple):
    """One release: what is protected, and at what price."""

    value: Value
    sensitivity: float
    epsilon: float
    delta: float


class Loss(NamedTuple):
    """What a moved value costs: epsilon and delta, or the shift of a Gaussian in its deviations."""

    epsilon: float = 0.0
    delta: float = 0.0
    shift: float = 0.0


def distance(one: Value, other: Value, order: float = 1.0) -> float:
    """How far apart two values are, in the norm of that order; infinite for what is no number."""
    if isinstance(one, tuple) or isinstance(other, tuple):
        if np.shape(one) != np.shape(other):
            return math.inf
        apart = float(np.linalg.norm(np.subtract(one, other), ord=order))
    else:
        apart = abs(one - other)
    return apart if apart >= 0.0 else math.inf


def declared_loss(apart: float, terms: Terms) -> Loss:
    """All that was declared, for a value that moved within its sensitivity."""
    if apart <= terms.sensitivity * (1.0 + ROUNDING):
        return Loss(terms.epsilon, terms.delta)
    return Loss(math.inf)


def proportional_loss(apart: float, terms: Terms) -> Loss:
    """Epsilon times distance over sensitivity: that of Laplace noise."""
    return Loss(terms.epsilon * (apart / terms.sensitivity))


@dataclass(frozen=True)
class Mechanism:
    """One entry of the table: everything but the floating-point body."""

    name: str
    exact: Callable[[Terms], Any]  # the same law on an integer grid, with exact noise
    local: bool  # whether the answer is a report that leaves its owner
    arguments: tuple[str, ...]
    require: Callable[[Terms], None]  # raises where the law does not keep its terms
    norm: float  # the order of the norm that sensitivity is measured in
    loss_of: Callable[[Terms, Terms], Loss] | None
    loss_by_distance: Callable[[float, Terms], Loss]
    law: Callable[[Terms], Any] | None  # of an answer, or of each part of one; see `IndexLaw`
    kernel: Callable[..., Any]  # the marked kernel

    def terms(self, *arguments: Any) -> Terms:
        """The terms of a call, from what the kernel was given after `rng`."""
        parts: dict[str, Any] = {"sensitivity": 1.0, "delta": 0.0}
        for name, argument in zip(self.arguments, arguments, strict=True):
            if name == "value" and isinstance(argument, np.ndarray):
                parts[name] = tuple(map(float, argument))
            elif name != "out":
                parts[name] = float(argument)
        return Terms(**parts)

    def answer(self, body: Callable[..., Any], rng: Any, arguments: tuple[Any, ...]) -> Any:
        """What the body answers: a number, or what it wrote."""
        result = body(rng, *arguments)
        return tuple(map(float, arguments[-1])) if self.arguments[-1] == "out" else result

    def deliver(self, arguments: tuple[Any, ...], answer: Any) -> Any:
        """Hand an answer to the caller: return it, or write it to `out`."""
        if self.arguments[-1] != "out":
            return answer
        arguments[-1][:] = answer
        return None

    def loss(self, one: Terms, other: Terms) -> Loss:
        """What it costs that the value is one or the other."""
        if self.loss_of is not None:
            return self.loss_of(one, other)
        return self.loss_by_distance(distance(one.value, other.value, self.norm), one)


_TABLE: dict[Callable[..., Any], Mechanism] = {}


def mechanism(
    name: str,
    exact: Callable[[Terms], Any],
    *,
    local: bool = False,
    require: Callable[[Terms], None] = lambda _: None,
    norm: float = 1.0,
    loss: Callable[[float, Terms], Loss] = declared_loss,
    loss_of: Callable[[Terms, Terms], Loss] | None = None,
    law: Callable[[Terms], Any] | None = None,
    borrows: bool = False,
) -> Callable[[Function], Function]:
    """Mark a kernel `(rng, value, [sensitivity,] epsilon[, delta][, out])` as a mechanism.

    Compiled, or interpreted with a plain numpy generator, its body runs: floating-point noise,
    good for simulation only. The secure randomness calls `exact` instead.

    Args:
        name: what reports of an audit call it.
        exact: the released answer.
        local: whether the owner of a reward runs it.
        require: refuses terms that the law does not keep.
        norm: in which distances of arrays are measured, 1 or 2.
        loss: what a value costs that moved by a distance; by default all that was declared.
        loss_of: the same from both terms, where the distance is not enough.
        law: of the answer given the terms (with `cdf`, `sf`, `ppf`, `isf`, `support`), which
            audits compare with what the body draws; of each part of an answer that is an array.
        borrows: the body makes no array, so it is compiled without reference counts.
    """

    def mark(function: Function) -> Function:
        _, *arguments = inspect.signature(function).parameters
        if not {"value", "epsilon"} <= set(arguments) <= {*Terms._fields, "out"}:
            raise PrivacyError(
                f"{function.__name__}: the arguments of a mechanism are rng, value, [sensitivity,] "
                f"epsilon, [delta] and [out], not {', '.join(arguments)}"
            )
        kernel = _kernel.mechanism(function, borrows=borrows)
        _TABLE[function] = Mechanism(
            name, exact, local, tuple(arguments), require, norm, loss_of, loss, law, kernel
        )
        return kernel

    return mark


def mechanism_of(function: Callable[..., Any]) -> Mechanism:
    """The entry of a kernel that was marked with `mechanism`: its body or its public name."""
    body = getattr(function, "__wrapped__", function)
    if body not in _TABLE:
        raise PrivacyError(
            f"{function.__name__} is not a declared mechanism, so its noise cannot be made exact; "
            "mark it with balaclava.privacy.mechanisms.base.mechanism"
        )
    return _TABLE[body]


def check_budget(epsilon: float, delta: float = 0.0, sensitivity: float = 1.0) -> None:
    """Refuse a privacy budget or a sensitivity that no mechanism can keep.

    Example:
        >>> check_budget(0.0, delta=0.01)
        >>> check_budget(0.0)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        balaclava.errors.PrivacyError: epsilon = 0 with delta = 0 would mean decisions...
    """
    try:
        check_claim(epsilon, delta, ReleaseEpsilon)
        check("sensitivity", sensitivity, Sensitivity)
    except ParameterError as error:  # a policy's mistake, not a user's: audits report it
        raise PrivacyError(str(error)) from None
