"""The test of laws: draws that do not follow the declared law are detected."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from balaclava.auditing.laws.mechanism_laws import (
    LawAudit,
    array_fault,
    audit_laws,
    declared_budget_fault,
    digits_fault,
    last_place,
    neighbouring_terms,
    same_law,
    undeclared_law_fault,
)
from balaclava.auditing.replay.recorded_run import record
from balaclava.auditing.scenario import plain_scenario
from balaclava.auditing.tape import Recorder
from balaclava.privacy.accounting import gaussian_delta
from balaclava.privacy.mechanisms.base import (
    Terms,
    declared_mechanism,
    mechanism,
    proportional_loss,
)
from balaclava.privacy.mechanisms.laplace import (
    exact_laplace_vector,
    laplace_law,
    laplace_release,
    laplace_vector_release,
)
from balaclava.privacy.mechanisms.perturbed_index import gaussian_index
from balaclava.privacy.mechanisms.randomized_response import bernoulli_report
from tests.oracles.violators import VIOLATORS


@pytest.mark.parametrize("name", ["own-gaussian", "own-uniform", "own-cut-laplace"])
def test_a_mechanism_with_another_law_is_caught(name):
    policy = VIOLATORS[name].policy
    run = record(policy, plain_scenario(policy, np.ones((30, 2))), seed=0)
    found = audit_laws(run.tape[:1], seed=0, draws=200_000)
    assert found.verdict == "unproved", str(found)


def half_a_law(terms):
    from scipy import stats

    return stats.laplace(terms.value, terms.sensitivity / terms.epsilon)


@mechanism("half the noise it declares", lambda terms: terms.value, law=half_a_law)
def half_the_noise(rng, value, sensitivity, epsilon):
    return value + rng.laplace(0.0, 0.5 * sensitivity / epsilon)


@mechanism("one draw for all parts", lambda terms: terms.value)
def one_draw(rng, value, sensitivity, epsilon, out):
    noise = rng.laplace(0.0, sensitivity / epsilon)
    for i in range(value.size):
        out[i] = value[i] + noise


@mechanism("two draws", exact_laplace_vector, law=laplace_law, loss=proportional_loss)
def two_draws(rng, value, sensitivity, epsilon, out):
    for i in range(value.size):
        noise = rng.standard_exponential() - rng.standard_exponential()
        out[i] = value[i] + sensitivity / epsilon * noise


def test_a_body_must_follow_its_declared_law():
    recorder = Recorder(0)
    half_the_noise(recorder, 0.3, 1.0, 1.0)
    assert "do not follow" in audit_laws(recorder.tape, seed=0, draws=100_000).fault


@pytest.mark.parametrize(
    ("number", "place"), [(1.0, 0), (-6.0, 1), (0.375, -3), (5e-324, -1074), (2.0**80, 80)]
)
def test_the_last_binary_digit(number, place):
    assert last_place(number) == place


def test_exact_answers_have_the_same_last_digit_for_every_value():
    from tests.oracles.violators.hidden import float_laplace

    terms = Terms(3.0, 1.0, 0.7, 0.0)
    fault = "its exact answers have more binary digits for one value than for another"
    assert digits_fault(declared_mechanism(float_laplace), terms) == fault
    parts = terms._replace(value=(1.0, 2.0, 0.0))
    for honest, each in ((laplace_release, terms), (laplace_vector_release, parts)):
        assert digits_fault(declared_mechanism(honest), each) == ""
    index = Terms(0.5, 1 / 64, 0.7, 0.1)
    assert digits_fault(declared_mechanism(gaussian_index), index) == ""
    near = Terms(0.5, 0.25, 0.7, 0.0)
    assert digits_fault(declared_mechanism(laplace_release), near) == ""
    refuses = dataclasses.replace(declared_mechanism(laplace_release), exact=lambda _: 1 / 0)
    assert digits_fault(refuses, terms) == ""


def test_parts_of_an_array_must_not_share_their_noise():
    recorder, out = Recorder(0), np.empty(3)
    one_draw(recorder, np.zeros(3), 1.0, 1.0, out)
    assert "not independent" in audit_laws(recorder.tape, seed=0, draws=30_000).fault
    recorder.tape.clear()
    laplace_vector_release(recorder, np.zeros(3), 1.0, 1.0, out)
    assert audit_laws(recorder.tape, seed=0, draws=30_000).verdict == "consistent"


def test_a_declared_law_stands_for_an_array_that_no_probe_reads():
    """Each part is drawn as a difference: the probes know single draws only."""
    recorder, out = Recorder(0), np.empty(2)
    two_draws(recorder, np.zeros(2), 1.0, 1.0, out)
    assert audit_laws(recorder.tape, seed=0, draws=30_000).verdict == "consistent"


def coins(p, q):
    from scipy import stats

    return [stats.bernoulli(p), stats.bernoulli(q)]


@pytest.mark.parametrize(("p", "q"), [(0.6, 0.2), (0.2, 0.6), (0.4, 0.8), (0.8, 0.4)])
def test_a_coin_needs_what_its_largest_ratio_needs(p, q):
    """The ratio of the rarer side is 3 or 2; its delta at epsilon is one side's excess."""
    terms = Terms(0.0, 1.0, 1.0, 0.0)
    exact = math.log(max(p / q, q / p, (1 - p) / (1 - q), (1 - q) / (1 - p)))
    for factor, wrong in ((0.999, True), (1.001, False)):
        found = declared_budget_fault(coins(p, q), terms._replace(epsilon=factor * exact))
        assert bool(found) is wrong
    grown = math.exp(0.5)
    sides = ((p, q), (q, p), (1 - p, 1 - q), (1 - q, 1 - p))
    needed = max(one - grown * other for one, other in sides)
    for factor, wrong in ((0.999, True), (1.001, False)):
        shown = terms._replace(epsilon=0.5, delta=factor * needed)
        assert bool(declared_budget_fault(coins(p, q), shown)) is wrong


def test_a_continuous_law_needs_its_divergence():
    from scipy import stats

    laws = [stats.norm(0.0, 1.0), stats.norm(0.5, 1.0)]
    needed = gaussian_delta(0.5, 1.0)
    for factor, wrong in ((0.99, True), (1.01, False)):
        terms = Terms(0.0, 0.5, 1.0, factor * needed)
        assert bool(declared_budget_fault(laws, terms)) is wrong
    text = declared_budget_fault(laws, Terms(0.0, 0.5, 1.0, 0.0))
    assert text.startswith("its law needs delta 0.00")
    assert "at epsilon 1; declared is 0" in text
    assert declared_budget_fault(laws, Terms(0.0, 0.5, 601.0, 0.0)) == ""


def test_neighbours_are_one_sensitivity_apart_and_within_the_unit_interval():
    def value(release, at, sensitivity=1.0):
        terms = Terms(at, sensitivity, 1.0, 0.01)
        return neighbouring_terms(declared_mechanism(release), terms).value

    assert [value(bernoulli_report, at) for at in (0.0, 0.49, 0.5, 1.0)] == [1.0, 1.0, 0.0, 0.0]
    assert value(laplace_release, 3.0, 0.5) == 3.5
    assert value(gaussian_index, 0.25, 0.5) == 0.75
    assert value(gaussian_index, 0.5, 0.5) == 1.0
    assert value(gaussian_index, 0.75, 0.5) == 0.25


def even_quantiles(law, size=4_000):
    return law.ppf((np.random.default_rng(1).permutation(size) + 0.5) / size)


@pytest.mark.parametrize(("shift", "scale"), [(1.0, 1.0), (3.0, 4.0)])
def test_undeclared_gaussian_noise_needs_its_delta(shift, scale):
    from scipy import stats

    samples = [even_quantiles(stats.norm(centre, scale)) for centre in (2.0, 2.0 + shift)]
    needed = gaussian_delta(shift / scale, 0.5)
    for factor, wrong in ((0.7, True), (1.1, False)):  # it must exceed a declared delta by 20 %
        found = undeclared_law_fault(samples, Terms(0.0, shift, 0.5, factor * needed))
        assert ("it draws Gaussian noise" in found) is wrong


@pytest.mark.parametrize(("shift", "scale"), [(1.0, 1.0), (3.0, 4.0)])
def test_undeclared_laplace_noise_costs_its_epsilon(shift, scale):
    from scipy import stats

    samples = [even_quantiles(stats.laplace(centre, scale)) for centre in (0.0, shift)]
    for factor, wrong in ((0.98, True), (1.02, False)):
        found = undeclared_law_fault(samples, Terms(0.0, shift, factor * shift / scale, 0.0))
        assert ("it draws Laplace noise" in found) is wrong
    cost, epsilon = shift / scale, 0.5 * shift / scale
    needed = 1 - math.exp((epsilon - cost) / 2)
    for factor, wrong in ((0.9, True), (1.02, False)):
        found = undeclared_law_fault(samples, Terms(0.0, shift, epsilon, factor * needed))
        assert ("it draws Laplace noise" in found) is wrong


def test_other_noise_is_told_apart_by_thresholds():
    from scipy import stats

    samples = [even_quantiles(stats.uniform(low, 2.0)) for low in (0.0, 1.0)]
    assert "its draws show that epsilon is at least" in undeclared_law_fault(
        samples, Terms(0.0, 1.0, 1.0, 0.0)
    )
    assert undeclared_law_fault(samples, Terms(0.0, 1.0, 1.0, 0.5)) == ""
    same = [samples[0], even_quantiles(stats.uniform(0.0, 2.0))]
    assert undeclared_law_fault(same, Terms(0.0, 1.0, 0.1, 0.0)) == ""


def test_the_same_law():
    from scipy import stats

    assert same_law(stats.norm(0.0, 1.0), stats.norm(1e-6, 1.0))
    assert not same_law(stats.norm(0.0, 1.0), stats.norm(3e-6, 1.0))
    assert not same_law(stats.norm(3e-6, 1.0), stats.norm(0.0, 1.0))


def test_the_result_in_words():
    assert str(LawAudit("consistent", 1, 2_000, "")) == (
        "consistent: 1 mechanism with its terms, 2,000 draws"
    )
    assert str(LawAudit("consistent", 2, 20, "")).startswith("consistent: 2 mechanisms with their")
    assert str(LawAudit("unproved", 1, 20, "Laplace: no noise")) == "unproved: Laplace: no noise"


def test_each_mechanism_is_drawn_and_further_terms_with_fewer_draws():
    recorder = Recorder(0)
    for value, epsilon in ((0.3, 1.0), (0.3, 0.5), (0.7, 1.0)):
        laplace_release(recorder, value, 1.0, epsilon)
    bernoulli_report(recorder, 1.0, 1.0)
    found = audit_laws(recorder.tape, seed=0, draws=12_000)
    # A known law has a tenth of the draws. Three values have all, half and a third of them.
    share = 1 + 1 / 2 + 1 / 3
    assert found.draws == pytest.approx(share * (1_200 + 12_000 + 2 * 300), abs=6)
    assert (found.verdict, found.mechanisms) == ("consistent", 4)


@pytest.mark.statistical
def test_exact_answers_of_an_array_follow_its_law():
    declared, terms = declared_mechanism(laplace_vector_release), Terms((0.0, 1.0), 1.0, 1.0, 0.0)
    assert array_fault(declared, terms, 0, 20_000)[1] == ""
    silent = dataclasses.replace(declared, exact=lambda terms: terms.value)
    assert "its exact answers do not follow" in array_fault(silent, terms, 0, 20_000)[1]
