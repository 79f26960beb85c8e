"""Radii of batches: least over the grid, valid at the moment bound, and of the right order."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize

from balaclava.theory.batch_radii import (
    Premises,
    arguments,
    exponents,
    schedule,
)

RAW = Premises(1.0, 1.9, 1.0, 0.0, None, False)


LAWS = [
    RAW,
    RAW._replace(epsilon=0.2, order=1.3, scale=3.0),
    RAW._replace(epsilon=10.0, order=2.0),
    RAW._replace(order=3.0, scale=2.0),
    RAW._replace(contamination=0.05),
    RAW._replace(local=True),
    RAW._replace(local=True, epsilon=5.0, order=1.5, contamination=0.02),
]


def radius_by_hand(law: Premises, size: int, log: float, level: float, x: float) -> float:
    """The bound of the docstring, one batch, written out once more."""
    b, p, a = level / law.scale, law.order, law.contamination
    steep = math.exp(x) - 1 - x
    tail = b**-p * max(x, steep) if p <= 2 else b**-p * x + b**-2 * steep
    psi = math.log((1 - a) * math.exp(tail) + a * math.exp(max(tail, x + x / b)))
    noise = -math.log(1 - 4 * x * x / law.epsilon**2) * (size if law.local else 1)
    return level / (size * x) * (size * psi + noise + log)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_one_batch_has_the_least_radius(law):
    size, beta = 5000, 1e-6
    plan = schedule(law, size, size, beta, 1.0)
    least = min(
        optimize.minimize(
            lambda z: radius_by_hand(
                law,
                size,
                math.log(1 / beta),
                math.exp(z[0]),
                law.epsilon / 2 / (1 + math.exp(-z[1])),
            ),
            [math.log(law.scale * start), guess],
            method="Nelder-Mead",
            options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 4000},
        ).fun
        for start, guess in [(3.0, 0.0), (30.0, 2.0), (10.0, -3.0), (5.0, -5.0)]
    )
    assert least <= plan.radii[0] <= 1.01 * least


def test_the_exponent_holds_for_laws_at_the_moment_bound():
    """log E exp(theta (Y - mu)) <= psi(x) for discrete laws, and some law comes close."""
    rng = np.random.default_rng(5)
    for law in (RAW._replace(order=1.4), RAW, RAW._replace(order=3.0)):
        for share in (0.0, 0.1):
            level = 4.0
            x = arguments(law.epsilon)[::20][1:]
            proved = exponents(law._replace(contamination=share), 1.0, 1, np.array([level])).cost[
                0
            ][::20][1:] + np.log1p(-((2 * x / law.epsilon) ** 2))
            closest = -math.inf
            for trial in range(400):
                values = rng.choice([-1, 1], 3) * np.exp(rng.normal(1, 1.5, 3))
                if trial % 4 == 0:
                    values[0] = -level * 1.0001
                chances = rng.dirichlet([0.3] * 3) * np.abs(values) ** -law.order
                if chances.sum() > 1:  # scale down the values until it is a law
                    values *= chances.sum() ** (1 / law.order)
                    chances /= chances.sum()
                values, chances = np.append(values, 0.0), np.append(chances, 1 - chances.sum())
                assert np.abs(values) ** law.order @ chances <= 1 + 1e-9
                cut = np.where(np.abs(values) <= level, values, 0.0)
                centred = cut - values @ chances
                clean = np.exp(np.outer(x / level, centred)) @ chances
                dirty = np.exp(x / level * (level - values @ chances))
                true = np.log((1 - share) * clean + share * dirty)
                assert (true <= proved + 1e-12).all()
                closest = max(closest, (true / proved).max())
            assert closest > (0.8 if law.order <= 2 and share == 0 else 0.3)


def test_radii_scale_as_they_should():
    plan = schedule(RAW, 1000, 1000, 1e-6, 1.0)
    assert schedule(RAW._replace(scale=7.0), 1000, 1000, 1e-6, 1.0).radii == pytest.approx(
        7 * plan.radii
    )
    assert schedule(RAW, 16_000, 16_000, 1e-6, 1.0).radii == pytest.approx(
        plan.radii * 16 ** (-0.9 / 1.9), rel=0.01
    )
    local = RAW._replace(local=True)
    few, many = (schedule(local, n, n, 1e-6, 1.0).radii[0] for n in (10**6, 16 * 10**6))
    assert many == pytest.approx(few * 4 ** (-0.9 / 1.9), rel=0.02)
    # Without privacy: the least over B of u B^(1-p) + B log(1/beta) / (n x), at x = e^x - 1 - x.
    free = schedule(RAW._replace(epsilon=1e6), 1000, 1000, 1e-6, 1.0).radii[0]
    w = math.log(1e6) / 1.2564312086261697 / 0.9
    assert free == pytest.approx((w + 0.9 * w) * w ** (-1 / 1.9) * 1000 ** (-0.9 / 1.9), rel=0.01)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_earlier_batches_help(law):
    plan = schedule(law, 100, 10_000, 1e-4, 1.0)
    assert plan.sizes.tolist() == [100, 100, 200, 400, 800, 1600, 3200, 2**60]
    assert np.tril(plan.shares).sum(axis=1) == pytest.approx(np.ones(7))
    parts = np.tril(plan.costs + plan.draws).sum(axis=1) + plan.logs
    assert parts == pytest.approx(np.ones(7))
    assert (plan.shares >= 0).all()
    alone = schedule(law, 3200, 3200, 1e-4 / 7, 1.0).radii[0]
    everything = schedule(law, 6400, 6400, 1e-4 / 7, 1.0).radii[0]
    assert 0.99 * everything < plan.radii[-1] < 0.99 * alone
    assert (np.diff(plan.radii) < 0).all()


def test_a_far_centre_is_soon_forgotten():
    known = schedule(RAW, 128, 10**6, 1e-6, 1.0)
    central = schedule(RAW._replace(mean_range=1000.0), 128, 10**6, 1e-6, 1.0)
    assert central.radii[0] > 300
    assert central.radii[-1] < 1.1 * known.radii[-1]
    before = np.minimum.accumulate(np.append(1000.0, central.radii))[:-1]
    assert (central.errors[:-1] == before).all()
    assert not known.errors.any()


@pytest.mark.parametrize("law", [law for law in LAWS if not law.local], ids=str)
def test_a_centre_that_is_further_off_needs_a_higher_level_only(law):
    """The exponent of the table bounds that of every law, about a centre off by r + d."""
    rng = np.random.default_rng(5)
    p, x = law.order, arguments(law.epsilon)
    k = max(2.0, p / (p - 1.0))
    tightest = 0.0
    for _ in range(300):
        r, d, B = np.array([0.0, 0.0, 0.5]) + rng.exponential([1.0, 20.0, 10.0])
        scale = law.scale + r
        points, chances = rng.standard_cauchy(4) * B, rng.dirichlet(np.full(4, 0.3))
        points -= chances @ points
        points *= law.scale / (chances @ np.abs(points) ** p) ** (1.0 / p)  # the mean is 0
        centre, beyond = rng.choice([-1.0, 1.0]) * (r + d), B + k * d
        kept = np.where(np.abs(points - centre) <= beyond, points, centre)
        theta = x / (B + (k + 1.0) * d)
        worst = np.abs(centre) + beyond  # of an outlier
        clean, alpha = np.exp(np.outer(theta, kept)) @ chances, law.contamination
        got = np.log((1.0 - alpha) * clean + alpha * np.maximum(clean, np.exp(theta * worst)))
        table = exponents(law, scale, 1, np.array([B]))
        allowed = table.cost[0] - table.draw
        assert (got <= allowed + 1e-9).all()
        tightest = max(tightest, float((got[1:] / allowed[1:]).max()))
    assert tightest > 0.05  # and is not vacuous
