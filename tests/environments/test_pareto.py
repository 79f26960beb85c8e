"""The moments of Pareto rewards."""

from __future__ import annotations

import mpmath as mp
import pytest

import balaclava as bl
from tests.environments.families import (
    MEANS,
)


@pytest.mark.parametrize(("v", "moment"), [(0.5, 5.594637409335428), (0.9, 8.142063093163385)])
def test_the_moments_of_the_published_instance(v, moment):
    world = bl.environment("pareto", means=MEANS, shape=1.05 + v)
    assert world.moment(1 + v) == pytest.approx(moment, rel=1e-13)
    assert world.moments(1 + v).argmax() == 0


@pytest.mark.parametrize(("shape", "order"), [(1.05, 1.0), (1.55, 1.5), (4.0, 2.0), (3.0, 0.2)])
def test_central_pareto_moments_to_many_digits(shape, order):
    with mp.workdps(30):
        a, k = mp.mpf(shape), mp.mpf(order)
        least = (a - 1) / a
        scaled = [0, 1, 2, 8, 32, 120]  # x = least e^{z/(a-k)}, split where x = 1, the mean
        kink = -mp.log(least) * (a - k)
        expected = mp.quad(
            lambda z: (
                abs(least * mp.exp(z / (a - k)) - 1) ** k * mp.exp(-a * z / (a - k)) * a / (a - k)
            ),
            [0, kink / 2, *(kink + z for z in scaled)],
        )
    world = bl.environment("pareto", means=[1.0], shape=shape)
    assert world.moment(order, central=True) == pytest.approx(float(expected), rel=1e-10)
