"""Answers that a law allows and seldom gives: a leak may wait for one.

Privacy must hold for every answer that can come, however rare. So in some lives the recorder does
not keep to what was drawn: answers are stretched, pushed to one side, without any noise, equal to
an earlier one, or about the numbers that stand in the policy's own code. None leaves the support
of its law, and what a moved value costs does not depend on the answer: replay judges such a tape
as it judges any other.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from balaclava.policies.base import Policy
from balaclava.privacy.mechanisms.base import Mechanism, Terms

STYLES = ("any", "high", "number", "low", "repeated", "stretched", "number", "bare")
_FACTORS = (3.0, 8.0, 30.0, 1e3)  # by which noise is stretched
_LEAST = 1e-9  # the probability of the tails of a bounded law that are tried
_TRIES = 24  # draws from which a mechanism without a law may choose
_NATURAL = (0.3, 0.6, 0.85)  # the share of answers that stay as they were drawn
_LARGEST = 1e9  # of the numbers in the code that are tried
_COMMON = (0.0, 1.0, -1.0, 0.5, 10.0)


class RareAnswers:
    """Puts rare answers in the place of those that were drawn, all through a life."""

    def __init__(self, numbers: tuple[float, ...], number: int, seed: int) -> None:
        self.rng = np.random.default_rng([seed, number, 77])
        self.style = STYLES[number % len(STYLES)]
        self.natural = _NATURAL[number // len(STYLES) % len(_NATURAL)]
        self.numbers = numbers
        self.earlier: list[float] = [0.0]
        self.known_limits: dict[tuple[Any, ...], tuple[float, float, bool]] = {}

    def answer(
        self, mechanism: Mechanism, terms: Terms, answer: Any, again: Callable[[], Any]
    ) -> Any:
        """Another answer to the same question; `again` draws one."""
        if self.rng.random() < self.natural:
            result = answer
        elif isinstance(answer, tuple):
            result = self.array(mechanism, terms, answer, again)
        else:
            result = self.number(mechanism, terms, float(answer), again)
        if not np.isfinite(result).all():
            return answer
        self.earlier.append(float(np.ravel(result)[-1]))
        return result

    def number(
        self, mechanism: Mechanism, terms: Terms, answer: float, again: Callable[[], Any]
    ) -> float:
        """Where the law has no bounds what was wished for, else what is nearest to it."""
        if mechanism.law is None:
            wish = self.wish(float(terms.value), answer)
            return min((float(again()) for _ in range(_TRIES)), key=lambda each: abs(each - wish))
        low, high, whole = self.limits(mechanism, terms)
        if whole and high - low <= 1.0:  # a coin
            return low if self.rng.random() < 0.5 else high
        wish = self.wish(float(terms.value), answer)
        return min(max(float(np.rint(wish)) if whole else wish, low), high)

    def array(
        self, mechanism: Mechanism, terms: Terms, answer: Any, again: Callable[[], Any]
    ) -> Any:
        """Part by part where the law has no bounds; else the draw with the largest part."""
        if mechanism.law is not None and self.limits(mechanism, terms)[:2] == (-math.inf, math.inf):
            return tuple(map(self.wish, terms.value, answer))
        return max((again() for _ in range(_TRIES)), key=lambda each: float(np.abs(each).max()))

    def limits(self, mechanism: Mechanism, terms: Terms) -> tuple[float, float, bool]:
        """The least and the largest answer to take, and whether it must be a whole number."""
        anywhere, here = (mechanism.name, *terms[1:]), (mechanism.name, *terms)
        for key in (anywhere, here):
            if key in self.known_limits:
                return self.known_limits[key]
        assert mechanism.law is not None  # the caller has looked
        law = mechanism.law(terms)
        low, high = map(float, law.support())
        infinite = math.isinf(low) and math.isinf(high)
        if not infinite:
            low, high = float(law.ppf(_LEAST)), float(law.isf(_LEAST))
        self.known_limits[anywhere if infinite else here] = low, high, hasattr(law, "pmf")
        return low, high, hasattr(law, "pmf")

    def wish(self, value: float, answer: float) -> float:
        """An answer in the style of this life."""
        noise = answer - value
        style = str(self.rng.choice(STYLES[1:])) if self.style == "any" else self.style
        if style == "number":
            return self.about_a_number()
        if style == "repeated":
            return float(self.rng.choice(self.earlier[-4:]))
        if style == "bare":
            return value if self.rng.random() < 0.5 else float(np.rint(answer))
        factor = float(self.rng.choice(_FACTORS))
        if style == "stretched":
            return value + factor * noise
        return value + factor * (abs(noise) if style == "high" else -abs(noise))

    def about_a_number(self) -> float:
        """A number of the code, close to one, between two, or a product of two."""
        i, j = self.rng.integers(len(self.numbers), size=2)
        one, other, luck = self.numbers[i], self.numbers[j], self.rng.random()
        if luck < 0.3:
            return one
        if luck < 0.5:
            return one * other
        if luck < 0.7:
            return (one + self.numbers[max(i - 1, 0)]) / 2
        return one + float(self.rng.choice([-1.0, 1.0]) * 10.0 ** self.rng.uniform(-9.0, 0.5))

    def draw(self, method: str, answer: Any) -> Any:
        """A plain draw of a decision: far out now and then."""
        if not isinstance(answer, float) or self.rng.random() > 0.25:
            return answer
        if method == "random":
            tail = 10.0 ** self.rng.uniform(-12.0, -2.0)
            return tail if self.rng.random() < 0.5 else 1.0 - tail
        return 4.0 * answer if method in ("standard_normal", "standard_exponential") else answer


def code_numbers(policy: Policy) -> tuple[float, ...]:
    """The numbers in the code of the policy's kernels and among its parameters."""
    numbers = {*_COMMON, *_numbers(policy.constants())}
    waiting, codes = [*policy.kernels, policy.prepare(), policy.report_kernel], set()
    while waiting:
        function = waiting.pop()
        if not isinstance(function, types.FunctionType) or function.__code__ in codes:
            continue
        codes.add(function.__code__)
        names = [function.__globals__.get(name) for name in function.__code__.co_names]
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        numbers |= _numbers([*function.__code__.co_consts, *names, *cells])
        waiting += [*names, *cells]
    return tuple(sorted(numbers))


def _numbers(things: Iterable[Any]) -> set[float]:
    """Those that are numbers, if they are not too large."""
    plain = {float(x) for x in things if isinstance(x, int | float) and not isinstance(x, bool)}
    return {number for number in plain if abs(number) <= _LARGEST}
