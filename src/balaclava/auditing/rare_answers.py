"""Rare answers: possible under a mechanism's law, but improbable.

Privacy must hold for every possible answer, and a leak may depend on a rare one. So in some
scenarios the recorder replaces answers: by stretched noise, one-sided noise, no noise, an earlier
answer, or a value near a number in the policy's code. Each stays in the support of its law. The
loss of a moved input does not depend on the answer, so replay judges such a tape like any other.
"""

import functools
import math
import types
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from balaclava.policies.base import Policy
from balaclava.privacy.mechanisms.base import Mechanism, Terms

# Styles of answers, by scenario; a guess, with the most frequent kind of leak twice.
RARE_STYLES = ("any", "high", "number", "low", "repeated", "stretched", "number", "bare")
_NOISE_FACTORS = (3.0, 8.0, 30.0, 1e3)  # by which noise is stretched
_TAIL_PROBABILITY = 1e-9  # beyond the quantiles of a bounded law that are tried
_DRAWS_TO_CHOOSE_FROM = 24  # for a mechanism without a declared law
_NATURAL_SHARES = (0.3, 0.6, 0.85)  # of answers that stay as drawn; a guess
_LARGEST_CODE_NUMBER = 1e9  # larger ones are limits of formats rather than thresholds
_COMMON_NUMBERS = (0.0, 1.0, -1.0, 0.5, 10.0)  # tried for every policy


class RareAnswers:
    """Replaces drawn answers of a scenario by rare ones."""

    def __init__(self, numbers: tuple[float, ...], number: int, seed: int) -> None:
        self.rng = np.random.default_rng([seed, number, 77])
        self.style = RARE_STYLES[number % len(RARE_STYLES)]
        self.natural = _NATURAL_SHARES[number // len(RARE_STYLES) % len(_NATURAL_SHARES)]
        self.numbers = numbers
        self.earlier: list[float] = [0.0]
        self.known_ranges: dict[tuple[Any, ...], tuple[float, float, bool]] = {}

    def answer(
        self, mechanism: Mechanism, terms: Terms, answer: Any, again: Callable[[], Any]
    ) -> Any:
        """Another answer to the same query; `again` draws one."""
        if self.rng.random() < self.natural:
            result = answer
        elif isinstance(answer, tuple):
            result = self.rare_array(mechanism, terms, answer, again)
        else:
            result = self.rare_number(mechanism, terms, float(answer), again)
        if not np.isfinite(result).all():
            return answer
        self.earlier.append(float(np.ravel(result)[-1]))
        return result

    def rare_number(
        self, mechanism: Mechanism, terms: Terms, answer: float, again: Callable[[], Any]
    ) -> float:
        """The wanted answer, clipped to the range of the law."""
        if mechanism.law is None:
            wanted = self.wanted(float(terms.value), answer)
            draws = (float(again()) for _ in range(_DRAWS_TO_CHOOSE_FROM))
            return min(draws, key=lambda each: abs(each - wanted))
        low, high, whole = self.answer_range(mechanism, terms)
        if whole and high - low <= 1.0:  # a coin
            return low if self.rng.random() < 0.5 else high
        wanted = self.wanted(float(terms.value), answer)
        return min(max(float(np.rint(wanted)) if whole else wanted, low), high)

    def rare_array(
        self, mechanism: Mechanism, terms: Terms, answer: Any, again: Callable[[], Any]
    ) -> Any:
        """Part by part for an unbounded law; otherwise the draw with the largest part."""
        unbounded = (-math.inf, math.inf)
        if mechanism.law is not None and self.answer_range(mechanism, terms)[:2] == unbounded:
            return tuple(map(self.wanted, terms.value, answer))
        draws = (again() for _ in range(_DRAWS_TO_CHOOSE_FROM))
        return max(draws, key=lambda each: float(np.abs(each).max()))

    def answer_range(self, mechanism: Mechanism, terms: Terms) -> tuple[float, float, bool]:
        """The smallest and largest answer, and whether answers are whole numbers."""
        anywhere, here = (mechanism.name, *terms[1:]), (mechanism.name, *terms)
        for key in (anywhere, here):
            if key in self.known_ranges:
                return self.known_ranges[key]
        assert mechanism.law is not None  # the caller has checked
        law = mechanism.law(terms)
        low, high = map(float, law.support())
        unbounded = math.isinf(low) and math.isinf(high)
        if not unbounded:
            low, high = float(law.ppf(_TAIL_PROBABILITY)), float(law.isf(_TAIL_PROBABILITY))
        self.known_ranges[anywhere if unbounded else here] = low, high, hasattr(law, "pmf")
        return low, high, hasattr(law, "pmf")

    def wanted(self, value: float, answer: float) -> float:
        """An answer in the style of this scenario, possibly outside the support of the law."""
        noise = answer - value
        style = str(self.rng.choice(RARE_STYLES[1:])) if self.style == "any" else self.style
        if style == "number":
            return self.near_code_number()
        if style == "repeated":
            return float(self.rng.choice(self.earlier[-4:]))
        if style == "bare":
            return value if self.rng.random() < 0.5 else float(np.rint(answer))
        factor = float(self.rng.choice(_NOISE_FACTORS))
        if style == "stretched":
            return value + factor * noise
        return value + factor * (abs(noise) if style == "high" else -abs(noise))

    def near_code_number(self) -> float:
        """A number in the code, a product or a mean of two of them, or a value close to one."""
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
        """A plain draw, sometimes replaced by one far in the tail."""
        if not isinstance(answer, float) or self.rng.random() > 0.25:
            return answer
        if method == "random":
            tail = 10.0 ** self.rng.uniform(-12.0, -2.0)
            return tail if self.rng.random() < 0.5 else 1.0 - tail
        return 4.0 * answer if method in ("standard_normal", "standard_exponential") else answer


@functools.lru_cache(maxsize=16)
def code_numbers(policy: Policy) -> tuple[float, ...]:
    """The numbers in the code of the policy's kernels and among its parameters."""
    numbers = {*_COMMON_NUMBERS, *_numbers_among(policy.constants())}
    waiting, codes = [*policy.kernels, policy.prepare(), policy.report_kernel], set()
    while waiting:
        function = waiting.pop()
        if not isinstance(function, types.FunctionType) or function.__code__ in codes:
            continue
        codes.add(function.__code__)
        names = [function.__globals__.get(name) for name in function.__code__.co_names]
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        numbers |= _numbers_among([*function.__code__.co_consts, *names, *cells])
        waiting += [*names, *cells]
    return tuple(sorted(numbers))


def _numbers_among(objects: Iterable[Any]) -> set[float]:
    plain = {float(x) for x in objects if isinstance(x, int | float) and not isinstance(x, bool)}
    return {number for number in plain if abs(number) <= _LARGEST_CODE_NUMBER}
