"""Lower bounds, against numbers worked out by hand."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest
from scipy import stats

import balaclava as bl
from balaclava.errors import ParameterError
from balaclava.estimators.kl import kl, private_kl

LOG_MILLION = 13.815510557964274


def test_wang_zhu_pure() -> None:
    # L = log(10^3 / 40) = log 25, whatever epsilon is.
    found = bl.bounds.wang_zhu(horizon=10**6, epsilon=0.5, exponent=0.5, constant=1.0)
    assert found == pytest.approx(math.log(25) / 8, rel=1e-12)
    assert bl.bounds.wang_zhu(
        horizon=10**6, epsilon=3.0, exponent=0.5, constant=1.0
    ) == pytest.approx(math.log(25) / 48, rel=1e-12)
    # Every arm but the best has to be tried as often (Remark 6).
    many = bl.bounds.wang_zhu(horizon=10**6, epsilon=0.5, exponent=0.5, constant=1.0, arms=9)
    assert many == pytest.approx(8 * found, rel=1e-12)
    assert bl.bounds.wang_zhu(horizon=10**6, epsilon=0.5, exponent=0.5, constant=1.0, arms=1) == 0


def test_no_trajectory_private_policy_beats_wang_zhu() -> None:
    """A policy of two decisions that is as private as it can be, and its regret, worked out.

    Pull arm 2 n times, look at its noisy sum once (Laplace, epsilon), then commit. On means
    (1/2, 1/4) that costs n/4, and the regret on (1/2, 3/4) bounds c from above.
    """
    horizon = 10**4
    for epsilon in (0.5, 3.0, 8.0):
        for n in (1, 4, 16, 64):

            def wrong(mean: float, above: float, n: int = n, epsilon: float = epsilon) -> float:
                """The chance that (sum - n/2) plus the noise is on the wrong side."""
                sums = np.arange(n + 1)
                tail = stats.laplace(scale=1 / epsilon).sf((n / 2 - sums) * above)
                return float(stats.binom(n, mean).pmf(sums) @ tail)

            high = n / 4 + (horizon - n) / 4 * wrong(0.25, 1.0)  # means 1/2 and 1/4
            low = (horizon - n) / 4 * wrong(0.75, -1.0)  # means 1/2 and 3/4
            constant = max(high, low) / math.sqrt(horizon)
            bound = bl.bounds.wang_zhu(
                horizon=horizon, epsilon=epsilon, exponent=0.5, constant=constant
            )
            assert high >= bound


def test_wang_zhu_with_delta() -> None:
    # E = 1: L = log((100 + 5) / (40 * 0.25 + 5)) = log 7 with S = 100, delta = 0.01, c = 1/4.
    found = bl.bounds.wang_zhu(
        horizon=10**4, epsilon=math.log(2), delta=0.01, exponent=0.5, constant=0.25
    )
    assert found == pytest.approx(math.log(7) / (16 * math.log(2)), rel=1e-12)


def test_wang_zhu_at_epsilon_0_is_the_limit() -> None:
    common = {"horizon": 10**6, "delta": 0.01, "exponent": 0.5, "constant": 1.0}
    limit = bl.bounds.wang_zhu(epsilon=0.0, **common)
    assert limit == pytest.approx((1000 - 40) / (80 * 0.01 * 1000), rel=1e-12)  # 1.2
    near = bl.bounds.wang_zhu(epsilon=1e-9, **common)
    assert near == pytest.approx(limit, rel=1e-6)


def test_wang_zhu_says_nothing_for_short_horizons() -> None:
    common = {"exponent": 0.5, "epsilon": 0.001}
    assert bl.bounds.wang_zhu(horizon=1600, constant=1.0, **common) == 0.0  # log(40/40)
    # L = log 100, and 3 L / epsilon is above 10^4
    assert bl.bounds.wang_zhu(horizon=10**4, constant=1 / 40, **common) == 0.0
    assert bl.bounds.wang_zhu(horizon=10**4, constant=1 / 40, exponent=0.5, epsilon=0.1) > 0


def test_wang_zhu_takes_every_epsilon() -> None:
    large = bl.bounds.wang_zhu(horizon=10**6, epsilon=1e4, exponent=0.5, constant=1.0)
    assert large == pytest.approx(math.log(25) / 16e4, rel=1e-12)  # no overflow
    with pytest.raises(ParameterError, match="both 0"):
        bl.bounds.wang_zhu(horizon=10**6, epsilon=0.0, exponent=0.5, constant=1.0)
    with pytest.raises(ParameterError, match=r"exponent = 1 .*\[0, 1\)"):
        bl.bounds.wang_zhu(horizon=10**6, epsilon=0.5, exponent=1, constant=1.0)


def test_minimax() -> None:
    # Either term may be the larger one: sqrt(T (K-1)) / 27 = 100 / 27, (K-1) / (131 epsilon) = 1.
    assert bl.bounds.minimax(arms=2, horizon=10**4, epsilon=1.0) == pytest.approx(100 / 27)
    assert bl.bounds.minimax(arms=132, horizon=10**5, epsilon=1e-3) == pytest.approx(1e3)
    assert bl.bounds.minimax(arms=1, horizon=10**4, epsilon=1.0) == 0.0
    with pytest.raises(ParameterError, match="epsilon = 0"):
        bl.bounds.minimax(arms=2, horizon=10, epsilon=0)


@pytest.mark.parametrize("arms", [2, 3, 5, 132])
@pytest.mark.parametrize("horizon", [1, 10, 100, 10**4])
@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 1.0])
def test_minimax_is_below_the_regret_of_uniform_draws(
    arms: int, horizon: int, epsilon: float
) -> None:
    """Drawing arms uniformly is private, and loses at most 1 - 1/K a round on any instance."""
    assert bl.bounds.minimax(arms=arms, horizon=horizon, epsilon=epsilon) <= horizon * (
        1 - 1 / arms
    )


def test_minimax_privacy_term_is_what_its_proof_gives() -> None:
    # T = 100, epsilon = 1e-6: D = 1/2, (T/8) exp(-epsilon T / 2); the printed 1/131e-6 is 7,634.
    tiny = bl.bounds.minimax(arms=2, horizon=100, epsilon=1e-6)
    assert tiny == pytest.approx(12.5 * math.exp(-5e-5), rel=1e-12)
    for horizon in (10, 10**3, 10**5):
        for epsilon in (1e-5, 1e-3, 0.1):
            m = max(1.0, 8 / 4)
            gap = min(0.5, m / (epsilon * horizon))
            proved = horizon * gap / 4 * math.exp(-epsilon * horizon * gap / m)
            learned = min(math.sqrt(8 * horizon), horizon) / 27
            assert bl.bounds.minimax(arms=9, horizon=horizon, epsilon=epsilon) <= max(
                learned, proved
            ) * (1 + 1e-12)


@pytest.mark.parametrize(
    ("epsilon", "divergence"),
    [
        (0.1, 0.049046982523044465),
        (0.5, 0.22470217488719435),
        (1.0, 0.39262598049121145),
        (5.0, 0.5493061443340548),  # large enough that privacy is free: kl(1/4, 3/4)
    ],
)
def test_private_kl_instance(epsilon: float, divergence: float) -> None:
    found = bl.bounds.private_kl_instance([0.25, 0.75], horizon=10**6, epsilon=epsilon)
    assert found == pytest.approx(0.5 * LOG_MILLION / divergence, rel=1e-12)


def test_instance() -> None:
    # kl(1/4, 3/4) = log(3) / 2; the smaller of it and 6 epsilon / 2 counts.
    common = {"means": [0.25, 0.75, 0.75, 0.25], "horizon": 10**6}
    learning = bl.bounds.instance(epsilon=1.0, **common)
    assert learning == pytest.approx(2 * LOG_MILLION / math.log(3), rel=1e-12)
    privacy = bl.bounds.instance(epsilon=0.01, **common)
    assert privacy == pytest.approx(2 * LOG_MILLION / 0.06, rel=1e-12)


def test_instance_bounds_at_the_edges() -> None:
    for bound in (bl.bounds.instance, bl.bounds.private_kl_instance):
        assert bound([0.5, 0.5], horizon=10, epsilon=1.0) == 0.0  # nothing to learn
        assert bound([0.5], horizon=10, epsilon=1.0) == 0.0
        assert bound([0.5, 0.5 + 2e-16], horizon=10, epsilon=1.0) > 1e12
        with pytest.raises(ParameterError, match=r"means\[1\] = 1\.5"):
            bound([0.5, 1.5], horizon=10, epsilon=1.0)
        # A best arm that never fails: no arm can be better, so nothing forces exploration.
        assert bound([0.5, 1.0], horizon=10**6, epsilon=1.0) == 0.0


def test_local_arms_refuses_gaps_outside_its_instance() -> None:
    with pytest.raises(ParameterError, match=r"means\[1\] = 0\.001 is 0\.499 below"):
        bl.bounds.local_arms([0.5, 0.001], moment_order=2.0, horizon=10**6, epsilon=1.0)


def test_the_two_instance_bounds_agree_without_privacy() -> None:
    means = [0.3, 0.5, 0.6]
    bounds = (bl.bounds.instance, bl.bounds.private_kl_instance)
    one, two = (bound(means, horizon=1000, epsilon=50.0) for bound in bounds)
    assert one == pytest.approx(two, rel=1e-12)


def test_early_commitment_says_nothing_outside_its_conditions() -> None:
    common = {"horizon": 10_000, "epsilon": 0.1, "share": 0.01, "changed": 5.0}
    assert bl.bounds.early_commitment(switch=250, **common) > 0.0  # 2 gamma tau = p
    assert bl.bounds.early_commitment(switch=251, **common) == 0.0
    assert bl.bounds.early_commitment(switch=20, **{**common, "horizon": 519}) == 0.0
    with pytest.raises(ParameterError, match="share = 0"):
        bl.bounds.early_commitment(switch=20, **{**common, "share": 0.0})


def test_lower_bounds_by_hand() -> None:
    pair = bl.bounds.heavy_tailed_pair(0.05, moment_order=1.5, horizon=10**18, epsilon=0.5)
    t = math.log(1e18) / (100 * 0.5 * 25) * 0.05**-3
    assert pair == pytest.approx(0.05 * t / 2)
    arms = bl.bounds.heavy_tailed_arms(
        [0.16, 0.09, 0.09], moment_order=2.0, horizon=10**18, epsilon=1.0
    )
    assert arms == pytest.approx(0.07 * math.log(1e18) / 400 * 0.07**-2)
    # Too short a horizon: nothing is said.
    assert bl.bounds.heavy_tailed_pair(0.05, moment_order=2.0, horizon=10**9, epsilon=0.5) == 0.0
    assert bl.bounds.local_pair(0.05, moment_order=2.0, horizon=10**8, epsilon=0.5) == 0.0
    for bound in (bl.bounds.heavy_tailed_minimax, bl.bounds.local_minimax):
        assert bound(arms=1, moment_order=1.5, horizon=100, epsilon=1.0) == 0.0
        assert bound(arms=5, moment_order=1.5, horizon=1, epsilon=0.1) <= 0.2
    with pytest.raises(ParameterError, match="epsilon = 2"):
        bl.bounds.heavy_tailed_minimax(arms=5, moment_order=1.5, horizon=100, epsilon=2)
    with pytest.raises(ParameterError, match="1/12"):
        bl.bounds.heavy_tailed_arms([0.16, 0.01], moment_order=1.5, horizon=100, epsilon=1)


@pytest.mark.parametrize("v", [0.5, 1.0])
def test_orders_of_the_lower_bounds(v: float) -> None:
    def slope(name: str, **change: tuple[float, float]) -> float:
        ((key, (small, large)),) = change.items()
        usual: dict[str, Any] = {"arms": 9, "moment_order": 1 + v, "horizon": 10**9, "epsilon": 0.1}
        ends = [getattr(bl.bounds, name)(**{**usual, key: x}) for x in (small, large)]
        return math.log(ends[1] / ends[0]) / math.log(large / small)

    assert slope("heavy_tailed_minimax", horizon=(10**9, 10**12)) == pytest.approx(1 / (1 + v))
    assert slope("heavy_tailed_minimax", epsilon=(0.01, 0.1)) == pytest.approx(-v / (1 + v))
    rate = (2 + v) / (2 * (1 + v))
    assert slope("local_minimax", horizon=(10**9, 10**12)) == pytest.approx(rate)
    assert slope("local_minimax", epsilon=(1e-3, 1e-2)) == pytest.approx(-v / (1 + v), rel=1e-2)


def test_identification_by_brute_force():
    """Two arms: shares and common means on grids; three: equal costs; and the edges."""
    for means, epsilon in (([0.3, 0.6], 1.0), ([0.05, 0.1], 0.1)):
        worse, best = means
        ys = np.linspace(worse, best, 400)
        above = np.array([private_kl(1 - best, 1 - y, epsilon) for y in ys])
        below = np.array([private_kl(worse, y, epsilon) for y in ys])
        fastest = max((w * above + (1 - w) * below).min() for w in np.linspace(0, 1, 400))
        bound = bl.bounds.identification(means, epsilon=epsilon, delta=0.05)
        assert bound == pytest.approx(kl(0.05, 0.95) / fastest, rel=2e-3)
    world = bl.environment("bernoulli", means=[0.2, 0.5, 0.4])
    more = bl.bounds.identification(world, 1.0, 0.05)
    assert more > bl.bounds.identification([0.4, 0.5], epsilon=1.0, delta=0.05)
    assert bl.bounds.identification([0.5, 0.5], epsilon=1.0, delta=0.05) == math.inf
    for options in ({"delta": 0.5}, {"delta": 0.0}, {"epsilon": -1.0}):
        with pytest.raises(ParameterError):
            bl.bounds.identification([0.2, 0.5], **{"epsilon": 1.0, "delta": 0.1, **options})
    with pytest.raises(ParameterError, match="nothing to compare"):
        bl.bounds.identification([0.2], epsilon=1.0, delta=0.1)


def exact_private_kl(low: float, high: float, epsilon: float) -> float:
    """d_eps(low, high) for low < high, with 80 digits."""
    with localcontext(prec=80):
        x, y = Decimal(low), Decimal(high)
        factor = (-Decimal(epsilon)).exp()
        z = max(x, y * factor / (1 - y + y * factor))
        return float(
            Decimal(epsilon) * (z - x)
            + (z * (z / y).ln() if z else 0)
            + (1 - z) * ((1 - z) / (1 - y)).ln()
        )


@pytest.mark.parametrize("epsilon", [1e-17, 1e-6, 1.0, 50.0])
@pytest.mark.parametrize(
    "means", [[0.5, 0.5 - 1e-8], [0.9, 0.9 - 1e-14], [1e-12, 0.0], [0.3, 2e-9], [0.25, 0.75]]
)
def test_bounds_of_close_and_of_small_means(means: list[float], epsilon: float) -> None:
    """The divergence of such means is below the rounding error of its usual formula."""
    high, low = max(means), min(means)
    gap = high - low
    cost = exact_private_kl(low, high, epsilon)
    found = bl.bounds.private_kl_instance(means, horizon=10**6, epsilon=epsilon)
    assert found == pytest.approx(LOG_MILLION * gap / cost, rel=1e-7)
    learning = min(exact_private_kl(low, high, 1e4), 6.0 * epsilon * gap)
    found = bl.bounds.instance(means, horizon=10**6, epsilon=epsilon)
    assert found == pytest.approx(LOG_MILLION * gap / learning, rel=1e-7)


def test_rounds_to_name_the_best_of_close_arms() -> None:
    """With half the rounds each, means 1/2 and 1/2 - g need about 2 kl(d, 1-d) / g^2."""
    for gap in (1e-3, 1e-6, 1e-9, 1e-12):
        found = bl.bounds.identification([0.5, 0.5 - gap], epsilon=1.0, delta=0.1)
        assert found == pytest.approx(2.0 * kl(0.1, 0.9) / gap**2, rel=0.01)
