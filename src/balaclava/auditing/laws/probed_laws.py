"""The exact law of a mechanism's noise, if its body scales a single draw.

The body is called with chosen draws. If its answer is the value plus a multiple of one Gaussian or
Laplace draw, that multiple is the scale, without any error of sampling.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from balaclava.privacy.mechanisms.base import Mechanism, Terms, scipy_law

_PROBED_AT = (0.0, 1.0, -1.0, 2.5)  # at which the noise must be linear
_LINEAR = 1e-9  # relative rounding of it
_RARE_CALLS = 200  # of a body with rare draws; a guess
_FAMILIES = {"standard_normal": "norm", "normal": "norm", "laplace": "laplace"}


class ChosenDraws:
    """Answers each draw with its location plus a chosen multiple of its scale."""

    def __init__(self, point: float) -> None:
        self._point = point
        self.families: list[str] = []

    def __getattr__(self, method: str) -> Callable[..., float]:
        if method not in _FAMILIES:
            raise AttributeError(method)

        def draw(location: float = 0.0, scale: float = 1.0) -> float:
            self.families.append(_FAMILIES[method])
            return location + scale * self._point

        return draw


def probed_law(mechanism: Mechanism, terms: Terms) -> Any:
    """The law of a number's answer, or of the noise in each part of an array; None if unknown."""
    value = np.atleast_1d(np.array(terms.value, float))
    noise, families = [], set[str]()
    for point in _PROBED_AT:
        draws = ChosenDraws(point)
        try:
            noise.append(answer_to(mechanism, terms, draws) - value)
        except (AttributeError, TypeError, ValueError, ArithmeticError):
            return None
        if len(draws.families) != value.size:
            return None
        families |= set(draws.families)
    scale = float(noise[1][0])
    allowed = _LINEAR * (abs(scale) + float(np.abs(value).max()))
    linear = all(
        np.abs(part - point * scale).max() <= allowed
        for point, part in zip(_PROBED_AT, noise, strict=True)
    )
    if len(families) != 1 or not linear or scale == 0.0:
        return None
    centre = 0.0 if isinstance(terms.value, tuple) else terms.value
    return scipy_law(families.pop(), centre, abs(scale))


def answer_to(mechanism: Mechanism, terms: Terms, rng: Any) -> np.ndarray:
    """The answer of the body with these draws, as an array."""
    body: Callable[..., Any] = getattr(mechanism.kernel, "__wrapped__", mechanism.kernel)
    parts = {name: getattr(terms, name) for name in mechanism.arguments if name != "out"}
    if "out" not in mechanism.arguments:
        return np.atleast_1d(float(body(rng, *parts.values())))
    value = np.array(terms.value)
    out = np.zeros(value.size)
    body(rng, *{**parts, "value": value}.values(), out)
    return out


class RareDraws:
    """Half of the draws as numpy makes them, the others far in a tail."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method == "release" or method.startswith("_"):
            raise AttributeError(method)

        def draw(*arguments: Any) -> Any:
            far, sign = 10.0 ** self._rng.uniform(0.5, 1.6), self._rng.choice([-1.0, 1.0])
            if self._rng.random() < 0.5:
                if method == "random":
                    tail = 10.0 ** self._rng.uniform(-9.0, -2.0)
                    return tail if sign > 0.0 else 1.0 - tail
                if method == "integers" and len(arguments) == 2:
                    return int(arguments[0]) if sign > 0.0 else int(arguments[1]) - 1
                if method == "standard_exponential":
                    return far
                if method == "standard_normal":
                    return sign * far / 4.0
            return getattr(self._rng, method)(*arguments)

        return draw


def bare_after_rare_draws(mechanism: Mechanism, terms: Terms) -> bool:
    """Whether a body returns the value itself after rare draws; its law must be continuous.

    A value so large that small noise is lost by rounding is not tested.
    """
    if float(np.spacing(np.abs(terms.value)).max()) > 1e-11 * terms.sensitivity:
        return False
    rng, bare = RareDraws(np.random.default_rng(0)), 0
    try:
        for _ in range(_RARE_CALLS):
            bare += bool((answer_to(mechanism, terms, rng) == terms.value).any())
    except (AttributeError, TypeError, ValueError, ArithmeticError):
        return False
    return bare > 1
