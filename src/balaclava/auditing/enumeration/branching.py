"""Randomness that takes every branch: each outcome of a kernel, with its exact probability.

A kernel runs once for each outcome of its draws. A mechanism's answer is rounded to a few values:
the line is cut into cells that do not depend on the protected value, and each cell has the
probability that the mechanism's law gives it. Rounding is post-processing, and the outermost cells
are half-lines, so that no mass is lost. A uniform draw stays an interval, which comparisons split.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from balaclava.auditing.laws.exact_audit import LawOnGrid
from balaclava.privacy.mechanisms.base import (
    Terms,
    check_budget,
    declared_mechanism,
    scipy_law,
)

Outcome = TypeVar("Outcome")

# Cells of an answer, in units of its scale: their ends, and the answer in each. The outermost
# answers are far out, since a leak may depend on a rare answer. The middle one is not 0, which has
# no effect in sums; all are guesses.
_CELL_ENDS, _CELL_ANSWERS = (-4.0, -0.5, 0.5, 4.0), (-16.0, -1.0, 0.125, 1.0, 16.0)
_FEW_ENDS, _FEW_ANSWERS = (-0.5, 0.5), (-4.0, 0.125, 4.0)  # in long worlds and long arrays
_MOST_FINE_PARTS = 2  # of an array, with 25 answers
_MOST_ANSWERS = 250  # of a longer array: of 5 elements
_PIECES = 3  # of a plain continuous draw
_MOST_INTEGERS = 64  # of a plain draw
# Plain draws by their law. Privacy rests on mechanisms, so any law will do for these.
_PLAIN_LAWS = {
    "standard_normal": "norm", "standard_exponential": "expon", "standard_gamma": "gamma",
    "beta": "beta",
}  # fmt: skip


class NotEnumerable(Exception):  # noqa: N818 (a finding, not an error)
    """The draws of a kernel cannot be enumerated, or are too many."""


class BranchCounts:
    """Runs of kernels so far, and which kinds of draws were replaced by a few values."""

    def __init__(self, most_runs: int, few_cells: bool) -> None:
        self.runs, self.most_runs, self.few_cells = 0, most_runs, few_cells
        self.rounded = False  # whether a mechanism's answer was rounded
        self.coarse: set[str] = set()  # plain draws that became a few values
        self.errors: set[str] = set()  # of kernels that failed


class BranchingRandomness:
    """Follows a script of choices, and takes the first outcome of every further draw."""

    def __init__(self, script: Sequence[int], counts: BranchCounts) -> None:
        self._script, self._counts = script, counts
        self._taken: list[tuple[int, int]] = []  # the choice, and how many there were
        self._width = 1  # product of the numbers of choices
        self.probability = 1.0
        self.reports: list[float] = []  # answers of mechanisms that devices run

    def branch(self, chances: Sequence[float]) -> int:
        """The index of the next outcome, among those with a positive chance."""
        possible = [index for index, chance in enumerate(chances) if chance > 0.0]
        if not possible:
            raise NotEnumerable("no outcome of a draw has a probability: a value is not a number")
        self._width *= len(possible)
        if self._width > self._counts.most_runs:
            raise NotEnumerable("one decision or reward has too many outcomes")
        place = len(self._taken)
        choice = self._script[place] if place < len(self._script) else 0
        self._taken.append((choice, len(possible)))
        self.probability *= chances[possible[choice]]
        return possible[choice]

    def next_script(self) -> list[int] | None:
        """The script of the next outcome in depth-first order; None after the last."""
        taken = list(itertools.dropwhile(lambda each: each[0] + 1 == each[1], self._taken[::-1]))
        if not taken:
            return None
        return [choice for choice, _ in taken[:0:-1]] + [taken[0][0] + 1]

    def release(self, body: Callable[..., Any], *arguments: Any) -> Any:
        """An answer of a mechanism, rounded; without a declared law, that of its body."""
        mechanism = declared_mechanism(body)
        terms = mechanism.terms(*arguments)
        require_terms(body, terms)
        if mechanism.law is None:
            answer = mechanism.answer(body, self, arguments)
        else:
            answers, chances, rounded = answer_cells(body, terms, self._counts.few_cells)
            self._counts.rounded |= rounded
            answer = answers[self.branch(chances)]
        if mechanism.local:
            self.reports.append(answer)
        return mechanism.deliver(arguments, answer)

    def random(self) -> "LazyUniform":
        return LazyUniform(self, [0.0, 1.0])

    def integers(self, low: int, high: int | None = None) -> int:
        first, end = (0, low) if high is None else (low, high)
        if not 0 < end - first <= _MOST_INTEGERS:
            raise NotEnumerable(f"it draws one of {end - first} integers")
        return int(first + self.branch([1.0 / (end - first)] * (end - first)))

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_"):
            raise AttributeError(method)
        if method not in _PLAIN_LAWS:
            raise NotEnumerable(f"it calls rng.{method}, which cannot be enumerated")

        def draw(*arguments: float) -> float:
            self._counts.coarse.add(method)
            return coarse_values(method, *arguments)[self.branch([1.0 / _PIECES] * _PIECES)]

        return draw


def branches(
    call: Callable[[BranchingRandomness], Outcome], counts: BranchCounts
) -> Iterator[tuple[Outcome, BranchingRandomness]]:
    """Every outcome of a call, with the randomness that led to it."""
    script: list[int] | None = []
    while script is not None:
        counts.runs += 1
        if counts.runs > counts.most_runs:
            raise NotEnumerable("it has too many outcomes")
        rng = BranchingRandomness(script, counts)
        yield call(rng), rng
        script = rng.next_script()


@functools.lru_cache(maxsize=8192)
def require_terms(body: Callable[..., Any], terms: Terms) -> None:
    """Refuse terms that the mechanism cannot keep; checked once for each."""
    check_budget(terms.epsilon, terms.delta, terms.sensitivity)
    declared_mechanism(body).require(terms)


@functools.lru_cache(maxsize=8192)
def answer_cells(
    body: Callable[..., Any], terms: Terms, few: bool
) -> tuple[Sequence[Any], Sequence[float], bool]:
    """The answers of a mechanism, their probabilities, and whether they are rounded."""
    law_of = declared_mechanism(body).law
    assert law_of is not None  # the caller has checked
    law = law_of(terms)
    if hasattr(law, "pmf"):
        low, high = map(int, law.support())
        if not high - low <= _MOST_INTEGERS:
            raise NotEnumerable("a mechanism has too many answers")
        answers = [float(answer) for answer in range(low, high + 1)]
        return answers, [float(law.pmf(answer)) for answer in answers], False
    array = isinstance(terms.value, tuple)
    few = few or (array and len(terms.value) > _MOST_FINE_PARTS)
    cells = (_FEW_ENDS, _FEW_ANSWERS) if few else (_CELL_ENDS, _CELL_ANSWERS)
    scale = cell_scale(law_of, terms)
    ends, answers = scale * np.array(cells[0]), [scale * answer for answer in cells[1]]
    if not array:
        return answers, np.maximum(LawOnGrid.of(law, ends).masses, 0.0).tolist(), True
    if len(answers) ** len(terms.value) > _MOST_ANSWERS:
        raise NotEnumerable(f"it releases arrays of {len(terms.value)} numbers")
    parts = [np.maximum(LawOnGrid.of(law, ends - part).masses, 0.0) for part in terms.value]
    vectors = list(itertools.product(answers, repeat=len(parts)))
    return vectors, [math.prod(each) for each in itertools.product(*parts)], True


@functools.lru_cache(maxsize=8192)
def coarse_values(method: str, *arguments: float) -> list[float]:
    """A few equally likely values of a continuous draw: the medians of equal parts."""
    law = scipy_law(_PLAIN_LAWS[method], *arguments)
    return [float(law.ppf((piece + 0.5) / _PIECES)) for piece in range(_PIECES)]


def cell_scale(law_of: Callable[[Terms], Any], terms: Terms) -> float:
    """The least power of two from the sensitivity and half the distance of the quartiles on.

    It must not depend on the protected value, so that it is computed at 0.
    """
    value: Any = (0.0,) * len(terms.value) if isinstance(terms.value, tuple) else 0.0
    law = law_of(terms._replace(value=value))
    spread = 0.5 * float(law.isf(0.25) - law.ppf(0.25))
    return float(2.0 ** math.ceil(math.log2(max(terms.sensitivity, spread))))


class LazyUniform:
    """offset + factor U for a uniform U that is known up to an interval.

    A comparison splits the interval, with the exact probability of each part.
    """

    __array_ufunc__ = None  # numpy's scalars leave arithmetic to this class
    __slots__ = ("factor", "interval", "offset", "rng")

    def __init__(
        self,
        rng: BranchingRandomness,
        interval: list[float],
        offset: float = 0.0,
        factor: float = 1.0,
    ) -> None:
        self.rng, self.interval, self.offset, self.factor = rng, interval, offset, factor

    def ends(self) -> tuple[float, float]:
        low, high = sorted(self.offset + self.factor * end for end in self.interval)
        return low, high

    def piece(self, cuts: Sequence[float]) -> int:
        """The index of the piece between sorted cuts in which the number lies."""
        low, high = self.ends()
        if low == high:  # of factor 0: a constant
            return sum(cut <= low for cut in cuts)
        points = [low, *(min(max(cut, low), high) for cut in cuts), high]
        widths = np.diff(points) / (high - low)
        index = self.rng.branch(widths.tolist())
        ends = sorted((end - self.offset) / self.factor for end in points[index : index + 2])
        self.interval[:] = ends
        return index

    def __lt__(self, other: Any) -> bool:
        return self.piece([float(other)]) == 0

    def __gt__(self, other: Any) -> bool:
        return not self < other

    __le__, __ge__ = __lt__, __gt__  # equality has probability 0

    def __int__(self) -> int:
        low, high = self.ends()
        first, last = math.floor(low), math.ceil(high)
        if first < 0 or last - first > _MOST_INTEGERS:
            raise NotEnumerable("it draws an integer from a wide range")
        return first + self.piece(range(first + 1, last))

    __floor__ = __trunc__ = __index__ = __int__

    def __float__(self) -> float:
        """One of a few values: the middle of a part of the interval."""
        low, high = self.ends()
        self.rng._counts.coarse.add("random")
        cuts = np.linspace(low, high, _PIECES + 1)
        index = self.piece(cuts[1:-1].tolist())
        return float(0.5 * (cuts[index] + cuts[index + 1]))

    def __add__(self, other: Any) -> "LazyUniform":
        return LazyUniform(self.rng, self.interval, self.offset + float(other), self.factor)

    def __mul__(self, other: Any) -> "LazyUniform":
        number = float(other)
        return LazyUniform(self.rng, self.interval, self.offset * number, self.factor * number)

    def __neg__(self) -> "LazyUniform":
        return self * -1.0

    def __sub__(self, other: Any) -> "LazyUniform":
        return self + -float(other)

    def __rsub__(self, other: Any) -> "LazyUniform":
        return -self + other

    def __truediv__(self, other: Any) -> "LazyUniform":
        return self * (1.0 / float(other))

    __radd__, __rmul__ = __add__, __mul__
