"""The loss of a move that is spread over the parts of an array."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from balaclava.auditing.laws.array_norms import (
    ShiftedLaw,
    cell_masses,
    norm_fault_delta,
    spread_delta,
    spread_move,
)
from balaclava.privacy.accounting import gaussian_delta
from balaclava.privacy.mechanisms.analytic_gaussian import gaussian_vector_release
from balaclava.privacy.mechanisms.base import Terms, declared_mechanism
from balaclava.privacy.mechanisms.laplace import laplace_law, laplace_vector_release

L1 = declared_mechanism(laplace_vector_release)
L2 = declared_mechanism(gaussian_vector_release)


def test_the_move_of_each_part_adds_up_to_the_sensitivity():
    terms = Terms((0.0,) * 4, 3.0, 1.0, 0.01)
    assert spread_move(L1, terms, 4) == pytest.approx(3.0 / 4)
    assert spread_move(L2, terms, 4) == pytest.approx(3.0 / 2)


@pytest.mark.parametrize(("parts", "epsilon"), [(1, 0.3), (2, 1.0), (8, 1.0)])
def test_gaussian_parts_are_one_gaussian_and_never_more(parts, epsilon):
    found = spread_delta(stats.norm(0.0, 2.0), 1.5 / math.sqrt(parts), parts, epsilon)
    exact = gaussian_delta(1.5 / 2.0, epsilon)
    assert 0.994 * exact < found <= exact


def test_one_laplace_part_has_its_closed_form():
    for cost, epsilon in ((2.0, 1.0), (0.5, 0.4)):
        found = spread_delta(stats.laplace(0.0, 1.0), cost, 1, epsilon)
        exact = 1 - math.exp((epsilon - cost) / 2)
        assert 0.99 * exact < found <= exact
    assert spread_delta(stats.laplace(0.0, 1.0), 0.4, 1, 0.4) == 0.0


def test_a_bounded_law_reveals_a_part_that_is_beyond_its_end():
    for parts in (1, 2, 3):  # a tenth of each part, which no other loss adds to
        found = spread_delta(stats.uniform(-1.0, 2.0), 0.2, parts, 1.0)
        assert found == pytest.approx(1 - 0.9**parts, rel=1e-6)


def test_masses_of_cells():
    grid, law = np.array([-1.0, 0.5, 2.0]), stats.norm()
    expected = np.diff([0.0, *law.cdf(grid), 1.0])
    assert cell_masses(law, grid) == pytest.approx(expected)
    far = cell_masses(law, np.array([9.0, 10.0]))
    assert far[1:] == pytest.approx([law.sf(9.0) - law.sf(10.0), law.sf(10.0)], rel=1e-12, abs=0)


def test_laplace_noise_keeps_its_loss_in_the_first_norm_only():
    terms = Terms((0.0,) * 3, 1.0, 1.0, 0.0)
    law = laplace_law(terms)
    assert norm_fault_delta(L1, terms, law) == 0.0
    needed = norm_fault_delta(L2, terms, law)
    assert needed == pytest.approx(spread_delta(law, 1.0 / math.sqrt(3.0), 3, 1.0))
    assert needed > 0.05
    assert norm_fault_delta(L2, terms._replace(delta=needed), law) == 0.0
    assert norm_fault_delta(L2, terms._replace(delta=0.99 * needed), law) == needed
    assert norm_fault_delta(L2, terms._replace(delta=0.9995 * needed), law) == 0.0  # its rounding
    for other in ({"value": (0.0,)}, {"epsilon": 0.0}, {"epsilon": math.inf}):
        assert norm_fault_delta(L2, terms._replace(**other), law) == 0.0
    pair = norm_fault_delta(L2, terms._replace(value=(0.0, 0.0)), law)
    assert pair == pytest.approx(spread_delta(law, 1.0 / math.sqrt(2.0), 2, 1.0))
    many = norm_fault_delta(L2, terms._replace(value=(0.0,) * 20), law)
    assert many == pytest.approx(spread_delta(law, 1.0 / math.sqrt(8.0), 8, 1.0))


def test_a_shifted_law():
    law, exact = ShiftedLaw(stats.uniform(0.0, 2.0), 0.5), stats.uniform(0.5, 2.0)
    x, p = np.linspace(0.0, 3.0, 7), np.array([0.1, 0.6])
    assert law.cdf(x) == pytest.approx(exact.cdf(x))
    assert law.sf(x) == pytest.approx(exact.sf(x))
    assert law.ppf(p) == pytest.approx(exact.ppf(p))
    assert law.isf(p) == pytest.approx(exact.isf(p))
    assert law.support() == (0.5, 2.5)
