"""Mechanisms as kernels: their laws, their limits, and what a recorder learns of them.

Statistical tests have fixed seeds, so they cannot flicker; the significance is 1e-6.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from balaclava._core.kernels import compiled, kernel
from balaclava.auditing.laws.exact_audit import hockey_stick
from balaclava.auditing.laws.probed_laws import ChosenDraws, answer_to
from balaclava.errors import PrivacyError
from balaclava.privacy.accounting import gaussian_delta
from balaclava.privacy.mechanisms import counters
from balaclava.privacy.mechanisms.analytic_gaussian import gaussian_release, gaussian_vector_release
from balaclava.privacy.mechanisms.base import (
    ROUNDING,
    Loss,
    Terms,
    check_budget,
    declared_loss,
    declared_mechanism,
    distance,
    mechanism,
)
from balaclava.privacy.mechanisms.counters import tree_levels
from balaclava.privacy.mechanisms.laplace import (
    laplace_release,
    laplace_report,
    laplace_vector_release,
    private_argmax_histogram,
)
from balaclava.privacy.mechanisms.perturbed_index import gaussian_index
from balaclava.privacy.mechanisms.randomized_response import bernoulli_report, report_probability
from balaclava.privacy.mechanisms.truncated_laplace import (
    TruncatedLaplaceLaw,
    reach_in_steps,
    truncated_laplace_magnitude,
    truncated_laplace_release,
)
from balaclava.privacy.randomness import seeded
from tests.privacy.mechanisms.test_counters import Recorder

SIGNIFICANCE = 1e-6
DRAWS = 1_000_000
EPSILON, DELTA, SENSITIVITY = 0.7, 0.01, 0.25
BIT_EPSILON = 2.0  # where a bit shows an error of the scale best
KINDS = ("laplace", "laplace report", "truncated", "truncated, epsilon 0", "bernoulli")


@kernel
def draw(kind: int, rng: Any, scale: float) -> float:
    """One draw of the noise of a kind, with its scale wrong by a factor."""
    if kind == 0:
        return laplace_release(rng, 0.0, scale * SENSITIVITY, EPSILON)
    if kind == 1:
        return laplace_report(rng, 0.0, scale * SENSITIVITY, EPSILON)
    if kind == 2:
        return truncated_laplace_release(rng, 0.0, scale * SENSITIVITY, EPSILON, DELTA)
    if kind == 3:
        return truncated_laplace_release(rng, 0.0, scale * SENSITIVITY, 0.0, DELTA)
    return bernoulli_report(rng, 0.9, BIT_EPSILON / scale)


def make_sampler(draw: Any) -> Any:
    def sample(kind: int, rng: Any, scale: float, out: np.ndarray) -> None:
        for i in range(out.size):
            out[i] = draw(kind, rng, scale)

    return sample


def sample(kind: str, scale: float, draws: int = DRAWS) -> np.ndarray:
    out = np.empty(draws)
    compiled(make_sampler, draw)(KINDS.index(kind), seeded(20), scale, out)
    return out


def agreement(kind: str, draws: np.ndarray) -> float:
    """The p-value of the draws under the exact law of scale 1."""
    if kind == "bernoulli":
        expected = (0.9 * math.exp(BIT_EPSILON) + 0.1) / (1 + math.exp(BIT_EPSILON))
        return float(stats.binomtest(int(draws.sum()), draws.size, expected).pvalue)
    laws = {
        "truncated": lambda w: truncated_law(w, EPSILON),
        "truncated, epsilon 0": stats.uniform(-SENSITIVITY / 0.02, SENSITIVITY / 0.01).cdf,
    }
    law = laws.get(kind, stats.laplace(0, SENSITIVITY / EPSILON).cdf)
    return float(stats.kstest(draws, law, method="asymp").pvalue)


def truncated_law(w: np.ndarray, epsilon: float) -> np.ndarray:
    """The distribution function as Wang and Zhu state it (Lemma 15)."""
    excess, rate = math.expm1(epsilon), epsilon / SENSITIVITY
    reach = math.log1p(excess / (2 * DELTA)) / rate
    low = -np.minimum(np.abs(w), reach)
    below = DELTA * ((1 + excess / (2 * DELTA)) * np.exp(rate * low) - 1) / excess
    return np.where(w <= 0, below, 1 - below)


@pytest.mark.statistical
@pytest.mark.parametrize("kind", KINDS)
def test_a_million_draws_follow_the_law(kind: str) -> None:
    assert agreement(kind, sample(kind, 1.0)) > SIGNIFICANCE


@pytest.mark.statistical
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [0.98, 1.02])
def test_a_scale_wrong_by_two_percent_is_noticed(kind: str, scale: float) -> None:
    assert agreement(kind, sample(kind, scale)) < SIGNIFICANCE


@pytest.mark.parametrize("kind", KINDS)
def test_interpreted_and_compiled_draws_are_the_same(kind: str) -> None:
    rng = seeded(20)
    interpreted = [draw(KINDS.index(kind), rng, 1.0) for _ in range(500)]
    assert interpreted == sample(kind, 1.0, 500).tolist()


def test_truncated_laplace_golden_values() -> None:
    # Ten rewards in [0, 1]: their mean has sensitivity 1/10.
    def magnitude(v: float) -> float:
        return truncated_laplace_magnitude(v, 0.1, 1.0, 0.01)

    assert magnitude(1.0) == pytest.approx(0.44649201758912077, rel=1e-14)
    assert magnitude(0.5) == pytest.approx(0.0681707252629635, rel=1e-14)
    assert magnitude(0.9) == pytest.approx(0.22040523590733807, rel=1e-14)


@pytest.mark.parametrize("epsilon", [0.0, 1e-12, 1e-6, 0.1, 1.0, 20.0, 800.0])
@pytest.mark.parametrize("delta", [1e-9, 0.01, 0.9])
def test_quantile_and_distribution_function_are_inverse(epsilon: float, delta: float) -> None:
    p = np.linspace(0.001, 0.999, 31)
    law = TruncatedLaplaceLaw(0.0, 0.5, epsilon, delta)
    pure = TruncatedLaplaceLaw(0.0, 0.5, 1.0, 0.0)
    w = law.ppf(p)
    assert law.cdf(w) == pytest.approx(p, rel=1e-9)
    assert pure.cdf(w) == pytest.approx(stats.laplace(0, 0.5).cdf(w))


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.01), (0.1, 0.01), (1.0, 1e-6), (5.0, 0.2)])
def test_truncated_laplace_spends_exactly_its_delta(epsilon: float, delta: float) -> None:
    """P(S) - e^epsilon P'(S) is largest beyond the other law's end, and there it is delta."""
    end = truncated_laplace_magnitude(1.0, 1.0, epsilon, delta)
    law = TruncatedLaplaceLaw(0.0, 1.0, epsilon, delta)
    assert 1 - law.cdf(end - 1.0) == pytest.approx(delta, rel=1e-9)
    # Nowhere else is there any excess: the distribution functions' increments keep the ratio.
    edges = np.linspace(1.0 - end, end, 400)
    ours, shifted = np.diff(law.cdf(edges)), np.diff(law.cdf(edges - 1.0))
    assert (shifted <= math.exp(epsilon) * ours * (1 + 1e-9) + 1e-15).all()


def test_truncated_laplace_limits() -> None:
    for v in (0.1, 0.5, 0.99):
        uniform = truncated_laplace_magnitude(v, 1.0, 0.0, 0.01)
        assert uniform == pytest.approx(v * 50)
        for epsilon in (1e-9, 1e-12, 1e-150, 1e-250):
            near = truncated_laplace_magnitude(v, 1.0, epsilon, 0.01)
            assert near == pytest.approx(uniform, rel=1e-6)
        assert truncated_laplace_magnitude(v, 1.0, 2.0, 0.0) == -math.log1p(-v) / 2
        assert truncated_laplace_magnitude(v, 1.0, 1e4, 0.5) == -math.log1p(-v) / 1e4


def test_randomized_response_keeps_its_ratio() -> None:
    for epsilon in (1e-9, 0.1, 1.0, 10.0):
        low, high = report_probability(0.0, epsilon), report_probability(1.0, epsilon)
        assert low + high == pytest.approx(1)
        assert math.log(high / low) == pytest.approx(epsilon, rel=1e-6)
        assert report_probability(0.5, epsilon) == pytest.approx(0.5)
    assert report_probability(0.3, 1e4) == 0.3


@pytest.mark.statistical
def test_histogram() -> None:
    counts = np.array([3, 40, 41, 5])
    assert private_argmax_histogram(seeded(1), counts, 1e9) == 2
    recorder = Recorder()
    private_argmax_histogram(recorder, counts, 0.8)
    assert [terms.value for terms in recorder.seen] == counts.tolist()
    assert all(terms.sensitivity == 1 and terms.epsilon == 0.4 for terms in recorder.seen)
    rng = seeded(2)
    chosen = [private_argmax_histogram(rng, np.array([7, 7]), 1.0) for _ in range(4000)]
    assert stats.binomtest(sum(chosen), 4000, 0.5).pvalue > SIGNIFICANCE


def make_walk(insert: Any) -> Any:
    def walk(rng: Any, items: np.ndarray, counts: np.ndarray, sums: np.ndarray) -> int:
        trees = counters.begin_trees(1, 10)
        hybrid = counters.begin_hybrid(1)
        for i in range(items.size):
            counters.tree_insert(rng, trees, 0, items[i], 1.0, 1.0)
            counters.hybrid_insert(rng, hybrid, 0, items[i], 1.0, 1.0)
            sums[i] = counters.tree_sum(trees, 0) + counters.hybrid_sum(hybrid, 0)
        return private_argmax_histogram(rng, counts, 1.0)

    return walk


def test_counters_and_histogram_compile_to_what_they_are() -> None:
    items, counts = seeded(8).random(300), np.array([5, 4, 6])
    ours, theirs = np.empty(300), np.empty(300)
    chosen = make_walk(None)(seeded(9), items, counts, ours)
    assert compiled(make_walk, counters.tree_insert)(seeded(9), items, counts, theirs) == chosen
    assert ours.tolist() == theirs.tolist()


# What is known of a mechanism


def test_terms() -> None:
    terms = declared_mechanism(truncated_laplace_release).terms(3.0, 0.5, 1.0, 0.01)
    assert terms == (3.0, 0.5, 1.0, 0.01)
    assert declared_mechanism(laplace_release).terms(3.0, 0.5, 1.0) == (3.0, 0.5, 1.0, 0.0)
    assert declared_mechanism(bernoulli_report).terms(0.3, 1.0) == (0.3, 1.0, 1.0, 0.0)
    local = {
        f: declared_mechanism(f).local for f in (laplace_release, laplace_report, bernoulli_report)
    }
    assert list(local.values()) == [False, True, True]


def test_a_mechanism_must_say_what_it_protects() -> None:
    with pytest.raises(PrivacyError, match="a mechanism has rng, value"):

        @mechanism("odd", lambda terms: 0.0)
        def odd(rng: Any, value: float, noise: float) -> float:
            return value

    with pytest.raises(PrivacyError, match="not a declared mechanism"):
        declared_mechanism(tree_levels)


@pytest.mark.parametrize(
    ("epsilon", "delta", "sensitivity", "named"),
    [
        (-0.1, 0.0, 1.0, "epsilon"),
        (math.nan, 0.0, 1.0, "epsilon"),
        (math.inf, 0.0, 1.0, "epsilon"),
        (1.0, -1e-9, 1.0, "delta"),
        (1.0, 1.0, 1.0, "delta"),
        (1.0, math.nan, 1.0, "delta"),
        (0.0, 0.0, 1.0, "epsilon = 0 with delta = 0"),
        (1.0, 0.0, 0.0, "sensitivity"),
        (1.0, 0.0, -1.0, "sensitivity"),
        (1.0, 0.0, math.inf, "sensitivity"),
        (1.0, 0.0, math.nan, "sensitivity"),
    ],
)
def test_bad_budgets(epsilon: float, delta: float, sensitivity: float, named: str) -> None:
    with pytest.raises(PrivacyError, match=named):
        check_budget(epsilon, delta, sensitivity)


# The loss of a move


@pytest.mark.parametrize(
    ("release", "terms"),
    [
        (laplace_release, Terms(0.3, 0.5, 0.7, 0.0)),
        (laplace_report, Terms(0.3, 0.5, 2.0, 0.0)),
        (truncated_laplace_release, Terms(3.0, 0.5, 0.7, 0.01)),
        (truncated_laplace_release, Terms(-3.0, 4.0, 0.0, 0.01)),
        (truncated_laplace_release, Terms(0.3, 0.5, 0.7, 0.0)),
        (gaussian_release, Terms(0.3, 0.5, 0.7, 0.01)),
        (gaussian_index, Terms(0.3, 0.01, 0.7, 0.01)),
    ],
)
@pytest.mark.parametrize("share", [0.25, 1.0])
def test_the_loss_of_a_move_is_exactly_that_of_the_law(
    release: Any, terms: Terms, share: float
) -> None:
    declared = declared_mechanism(release)
    assert declared.law is not None
    other = terms._replace(value=terms.value + share * terms.sensitivity)
    loss, laws = declared.loss(terms, other), (declared.law(terms), declared.law(other))
    epsilon = terms.epsilon if loss.shift else loss.epsilon
    delta = gaussian_delta(loss.shift, epsilon) if loss.shift else loss.delta
    found = hockey_stick(*laws, epsilon).delta
    assert found == pytest.approx(delta, rel=2e-3, abs=1e-12)
    if epsilon > 0 and not loss.shift:
        assert hockey_stick(*laws, 0.99 * epsilon).delta > delta * 1.0005 + 1e-6
    far = terms._replace(value=math.inf)
    assert declared.loss(terms, far)[0 if not loss.shift else 2] == math.inf
    assert declared.loss(terms, terms)[::2] == (0.0, 0.0)


@pytest.mark.parametrize("epsilon", [0.3, 2.0])
def test_the_loss_of_randomized_response_is_its_largest_log_ratio(epsilon: float) -> None:
    def loss(one: float, other: float) -> float:
        here, there = Terms(one, 1.0, epsilon, 0.0), Terms(other, 1.0, epsilon, 0.0)
        return declared_mechanism(bernoulli_report).loss(here, there).epsilon

    odds = math.exp(epsilon)
    assert [loss(0.0, 1.0), loss(1.0, 0.0)] == pytest.approx([epsilon] * 2)
    assert loss(0.0, 0.5) == pytest.approx(math.log((1 + odds) / 2))
    assert loss(1.0, 0.5) == pytest.approx(math.log((1 + odds) / 2))
    assert loss(0.25, 0.25) == 0.0
    assert loss(0.5, 40.0) == math.inf
    assert loss(0.5, -40.0) == math.inf


def test_the_declared_loss_covers_moves_within_the_sensitivity() -> None:
    terms = Terms(0.0, 0.5, 0.7, 0.01)
    assert declared_loss(0.5, terms) == declared_loss(0.5 * (1 + ROUNDING), terms)
    assert declared_loss(0.5, terms) == Loss(0.7, 0.01)
    assert declared_loss(0.5 * (1 + 1.01 * ROUNDING), terms) == Loss(math.inf)
    assert distance((3.0, 4.0), (0.0, 0.0), 2.0) == 5.0
    assert distance((3.0, -4.0), (0.0, 0.0)) == 7.0
    assert distance(2.0, 3.5) == distance(3.5, 2.0) == 1.5
    for other in ((1.0,), (1.0, 2.0, 3.0), 1.0, (1.0, math.nan)):
        assert distance((1.0, 2.0), other) == math.inf
    assert distance(math.nan, 1.0) == math.inf


@pytest.mark.parametrize("epsilon", [0.0, 1e-6, 0.7, 5.0])
@pytest.mark.parametrize("delta", [0.0, 1e-6, 0.02])
def test_the_truncated_law_is_symmetric_around_its_centre(epsilon: float, delta: float) -> None:
    if epsilon == delta == 0.0:
        return
    law = TruncatedLaplaceLaw(3.0, 0.5, epsilon, delta)
    p = np.array([1e-6, 0.01, 0.3, 0.5, 0.8, 0.999])
    x = law.ppf(p)
    assert law.isf(p) == pytest.approx(6.0 - x)
    assert law.sf(x) == pytest.approx(1.0 - p)
    assert law.cdf(6.0 - x) == pytest.approx(1.0 - p)
    low, high = law.support()
    assert (law.cdf(low), law.cdf(high)) == (pytest.approx(0.0, abs=1e-12), 1.0)
    assert 3.0 - low == pytest.approx(high - 3.0)
    if delta == 0.0:
        assert (low, high) == (-math.inf, math.inf)
        assert x == pytest.approx(stats.laplace(3.0, 0.5 / epsilon).ppf(p))
    else:
        reach = math.log1p(math.expm1(epsilon) / (2 * delta)) / epsilon if epsilon else 0.5 / delta
        assert high == pytest.approx(3.0 + 0.5 * reach)
        assert law.cdf(low + 1e-6 * reach) > 0.0
    assert TruncatedLaplaceLaw(3.0, 0.5, 800.0, 0.1).support() == (-math.inf, math.inf)


@pytest.mark.parametrize(
    ("steps", "epsilon", "delta"),
    [
        (5, 0.7, 0.01),
        (40, 0.1, 1e-4),
        (3, 3.0, 0.2),
        (7, 0.0, 0.01),
        (2, 1e-250, 0.3),
        (9, 1.0, 0.9),
    ],
)
def test_the_reach_in_steps_is_the_smallest_that_keeps_delta(
    steps: int, epsilon: float, delta: float
) -> None:
    """The mass of the outermost points, from the probabilities a^|k| themselves."""

    def outermost(reach: int) -> float:
        masses = np.exp(-epsilon / steps * np.abs(np.arange(-reach, reach + 1)))
        return float(masses[:steps].sum() / masses.sum())

    reach = reach_in_steps(steps, epsilon, delta)
    assert outermost(reach) <= delta * (1 + 1e-12)
    assert reach == steps or outermost(reach - 1) > delta


@pytest.mark.parametrize(
    "release", [laplace_release, laplace_report, gaussian_release, gaussian_index]
)
def test_a_body_scales_one_draw_to_its_law(release: Any) -> None:
    """Compiled code runs it; the draws are chosen, so that nothing is left to chance."""
    terms, declared = Terms(0.3, 0.01, 0.7, 0.01), declared_mechanism(release)
    assert declared.law is not None
    centre, scale = declared.law(terms).args
    for point in (-1.0, 0.0, 2.5):
        found = answer_to(declared, terms, ChosenDraws(point))
        assert found == pytest.approx(centre + scale * point)
    vector = {laplace_release: laplace_vector_release, gaussian_release: gaussian_vector_release}
    if release in vector:
        array, terms = declared_mechanism(vector[release]), terms._replace(value=(0.3, -4.0))
        found = answer_to(array, terms, ChosenDraws(2.5))
        assert found == pytest.approx(np.array(terms.value) + scale * 2.5)


def test_a_body_inverts_its_law() -> None:
    declared, terms = declared_mechanism(truncated_laplace_release), Terms(3.0, 0.5, 0.7, 0.01)
    assert declared.law is not None
    for u in (0.001, 0.3, 0.5, 0.7, 0.999):
        found = float(answer_to(declared, terms, Uniform(u))[0])
        mirrored = 0.5 - u if u < 0.5 else u  # on both sides the size grows with u
        assert abs(found - 3.0) == pytest.approx(abs(declared.law(terms).ppf(mirrored) - 3.0))
        assert (found < 3.0) is (u < 0.5)
    truthful = report_probability(0.3, 1.0)
    for u, report in ((truthful - 1e-9, 1.0), (truthful + 1e-9, 0.0)):
        assert bernoulli_report.__wrapped__(Uniform(u), 0.3, 1.0) == report


class Uniform:
    """A generator whose uniform draws are all the same."""

    def __init__(self, draw: float) -> None:
        self.draw = draw

    def random(self) -> float:
        return self.draw
