"""Tests of mechanisms: their draws must follow the laws that they declare.

Each mechanism that a policy used is drawn a million times at its terms, for two values that are its
sensitivity apart. The draws must follow the declared law, and that law must keep the declared
epsilon and delta. Without a declared law, thresholds distinguish the draws of the two values. If
the draws look Gaussian or Laplace, the delta of that law is computed.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from balaclava._core.extras import require_extra
from balaclava._core.kernels import compiled
from balaclava._core.number_format import rounded_down, rounded_up
from balaclava.auditing.laws.exact_audit import LARGEST_COMPUTED_EPSILON, hockey_stick
from balaclava.auditing.tape import TapeEntry
from balaclava.auditing.two_sample_bounds import best_threshold
from balaclava.privacy.accounting import gaussian_delta
from balaclava.privacy.mechanisms.base import Mechanism, Terms, declared_mechanism
from balaclava.privacy.randomness import seeded

LAW_DRAWS = 1_000_000  # of each mechanism: a scale that is wrong by 2 % shows
_INTERPRETED_DRAWS = 20_000  # of a body that does not compile
_MOST_MECHANISMS = 6  # that are tested, counting different terms; a guess
_LAW_ERROR = 1e-7  # the probability that draws which follow a law fail its test
_FIT_ERROR = 1e-3  # the same for the choice of a family
_LAW_QUANTILES = 512  # points at which a law is compared with its draws; a guess
_SCALE_TOLERANCE = 0.004  # relative uncertainty of a scale after a million draws
_MOST_CORRELATED_PARTS = 32  # of an array, whose correlations are computed


@dataclass(frozen=True)
class LawAudit:
    """The result of the tests of mechanisms."""

    verdict: str  # "consistent" | "unproved"
    mechanisms: int  # with their terms
    draws: int
    fault: str

    def __str__(self) -> str:
        if self.fault:
            return f"{self.verdict}: {self.fault}"
        several = "s with their terms" if self.mechanisms > 1 else " with its terms"
        return f"{self.verdict}: {self.mechanisms} mechanism{several}, {self.draws:,} draws"


def make_draws(release: Callable[..., Any]) -> Callable[..., Any]:
    def draws(arguments: Any, count: int, rng: Any) -> np.ndarray:
        answers = np.empty(count)
        for i in range(count):
            answers[i] = release(rng, *arguments)
        return answers

    return draws


def make_array_draws(release: Callable[..., Any]) -> Callable[..., Any]:
    def draws(value: np.ndarray, arguments: Any, count: int, rng: Any) -> np.ndarray:
        answers = np.empty((count, value.size))
        for i in range(count):
            release(rng, value, *arguments, answers[i])
        return answers

    return draws


def audit_laws(entries: Iterable[TapeEntry], seed: int, draws: int = LAW_DRAWS) -> LawAudit:
    """Test the mechanisms on a tape: each name once, then further terms of the same names."""
    by_name: dict[str, list[TapeEntry]] = {}
    for entry in entries:
        by_name.setdefault(entry.name, []).append(entry)
    rows = [sorted(group, key=lambda entry: entry.terms or ()) for group in by_name.values()]
    first = [group[0] for group in rows] + [group[-1] for group in rows if len(group) > 1]
    sample = (first + [entry for group in rows for entry in group[1:-1]])[:_MOST_MECHANISMS]
    total = 0
    for number, entry in enumerate(sample):
        size, fault = law_fault(entry, seed + number, draws)
        total += size
        if fault:
            return LawAudit("unproved", number + 1, total, f"{entry.name}: {fault}")
    return LawAudit("consistent", len(sample), total, "")


def law_fault(entry: TapeEntry, seed: int, count: int) -> tuple[int, str]:
    """The number of draws, and the fault that they show, or ""."""
    assert entry.terms is not None and entry.body is not None  # noqa: PT018
    mechanism, terms = declared_mechanism(entry.body), entry.terms
    if isinstance(terms.value, tuple):
        return array_fault(mechanism, terms, seed, count)
    there = neighbouring_terms(mechanism, terms)
    samples = [
        draw_mechanism(mechanism, each, seed, side, count)
        for side, each in enumerate((terms, there))
    ]
    total = sum(sample.size for sample in samples)
    if mechanism.law is None:
        return total, undeclared_law_fault(samples, terms)
    laws = [mechanism.law(terms), mechanism.law(there)]
    for sample, law in zip(samples, laws, strict=True):
        if not follows_law(sample, law):
            return total, "its draws do not follow the law that it declares"
    return total, declared_budget_fault(laws, terms)


def neighbouring_terms(mechanism: Mechanism, terms: Terms) -> Terms:
    """The terms of a value one sensitivity away; within [0, 1] for reports and indices."""
    value = float(terms.value)
    if "sensitivity" not in mechanism.arguments:
        return terms._replace(value=1.0 if value < 0.5 else 0.0)
    up = value + terms.sensitivity
    fits = "index" not in mechanism.name or up <= 1.0 + 1e-9  # an index is of a mean in [0, 1]
    return terms._replace(value=up if fits else value - terms.sensitivity)


def draw_mechanism(
    mechanism: Mechanism, terms: Terms, seed: int, side: int, count: int
) -> np.ndarray:
    """Draws of the body: compiled, or fewer if it does not compile."""
    arguments = tuple(float(getattr(terms, name)) for name in mechanism.arguments)
    rng = seeded(seed, side)
    try:
        loop = compiled(make_draws, mechanism.kernel)
        answers: np.ndarray = loop(arguments, count, rng)
    except Exception as error:
        if type(error).__module__.split(".")[0] != "numba":
            raise
        return np.array(
            [mechanism.kernel(rng, *arguments) for _ in range(_INTERPRETED_DRAWS)], float
        )
    return answers


def follows_law(sample: np.ndarray, law: Any, error: float = _LAW_ERROR) -> bool:
    """Whether draws pass the test of Dvoretzky, Kiefer and Wolfowitz at this error probability."""
    allowed = math.sqrt(math.log(2 / error) / (2 * sample.size))
    ordered = np.sort(sample)
    points = ordered[np.linspace(0, ordered.size - 1, _LAW_QUANTILES).astype(int)]
    share = np.searchsorted(ordered, points, side="right") / ordered.size
    return bool(np.abs(share - law.cdf(points)).max() <= allowed)


def declared_budget_fault(laws: list[Any], terms: Terms) -> str:
    """The fault of the declared epsilon and delta, given the laws of two values, or ""."""
    if terms.epsilon > LARGEST_COMPUTED_EPSILON:
        return ""
    if all(hasattr(law, "pmf") for law in laws):  # a coin
        p, q = (float(law.pmf(1)) for law in laws)
        grown = math.exp(terms.epsilon)
        sides = ((p, q), (q, p), (1 - p, 1 - q), (1 - q, 1 - p))
        needed = max(0.0, *(one - grown * other for one, other in sides))
    else:
        needed = hockey_stick(laws[0], laws[1], terms.epsilon * (1 + 1e-9)).half_lines
    if needed > terms.delta * (1 + 1e-6) + 1e-12:
        return (
            f"its law needs delta {rounded_up(needed, '.3g')} at epsilon "
            f"{rounded_up(terms.epsilon, '.4g')}; declared is {rounded_up(terms.delta, '.3g')}"
        )
    return ""


def undeclared_law_fault(samples: list[np.ndarray], terms: Terms) -> str:
    """The fault that draws at two values show of a mechanism without a declared law, or ""."""
    require_extra("scipy", "an audit")
    from scipy import stats

    one, other = samples
    scale = 0.5 * float(one.std() + other.std())
    apart = abs(float(other.mean() - one.mean())) or terms.sensitivity
    if scale > 0.0 and follows_law(one, stats.norm(one.mean(), one.std()), _FIT_ERROR):
        needed = gaussian_delta(apart / (scale * (1 + _SCALE_TOLERANCE)), terms.epsilon)
        if needed > 1.2 * terms.delta + 1e-12:
            return (
                f"it draws Gaussian noise of scale {scale:.4g}, which needs delta {needed:.3g} at "
                f"epsilon {rounded_up(terms.epsilon, '.4g')}; declared is "
                f"{rounded_up(terms.delta, '.3g')}"
            )
    spread = scale / math.sqrt(2)
    if scale > 0.0 and follows_law(one, stats.laplace(float(np.median(one)), spread), _FIT_ERROR):
        cost = terms.sensitivity / (spread * (1 + _SCALE_TOLERANCE))
        needed = 1 - math.exp(min((terms.epsilon - cost) / 2, 0.0))
        if needed > 1.05 * terms.delta + 1e-12:
            return f"it draws Laplace noise of scale {spread:.4g}, which costs epsilon {cost:.4g}"
    event = best_threshold(
        [each[::2] for each in samples], 2 * _LAW_QUANTILES, terms.delta, _FIT_ERROR
    )
    bound = event.bound([each[1::2] for each in samples], terms.delta, _LAW_ERROR)
    if bound > terms.epsilon:
        low, declared = rounded_down(bound, ".3f"), rounded_up(terms.epsilon, ".4g")
        return f"its draws show that epsilon is at least {low}, not {declared}"
    return ""


def array_fault(mechanism: Mechanism, terms: Terms, seed: int, count: int) -> tuple[int, str]:
    """Test each part against its law, the independence of parts, and the declared budget."""
    value = np.array(terms.value)
    names = [name for name in mechanism.arguments if name not in ("value", "out")]
    arguments = tuple(float(getattr(terms, name)) for name in names)
    rows = max(count // value.size, 1_000)
    loop = compiled(make_array_draws, mechanism.kernel)
    answers = loop(value, arguments, rows, seeded(seed, 0)) - value
    parts = min(value.size, _MOST_CORRELATED_PARTS)
    if value.size > 1:
        correlations = np.abs(np.corrcoef(answers[:, :parts].T) - np.eye(parts)).max()
        if not correlations < 7 / math.sqrt(rows):
            return rows, "the noise in the parts of its answer is not independent"
    if mechanism.law is None:
        return rows, ""
    law = mechanism.law(terms)
    if not all(follows_law(answers[:, i], law) for i in range(value.size)):
        return rows, "its draws do not follow the law that it declares"
    laws = [law, ShiftedLaw(law, terms.sensitivity)]
    return rows * value.size, declared_budget_fault(laws, terms)


@dataclass(frozen=True)
class ShiftedLaw:
    law: Any
    by: float

    def cdf(self, x: Any) -> Any:
        return self.law.cdf(np.asarray(x) - self.by)

    def sf(self, x: Any) -> Any:
        return self.law.sf(np.asarray(x) - self.by)

    def ppf(self, p: Any) -> Any:
        return self.law.ppf(p) + self.by

    def isf(self, p: Any) -> Any:
        return self.law.isf(p) + self.by

    def support(self) -> tuple[float, float]:
        low, high = self.law.support()
        return low + self.by, high + self.by
