"""Declaration of mechanisms: their arguments, law, and exact form.

A mechanism is a kernel whose arguments state what it protects and at which privacy loss. They have
fixed names, in this order; a mechanism has those that apply:

    value        a number or an array that depends on the data
    sensitivity  how far one reward can move the value (1 if there is no such argument)
    epsilon      privacy loss
    delta        failure probability (0 if there is no such argument)
    out          array for the answer if the value is an array: kernels do not allocate

The secure randomness answers through `exact`. An audit reads the `terms`, computes the `loss` of a
moved value, and compares the draws of the body with its `law`.
"""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

from balaclava._core import kernels as _kernel
from balaclava._core.declared import ReleaseEpsilon, Sensitivity, check, check_claim
from balaclava._core.extras import import_extra
from balaclava.errors import ParameterError, PrivacyError

Function = TypeVar("Function", bound=Callable[..., Any])
Value = Any  # a number, or a tuple of them

# In sensitivities: rounding that the spare grid step of `privacy.exact_noise` covers.
ROUNDING = 2.0**-20


class Terms(NamedTuple):
    """Arguments of one release: the protected value and its privacy loss."""

    value: Value
    sensitivity: float
    epsilon: float
    delta: float


class Loss(NamedTuple):
    """Privacy loss of a moved value: epsilon and delta, or a Gaussian's shift / deviation."""

    epsilon: float = 0.0
    delta: float = 0.0
    shift: float = 0.0


def distance(one: Value, other: Value, order: float = 1.0) -> float:
    """Distance of two values in the norm of that order; infinite if it is not a number."""
    if isinstance(one, tuple) or isinstance(other, tuple):
        if np.shape(one) != np.shape(other):
            return math.inf
        apart = float(np.linalg.norm(np.subtract(one, other), ord=order))
    else:
        apart = abs(one - other)
    return apart if apart >= 0.0 else math.inf


def declared_loss(apart: float, terms: Terms) -> Loss:
    """The declared epsilon and delta, for a value that moved within its sensitivity."""
    if apart <= terms.sensitivity * (1.0 + ROUNDING):
        return Loss(terms.epsilon, terms.delta)
    return Loss(math.inf)


def proportional_loss(apart: float, terms: Terms) -> Loss:
    """Epsilon times distance over sensitivity: the loss of Laplace noise."""
    return Loss(terms.epsilon * (apart / terms.sensitivity))


@dataclass(frozen=True)
class Mechanism:
    """A declared mechanism without its floating-point body; `mechanism` explains the fields."""

    name: str
    exact: Callable[[Terms], Any]
    local: bool
    arguments: tuple[str, ...]
    require: Callable[[Terms], None]
    norm: float
    loss_between: Callable[[Terms, Terms], Loss] | None
    loss_by_distance: Callable[[float, Terms], Loss]
    law: Callable[[Terms], Any] | None
    views: Callable[..., Any] | None
    kernel: Callable[..., Any]  # the marked kernel

    def terms(self, *arguments: Any) -> Terms:
        """The terms of a call, from the kernel's arguments after `rng`."""
        parts: dict[str, Any] = {"sensitivity": 1.0, "delta": 0.0}
        for name, argument in zip(self.arguments, arguments, strict=True):
            if name == "value" and isinstance(argument, np.ndarray):
                parts[name] = tuple(map(float, argument))
            elif name != "out":
                parts[name] = float(argument)
        return Terms(**parts)

    def answer(self, body: Callable[..., Any], rng: Any, arguments: tuple[Any, ...]) -> Any:
        """Run the body and return its answer, from `out` if it wrote it there."""
        result = body(rng, *arguments)
        return tuple(map(float, arguments[-1])) if self.arguments[-1] == "out" else result

    def deliver(self, arguments: tuple[Any, ...], answer: Any) -> Any:
        """Return an answer to the caller, or write it to `out`."""
        if self.arguments[-1] != "out":
            return answer
        arguments[-1][:] = answer
        return None

    def loss(self, one: Terms, other: Terms) -> Loss:
        """Privacy loss between two values of the same release."""
        if self.loss_between is not None:
            return self.loss_between(one, other)
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
    loss_between: Callable[[Terms, Terms], Loss] | None = None,
    law: Callable[[Terms], Any] | None = None,
    views: Callable[..., Any] | None = None,
    borrows: bool = False,
) -> Callable[[Function], Function]:
    """Mark a kernel `(rng, value, [sensitivity,] epsilon[, delta][, out])` as a mechanism.

    Compiled code, and a plain numpy generator, run the body: floating-point noise, for simulation
    only. The secure randomness calls `exact` instead.

    Args:
        name: name in audit reports.
        exact: returns the answer of a released run: the same law on a grid, with exact noise.
        local: whether the owner of a reward runs it, so that the answer is a report.
        require: raises `PrivacyError` for terms that the law does not keep.
        norm: order of the norm of the sensitivity, 1 or 2.
        loss: privacy loss of a value that moved by a distance; by default the declared one.
        loss_between: privacy loss from both terms, if it depends on more than the distance.
        law: distribution of the answer given the terms, or of each element of an array: an
            object with `cdf`, `sf`, `ppf`, `isf` and `support`. Audits compare draws with it.
        views: plays a release by two servers, as `privacy.secret_shares.shared_release` does, if
            neither is trusted. Audits examine the view of each.
        borrows: whether the body makes no array; it is then compiled without reference counts.

    Returns:
        A decorator for the kernel.

    Raises:
        PrivacyError: if the kernel has other arguments.
    """

    def mark(function: Function) -> Function:
        _, *arguments = inspect.signature(function).parameters
        if not {"value", "epsilon"} <= set(arguments) <= {*Terms._fields, "out"}:
            raise PrivacyError(
                f"{function.__name__} has the arguments rng, {', '.join(arguments)}; a mechanism "
                "has rng, value, [sensitivity,] epsilon, [delta] and [out], by these names"
            )
        kernel = _kernel.mechanism(function, borrows=borrows)
        _TABLE[function] = Mechanism(
            name, exact, local, tuple(arguments), require, norm, loss_between, loss, law, views,
            kernel,
        )  # fmt: skip
        return kernel

    return mark


def declared_mechanism(function: Callable[..., Any]) -> Mechanism:
    """Return the declaration of a kernel that was marked with `mechanism`, or of its body."""
    body = getattr(function, "__wrapped__", function)
    if body not in _TABLE:
        raise PrivacyError(
            f"{function.__name__} is not a declared mechanism, so it has no exact noise; mark it "
            "with `mechanism` of balaclava.authoring"
        )
    return _TABLE[body]


def declared_mechanisms() -> list[tuple[Callable[..., Any], Mechanism]]:
    """The body and the declaration of every mechanism."""
    return list(_TABLE.items())


def scipy_law(name: str, *parameters: float) -> Any:
    stats = import_extra("scipy.stats", "the law of a mechanism")
    return getattr(stats, name)(*parameters)


def check_budget(epsilon: float, delta: float = 0.0, sensitivity: float = 1.0) -> None:
    """Refuse a privacy budget or a sensitivity that no mechanism can keep.

    Args:
        epsilon: privacy loss.
        delta: failure probability.
        sensitivity: how far one reward can move the value.

    Raises:
        PrivacyError: if one of them is out of range, or epsilon and delta are both 0.

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
