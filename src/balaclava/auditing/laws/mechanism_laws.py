"""Tests of mechanisms: their draws must follow the laws that they declare.

Each mechanism that a policy used is drawn a million times at its terms, for two values that are its
sensitivity apart, and for one between them. The draws must follow the declared law, and that law
must keep the declared epsilon, delta and loss. If the body scales a single draw, its law is known
exactly. With neither, thresholds distinguish the draws of two values, and nothing is proved.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from balaclava._core.extras import require_extra
from balaclava._core.kernels import compiled
from balaclava._core.number_format import rounded_down, rounded_up
from balaclava.auditing.laws.array_norms import ShiftedLaw, norm_fault_delta
from balaclava.auditing.laws.draw_tests import (
    LAW_ERROR,
    follows_law,
    law_test_fault,
    repeats_fault,
)
from balaclava.auditing.laws.exact_audit import LARGEST_COMPUTED_EPSILON, hockey_stick
from balaclava.auditing.laws.probed_laws import bare_after_rare_draws, probed_law
from balaclava.auditing.laws.server_views import ViewFault, view_fault
from balaclava.auditing.tape import TapeEntry
from balaclava.auditing.two_sample_bounds import best_threshold
from balaclava.privacy.accounting import gaussian_delta
from balaclava.privacy.mechanisms.base import Mechanism, Terms, declared_mechanism
from balaclava.privacy.randomness import seeded

LAW_DRAWS = 1_000_000  # of each mechanism: a scale that is wrong by 2 % shows
_INTERPRETED_DRAWS = 20_000  # of a body that does not compile
_MOST_MECHANISMS = 6  # that are tested, counting different terms; a guess
_FURTHER_DRAWS = 4  # times fewer draws at further terms of the same mechanism
_FIT_ERROR = 1e-3  # probability that draws which follow a law fail the choice of a family
_THRESHOLDS = 1_024  # that distinguish draws without a law; a guess
_FEWER_IF_PROBED = 10  # times fewer draws if the law is known exactly
_EXACT_DRAWS = 300  # answers with exact noise, which are slow
_DIGIT_DRAWS = 64  # half of them are odd multiples of the step of the noise
_BETWEEN = 0.38196601125  # sensitivities: on no grid of the noise
_LOSS_SHARES = (0.1, 0.5, 1.0)  # sensitivities, for which a declared loss is compared with the law
_SAME_LAW = 1e-6  # largest difference of two laws that are the same
_SCALE_TOLERANCE = 0.004  # relative uncertainty of a scale after a million draws
UNKNOWN_LAW = "it declares no law, so its draws could not be compared with one"
_MOST_CORRELATED_PARTS = 32  # of an array, whose correlations are computed


@dataclass(frozen=True)
class LawAudit:
    """The result of the tests of mechanisms."""

    verdict: str  # "consistent" | "unproved" | "violated", by the view of one of two servers
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
        few = draws if number < len(by_name) else draws // _FURTHER_DRAWS
        size, fault = law_fault(entry, seed + number, few)
        total += size
        if fault:
            return LawAudit("unproved", number + 1, total, f"{entry.name}: {fault}")
    return audit_views(sample) or LawAudit("consistent", len(sample), total, "")


def audit_views(sample: list[TapeEntry]) -> LawAudit | None:
    """The fault of a mechanism of two servers that one server's view shows; None without one."""
    for number, entry in enumerate(sample):
        assert entry.terms is not None and entry.body is not None  # noqa: PT018
        views = declared_mechanism(entry.body).views
        fault = view_fault(views, entry.terms) if views else ViewFault()
        if fault.text:
            verdict = "violated" if fault.refuted else "unproved"
            return LawAudit(verdict, number + 1, 0, f"{entry.name}: {fault.text}")
    return None


def law_fault(entry: TapeEntry, seed: int, count: int) -> tuple[int, str]:
    """The number of draws, and the fault that they show, or ""."""
    assert entry.terms is not None and entry.body is not None  # noqa: PT018
    mechanism, terms = declared_mechanism(entry.body), entry.terms
    if isinstance(terms.value, tuple):
        return array_fault(mechanism, terms, seed, count)
    there = neighbouring_terms(mechanism, terms)
    between = terms.value + _BETWEEN * (there.value - terms.value)
    values = (terms._replace(value=between), terms, there)
    probed = [probed_law(mechanism, each) for each in values]
    laws = probed if mechanism.law is None else [mechanism.law(each) for each in values]
    count = count if probed[0] is None else count // _FEWER_IF_PROBED
    samples = [
        draw_mechanism(mechanism, each, seed, side, count // (side + 1))
        for side, each in enumerate(values)
    ]
    total = sum(sample.size for sample in samples)
    if laws[0] is None:
        equal = [sample[: samples[2].size] for sample in samples[1:]]
        return total, undeclared_law_fault(equal, terms) or UNKNOWN_LAW
    for sample, law, known in zip(samples, laws, probed, strict=True):
        if known is not None and not same_law(law, known):
            return total, "its draws do not follow the law that it declares"
        if fault := law_test_fault(sample, law):
            return total, fault
    if not hasattr(laws[0], "pmf"):
        if fault := repeats_fault(samples[0], samples[1], between):
            return total, fault
        if bare_after_rare_draws(mechanism, values[0]):
            return total, "it answers without noise after rare draws"
        if fault := exact_fault(mechanism, values[0], laws[0]) or digits_fault(mechanism, terms):
            return total, fault
    return total, declared_budget_fault(laws[1:], terms) or loss_fault(mechanism, terms, there)


def same_law(one: Any, other: Any) -> bool:
    points = one.ppf(np.linspace(0.001, 0.999, 101))
    return bool(np.abs(one.cdf(points) - other.cdf(points)).max() <= _SAME_LAW)


def exact_fault(mechanism: Mechanism, terms: Terms, law: Any) -> str:
    """Whether the answers that agents and the service release follow the law."""
    size = np.size(terms.value)
    try:
        answers = np.array([mechanism.exact(terms) for _ in range(-(-_EXACT_DRAWS // size))])
        noise = (answers - np.array(terms.value)).astype(float).ravel()
    except Exception:  # it refuses, and so releases nothing
        return ""
    centre = 0.0 if isinstance(terms.value, tuple) else terms.value
    if not follows_law(noise + centre, law) or int((noise == 0.0).sum()) > 1:
        return "its exact answers do not follow the law that it declares"
    return ""


def digits_fault(mechanism: Mechanism, terms: Terms) -> str:
    """Whether the last binary digit of exact answers depends on the value.

    Noise on a grid has the same one for every value. Noise in floating point has finer digits near
    0, and the sum with a value loses some of them: the value is known by what is left. An index is
    compared and discarded, so that floating point is enough (`perturbed_index.proof.md`).
    """
    if "index" in mechanism.name:
        return ""
    zeros = np.zeros_like(terms.value)
    values = (zeros.tolist(), np.full_like(zeros, terms.sensitivity).tolist())
    places = set[int]()
    for value in values:
        other = terms._replace(value=tuple(value) if isinstance(value, list) else value)
        try:
            drawn = [mechanism.exact(other) for _ in range(-(-_DIGIT_DRAWS // zeros.size))]
        except Exception:  # it refuses, and so releases nothing
            return ""
        places.add(min((last_place(x) for x in np.ravel(drawn).tolist() if x), default=0))
    if len(places) == 1:
        return ""
    return "its exact answers have more binary digits for one value than for another"


def last_place(number: float) -> int:
    """The power of 2 of the last binary digit of a number other than 0.

    >>> last_place(6.0), last_place(0.375)
    (1, -3)
    """
    over, under = number.as_integer_ratio()
    return (over & -over).bit_length() - under.bit_length()


def loss_fault(mechanism: Mechanism, one: Terms, there: Terms) -> str:
    """Whether the loss that a mechanism declares for a move is less than that of its law."""
    if mechanism.law is None:
        return ""
    start, way = np.array(one.value), np.array(there.value) - np.array(one.value)
    for share in _LOSS_SHARES:
        moved = start + share * way
        other = one._replace(value=tuple(moved.tolist()) if moved.ndim else float(moved))
        loss, law = mechanism.loss(one, other), mechanism.law(one)
        pair = [law, mechanism.law(other)]
        if moved.ndim:
            pair[1] = ShiftedLaw(law, float((moved - start)[0]))
        epsilons = [loss.epsilon]
        if loss.shift > 0.0:
            epsilons = [part * one.epsilon for part in (0.1, 0.5, 1.0)]
        for epsilon in epsilons:
            if not epsilon <= LARGEST_COMPUTED_EPSILON:
                continue
            allowed = gaussian_delta(loss.shift, epsilon) if loss.shift else loss.delta
            if fault := declared_budget_fault(pair, one._replace(epsilon=epsilon, delta=allowed)):
                return f"the loss that it declares for a move is false: {fault}"
    return ""


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
    event = best_threshold([each[::2] for each in samples], _THRESHOLDS, terms.delta, _FIT_ERROR)
    bound = event.bound([each[1::2] for each in samples], terms.delta, LAW_ERROR)
    if bound > terms.epsilon:
        low, declared = rounded_down(bound, ".3f"), rounded_up(terms.epsilon, ".4g")
        return f"its draws show that epsilon is at least {low}, not {declared}"
    return ""


def array_fault(mechanism: Mechanism, terms: Terms, seed: int, count: int) -> tuple[int, str]:
    """Test each part against its law, the independence of parts, and the declared budget."""
    value = np.array(terms.value)
    names = [name for name in mechanism.arguments if name not in ("value", "out")]
    arguments = tuple(float(getattr(terms, name)) for name in names)
    known = probed_law(mechanism, terms)
    rows = max((count if known is None else count // _FEWER_IF_PROBED) // value.size, 1_000)
    loop = compiled(make_array_draws, mechanism.kernel)
    answers = loop(value, arguments, rows, seeded(seed, 0)) - value
    parts = min(value.size, _MOST_CORRELATED_PARTS)
    if value.size > 1:
        correlations = np.abs(np.corrcoef(answers[:, :parts].T) - np.eye(parts)).max()
        if not correlations < 7 / math.sqrt(rows):
            return rows, "the noise in the parts of its answer is not independent"
    law = mechanism.law and mechanism.law(terms)
    if law is None and known is None:
        return rows, UNKNOWN_LAW
    law = law or known
    faults = (law_test_fault(answers[:, i], law) for i in range(value.size))
    fault = next((each for each in faults if each), "")
    if known is not None and not same_law(law, known):
        fault = "its draws do not follow the law that it declares"
    fault = fault or declared_budget_fault([law, ShiftedLaw(law, terms.sensitivity)], terms)
    first = (value[0] + terms.sensitivity, *terms.value[1:])
    fault = fault or loss_fault(mechanism, terms, terms._replace(value=first))
    fault = fault or exact_fault(mechanism, terms, law) or digits_fault(mechanism, terms)
    if not fault and (needed := norm_fault_delta(mechanism, terms, law)):
        fault = (
            f"a move of its sensitivity in the norm of order {mechanism.norm:g}, spread over its "
            f"parts, needs delta {rounded_up(needed, '.3g')} at epsilon "
            f"{rounded_up(terms.epsilon, '.4g')}"
        )
    return rows * value.size, fault
