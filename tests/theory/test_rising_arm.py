"""The lower bound for a weak arm that rises."""

import math

import pytest

from balaclava.errors import ParameterError
from balaclava.estimators.kl import kl
from balaclava.theory.rising_arm import least_regret_of_a_rise


def test_it_is_the_maximum_over_the_length_of_the_interval():
    r, cost = 0.01, kl(0.4, 0.9)
    value = least_regret_of_a_rise(0.4, 0.6, 0.9, r)
    n = 2.0 * ((1.0 - r) * 2.0 / 3.0) ** 2  # where n (1 - r - sqrt(n/2)) is largest
    assert value == pytest.approx(0.3 * n / (r * cost) * (1.0 - r) / 3.0, rel=1e-3)
    assert n == pytest.approx(8 / 9, rel=0.03)


def test_a_policy_that_never_looks_loses_without_end():
    values = [least_regret_of_a_rise(0.4, 0.6, 0.9, rate) for rate in (0.1, 1e-3, 1e-6)]
    assert values[1] > 50 * values[0]
    assert values[2] == pytest.approx(1e3 * values[1], rel=0.01)
    assert not math.isinf(values[2])


@pytest.mark.parametrize(
    "arguments", [(0.6, 0.4, 0.9, 0.1), (0.4, 0.6, 0.6, 0.1), (0.4, 0.6, 1, 0.1)]
)
def test_means_out_of_order_are_refused(arguments):
    with pytest.raises(ParameterError, match="give ascending means"):
        least_regret_of_a_rise(*arguments)


@pytest.mark.parametrize("rate", [0.0, 1.5])
def test_a_rate_out_of_its_range_is_refused(rate):
    with pytest.raises(ParameterError, match="give a share"):
        least_regret_of_a_rise(0.4, 0.6, 0.9, rate)
