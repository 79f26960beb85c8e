"""Laws are tested, not trusted: what a mechanism's body draws, against what it declares.

Each mechanism that a policy used is drawn a million times at its own terms, for a value and for one
that is its sensitivity away. The draws must follow the declared law, and the epsilon and delta of
that law must be the declared ones. Where no law was declared, the draws of the two values are told
apart by thresholds; and if they look Gaussian or Laplace, the curve of that law is computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from balaclava._core.extras import require_extra
from balaclava._core.kernels import compiled
from balaclava._core.number_format import rounded_down, rounded_up
from balaclava.auditing.laws.exact_audit import hockey_stick
from balaclava.auditing.tape import Entry
from balaclava.auditing.two_sample_bounds import epsilon_lower
from balaclava.privacy.accounting import gaussian_delta
from balaclava.privacy.mechanisms.base import Mechanism, Terms, mechanism_of
from balaclava.privacy.randomness import seeded

DRAWS = 1_000_000
_INTERPRETED = 20_000  # where a body cannot be compiled
_MOST = 6  # mechanisms with their terms that are tested
_ERROR = 1e-7  # with which a body that follows its law is said not to
_POINTS = 512
_LARGEST = 600.0  # an epsilon beyond which probabilities vanish in 64-bit floats
_FITTED = 0.004  # of a scale: what a million draws leave open


@dataclass(frozen=True)
class LawAudit:
    """What drawing the mechanisms showed."""

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
    """A loop that asks a mechanism the same again and again."""

    def draws(arguments: Any, count: int, rng: Any) -> np.ndarray:
        answers = np.empty(count)
        for i in range(count):
            answers[i] = release(rng, *arguments)
        return answers

    return draws


def make_array_draws(release: Callable[..., Any]) -> Callable[..., Any]:
    """The same for arrays."""

    def draws(value: np.ndarray, arguments: Any, count: int, rng: Any) -> np.ndarray:
        answers = np.empty((count, value.size))
        for i in range(count):
            release(rng, value, *arguments, answers[i])
        return answers

    return draws


def audit_laws(entries: Iterable[Entry], seed: int, draws: int = DRAWS) -> LawAudit:
    """Test the mechanisms of these entries of tapes; one entry for each name comes first."""
    by_name: dict[str, list[Entry]] = {}
    for entry in entries:
        by_name.setdefault(entry.name, []).append(entry)
    rows = [sorted(group, key=lambda entry: entry.terms or ()) for group in by_name.values()]
    first = [group[0] for group in rows] + [group[-1] for group in rows if len(group) > 1]
    sample = (first + [entry for group in rows for entry in group[1:-1]])[:_MOST]
    total = 0
    for number, entry in enumerate(sample):
        size, fault = fault_of_law(entry, seed + number, draws)
        total += size
        if fault:
            return LawAudit("unproved", number + 1, total, f"{entry.name}: {fault}")
    return LawAudit("consistent", len(sample), total, "")


def fault_of_law(entry: Entry, seed: int, count: int) -> tuple[int, str]:
    """How many draws were made, and what is wrong with them."""
    assert entry.terms is not None and entry.body is not None  # noqa: PT018
    mechanism, terms = mechanism_of(entry.body), entry.terms
    if isinstance(terms.value, tuple):
        return fault_of_array(mechanism, terms, seed, count)
    there = moved(mechanism, terms)
    samples = [
        drawn(mechanism, each, seed, side, count) for side, each in enumerate((terms, there))
    ]
    total = sum(sample.size for sample in samples)
    if mechanism.law is None:
        return total, fault_without_law(samples, terms)
    laws = [mechanism.law(terms), mechanism.law(there)]
    for sample, law in zip(samples, laws, strict=True):
        if not follows(sample, law):
            return total, "what its body draws does not follow the law that it declares"
    return total, fault_of_curve(laws, terms)


def moved(mechanism: Mechanism, terms: Terms) -> Terms:
    """The terms of a value one sensitivity away; within [0, 1] for reports of such rewards."""
    value = float(terms.value)
    if "sensitivity" not in mechanism.arguments:
        return terms._replace(value=1.0 if value < 0.5 else 0.0)
    up = value + terms.sensitivity
    fits = "index" not in mechanism.name or up <= 1.0 + 1e-9  # an index is of a mean in [0, 1]
    return terms._replace(value=up if fits else value - terms.sensitivity)


def drawn(mechanism: Mechanism, terms: Terms, seed: int, side: int, count: int) -> np.ndarray:
    """Draws of the body: compiled, or few of them where it cannot be."""
    arguments = tuple(float(getattr(terms, name)) for name in mechanism.arguments)
    rng = seeded(seed, side)
    try:
        loop = compiled(make_draws, mechanism.kernel)
        answers: np.ndarray = loop(arguments, count, rng)
    except Exception as error:
        if type(error).__module__.split(".")[0] != "numba":
            raise
        return np.array([mechanism.kernel(rng, *arguments) for _ in range(_INTERPRETED)], float)
    return answers


def follows(sample: np.ndarray, law: Any, error: float = _ERROR) -> bool:
    """Whether draws follow a law (Dvoretzky, Kiefer, Wolfowitz): true except with `error`."""
    allowed = math.sqrt(math.log(2 / error) / (2 * sample.size))
    ordered = np.sort(sample)
    points = ordered[np.linspace(0, ordered.size - 1, _POINTS).astype(int)]
    share = np.searchsorted(ordered, points, side="right") / ordered.size
    return bool(np.abs(share - law.cdf(points)).max() <= allowed)


def fault_of_curve(laws: list[Any], terms: Terms) -> str:
    """What is wrong with the delta that the law needs at the declared epsilon."""
    if terms.epsilon > _LARGEST:
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


def fault_without_law(samples: list[np.ndarray], terms: Terms) -> str:
    """What draws at two values show that come with no law."""
    require_extra("scipy", "an audit")
    from scipy import stats

    one, other = samples
    scale = 0.5 * float(one.std() + other.std())
    apart = abs(float(other.mean() - one.mean())) or terms.sensitivity
    if scale > 0.0 and follows(one, stats.norm(one.mean(), one.std()), 1e-3):
        needed = gaussian_delta(apart / (scale * (1 + _FITTED)), terms.epsilon)
        if needed > 1.2 * terms.delta + 1e-12:
            return (
                f"it draws Gaussian noise of scale {scale:.4g}, which needs delta {needed:.3g} at "
                f"epsilon {rounded_up(terms.epsilon, '.4g')}; declared is "
                f"{rounded_up(terms.delta, '.3g')}"
            )
    spread = scale / math.sqrt(2)
    if scale > 0.0 and follows(one, stats.laplace(float(np.median(one)), spread), 1e-3):
        cost = terms.sensitivity / (spread * (1 + _FITTED))
        needed = 1 - math.exp(min((terms.epsilon - cost) / 2, 0.0))
        if needed > 1.05 * terms.delta + 1e-12:
            return f"it draws Laplace noise of scale {spread:.4g}, which costs epsilon {cost:.4g}"
    bound = told_apart(samples, terms.delta)
    if bound > terms.epsilon:
        low, declared = rounded_down(bound, ".3f"), rounded_up(terms.epsilon, ".4g")
        return f"its draws show that epsilon is at least {low}, not {declared}"
    return ""


def told_apart(samples: list[np.ndarray], delta: float) -> float:
    """A lower bound on epsilon: a threshold chosen on one half of the draws, tried on the other."""
    halves = [(sample[::2], sample[1::2]) for sample in samples]
    train = [np.sort(half[0]) for half in halves]
    pooled = np.concatenate(train)
    thresholds = np.unique(np.quantile(pooled, np.linspace(0, 1, 2 * _POINTS)))
    n, best = train[0].size, (-1.0, 0, 0.0, True)
    for above in (True, False):
        counts = [_beyond(sample, thresholds, above) for sample in train]
        for side in (0, 1):
            bounds = epsilon_lower(counts[side], counts[1 - side], n, delta, 1e-3)
            i = int(bounds.argmax())
            best = max(best, (float(bounds[i]), side, float(thresholds[i]), above))
    _, side, threshold, above = best
    test = [np.sort(halves[each][1]) for each in (side, 1 - side)]
    counts = [_beyond(sample, np.array([threshold]), above) for sample in test]
    return float(epsilon_lower(counts[0], counts[1], test[0].size, delta, _ERROR)[0])


def _beyond(ordered: np.ndarray, thresholds: np.ndarray, above: bool) -> np.ndarray:
    if above:
        return ordered.size - np.searchsorted(ordered, thresholds, side="left")
    return np.searchsorted(ordered, thresholds, side="right")


def fault_of_array(mechanism: Mechanism, terms: Terms, seed: int, count: int) -> tuple[int, str]:
    """Each part by its law, no two parts alike, and the curve of the law."""
    value = np.array(terms.value)
    names = [name for name in mechanism.arguments if name not in ("value", "out")]
    arguments = tuple(float(getattr(terms, name)) for name in names)
    rows = max(count // value.size, 1_000)
    loop = compiled(make_array_draws, mechanism.kernel)
    answers = loop(value, arguments, rows, seeded(seed, 0)) - value
    if value.size > 1:
        correlations = np.abs(np.corrcoef(answers[:, :32].T) - np.eye(min(value.size, 32))).max()
        if not correlations < 7 / math.sqrt(rows):
            return rows, "the noise in the parts of its answer is not independent"
    if mechanism.law is None:
        return rows, ""
    law = mechanism.law(terms)
    if not all(follows(answers[:, i], law) for i in range(value.size)):
        return rows, "what its body draws does not follow the law that it declares"
    moved_law = _Shifted(law, terms.sensitivity)
    return rows * value.size, fault_of_curve([law, moved_law], terms)


@dataclass(frozen=True)
class _Shifted:
    """A law, moved."""

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
