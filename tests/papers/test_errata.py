"""The mistakes of the papers that docs/errata.md lists, each shown, and ours that it withdraws.

A test belongs to the entry that its docstring names. What is printed must fail the check that the
argument needs, and what we use instead must pass it; for a withdrawn entry, what is printed passes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import integrate, optimize, stats

import balaclava as bl
from balaclava.errors import ParameterError
from balaclava.policies.classic import robust_ucb
from balaclava.policies.contaminated.prae import level_of
from balaclava.privacy.mechanisms.counters import tree_levels
from balaclava.privacy.mechanisms.perturbed_index import beta_shape, beta_threshold
from balaclava.privacy.mechanisms.truncated_laplace import TruncatedLaplaceLaw
from balaclava.theory.gaussian_index_regret import best_arm_misses
from tests.oracles.tree_weight import worst_node_weight

MILLION = 10**6


def slope(function: Any, small: float, large: float) -> float:
    """The exponent of a power law, from two points."""
    return math.log(function(large) / function(small)) / math.log(large / small)


# Tao, Wu, Zhao, Wang 2022


def test_tree_counter_spends_more_than_epsilon() -> None:
    """Tao 1: with eps' = eps / log T the most exposed item costs more than eps."""
    one_width = tree_levels(MILLION)
    assert one_width == 20
    assert one_width / math.log(MILLION) == pytest.approx(1.4476, abs=1e-4)
    growing = {v: worst_node_weight(np.arange(1, MILLION + 1) ** (1 / (1 + v))) for v in (0, 1)}
    assert 1.319 < growing[0] / math.log(MILLION) < growing[1] / math.log(MILLION) < 1.347
    # With logarithms to base 2 it is less, and only where bounds do not grow.
    assert one_width / math.log2(MILLION) == pytest.approx(1.0034, abs=1e-4)
    assert worst_node_weight(np.ones(1024)) == tree_levels(1024) == 1.1 * math.log2(1024)
    assert growing[1] < math.log2(MILLION) < tree_levels(MILLION)
    # A ratio of bounds is largest for v = 1. The first item costs 1 + 1/sqrt(2) + ... < 3.5, any
    # other at most floor(log2 T): with growing bounds base 2 is enough from T = 5 on.
    spent = [worst_node_weight(np.sqrt(np.arange(1, T + 1))) / math.log2(T) for T in range(2, 300)]
    assert min(spent[:3]) > 1 > max(spent[3:])


def laplace_sum_tail(draws: int, bound: Any) -> Any:
    """P(|sum of Laplace draws of scale 1| > bound): the size of the sum is a mixture of Gammas."""
    shapes = np.arange(1, draws + 1)
    weights = 2 * stats.nbinom.pmf(draws - shapes, draws, 0.5)
    return stats.gamma.sf(np.asarray(bound)[..., None], shapes) @ weights


def test_tree_error_bound_fails_for_large_delta() -> None:
    """Tao 2: Lemma 2 bounds the error by a number that it exceeds too often."""
    assert laplace_sum_tail(2, 3.0) == pytest.approx(2.5 * math.exp(-3))  # (1 + x/2) e^-x
    horizon = 2**20 - 1  # every bit set: the sum of 20 nodes

    def fails(log_horizon: float, delta: float) -> float:
        return float(laplace_sum_tail(20, math.sqrt(log_horizon) * math.log(1 / delta)))

    natural, binary = math.log(horizon), math.log2(horizon)
    assert fails(natural, 0.1) == pytest.approx(0.1723, abs=1e-4)
    assert fails(binary, 0.1) == pytest.approx(0.1029, abs=1e-4)
    assert min(fails(natural, 0.5), fails(binary, 0.5)) > 0.5
    for log_horizon, limit in ((natural, 0.014), (binary, 0.09)):
        assert all(fails(log_horizon, delta) < delta for delta in np.geomspace(1e-30, limit, 200))
        assert fails(log_horizon, 1.1 * limit) > 1.1 * limit
    logs = np.geomspace(math.log(2), 200, 60)  # log(2/delta)
    for nodes in range(1, 65):
        assert (laplace_sum_tail(nodes, math.sqrt(nodes) * logs) < 2 * np.exp(-logs)).all()


@pytest.mark.parametrize("v", [0.3, 0.9])
def test_exponents_in_the_error_of_dpr_ucb(v: float) -> None:
    """Tao 3: powers of epsilon, n and log T in (13), (14) and (16)."""
    log_T, u = math.log(MILLION), 2.0

    def bound(n: float, epsilon: float) -> float:
        return (epsilon * u * n / log_T**1.5) ** (1 / (1 + v))

    def bias(epsilon: float) -> float:
        return float(np.mean([u / bound(i, epsilon) ** v for i in range(1, 101)]))

    assert slope(bias, 0.1, 0.2) == pytest.approx(-v / (1 + v))  # printed: -1/(1+v)

    def deviation(n: float) -> float:
        return math.sqrt(2 * bound(n, 0.5) ** (1 - v) * u * 10 / n)

    assert slope(deviation, 100, 200) == pytest.approx(-v / (1 + v))  # printed: -1/(1+v)

    grown = math.log(2 * MILLION**4) ** (1 / (1 + v))
    assert grown <= 5 * log_T ** (1 / (1 + v))
    if v < 0.5:
        assert grown > 5 * log_T ** (v / (1 + v))  # the printed middle step


@pytest.mark.parametrize("v", [0.3, 0.5, 1.0])
def test_pulls_of_dpr_ucb(v: float) -> None:
    """Tao 4: an arm is safe once twice its bonus is below its gap."""
    u, gap, epsilon, logs = 2.0, 0.2, 0.5, 300.0

    def bonus(n: float) -> float:
        return 18 * u ** (1 / (1 + v)) * (logs / (n * epsilon)) ** (v / (1 + v))

    printed = 36 * u ** (1 / v) * logs / (epsilon * gap ** ((1 + v) / v))
    corrected = printed / 36 * 36 ** ((1 + v) / v)
    assert 2 * bonus(printed) > 5 * gap
    assert 2 * bonus(corrected) == pytest.approx(gap)


@pytest.mark.parametrize("v", [0.3, 1.0])
def test_units_of_the_bounds_of_dpr_se(v: float) -> None:
    """Tao 5: in other units of reward (gap c, moment c^(1+v)) regret must grow by c."""
    c = 3.0

    def factor(power_of_u: float, power_of_gap: float) -> float:
        return float((c ** (1 + v)) ** power_of_u * c**power_of_gap)

    assert factor(1 / v, -1 / v) == pytest.approx(c)
    assert factor(1 / (1 + v), -1 / v) != pytest.approx(c, rel=0.1)  # printed (7)
    assert factor(1 / (1 + v), 0) == pytest.approx(c)
    assert factor(v / (1 + v) ** 2, 0) != pytest.approx(c, rel=0.1)  # printed (8)


def test_failure_probability_of_dpr_se() -> None:
    """Tao 6: three events an arm and epoch, of chance beta / (4 |S| tau^2) each; two are enough.

    The best arm stays, and an arm of gap D leaves, if the best arm is not estimated too low and
    the others not too high: of the two sides of Bernstein's bound each arm needs one.
    """
    epochs = np.arange(1, MILLION, dtype=np.float64)
    both = float((3 / 4 / epochs**2).sum())
    assert both == pytest.approx(math.pi**2 / 8, abs=1e-5)
    assert 1.23 < both < 1.24  # in units of beta
    one = float((2 / 4 / epochs**2).sum())
    assert one == pytest.approx(math.pi**2 / 12, abs=1e-5)
    assert one < 0.83  # the lemma claims 1
    # With errors of 6 err on these sides alone both conclusions hold.
    rng, err, gap = np.random.default_rng(4), 0.01, 0.25
    best = 1.0 + rng.uniform(-6, 60, 10_000) * err
    worse = 1.0 - gap + rng.uniform(-60, 6, 10_000) * err
    assert 24 * err < gap
    assert (worse - best <= 12 * err).all()  # the best arm stays
    assert (best - worse > 12 * err).all()  # the worse one leaves


@pytest.mark.parametrize("v", [0.5, 0.9])
def test_listing_of_ldpr_se(v: float) -> None:
    """Tao 7: what the proof has must make 14 err at most D/2, and grow by 4^((1+v)/v)."""
    u, epsilon, log, tau = 2.0, 0.5, 17.5, 3
    a = (1 + v) / v

    def pulls(D: float) -> float:
        return u ** (2 / v) * 28 ** (2 * a) * log / (epsilon**2 * D ** (2 * a))

    def err(denominator: float) -> float:
        return u ** (1 / (1 + v)) * (math.sqrt(log) / (denominator * epsilon)) ** (v / (1 + v))

    D = 2.0**-tau
    assert 14 * err(math.sqrt(pulls(D))) == pytest.approx(D / 2)
    assert 14 * err(pulls(D)) < D / 100  # printed: R for sqrt(R); the radius covers nothing
    assert pulls(D / 2) / pulls(D) == pytest.approx(4**a)  # printed: 4^(-a)
    assert pulls(4.0 ** -(tau + 1)) / pulls(4.0**-tau) == pytest.approx(16**a)  # not 4^a


def test_report_noise_of_ldpr_se() -> None:
    """Tao 8: the proof's Lap(B / eps) costs 2 eps between the reports of -B and B."""
    B, epsilon, report = 5.0, 0.7, 9.0

    def loss(scale: float) -> float:
        high, low = stats.laplace(B, scale), stats.laplace(-B, scale)
        return float(high.logpdf(report) - low.logpdf(report))

    assert loss(B / epsilon) == pytest.approx(2 * epsilon)
    assert loss(2 * B / epsilon) == pytest.approx(epsilon)


@pytest.mark.parametrize("v", [0.5, 1.0])
def test_upper_bound_of_ldpr_se(v: float) -> None:
    """Tao 9: (10) and (11) have wrong units and contradict what any local channel allows."""
    c, a = 3.0, (1 + v) / v
    moment = c ** (1 + v)
    assert moment ** (2 / v) * c ** (-(2 + v) / v) == pytest.approx(c)
    assert moment ** (2 / v) * c ** (-1 / v) > 2 * c  # printed (10)
    assert moment ** (1 / (1 + v)) == pytest.approx(c)
    assert moment ** (2 / (1 + v)) == pytest.approx(c**2)  # printed (11)

    # The algorithm itself: epochs until D <= gap, each of D^(-2a) pulls.
    def pulls(gap: float) -> float:
        last = math.ceil(math.log2(1 / gap))
        return sum(2.0 ** (2 * a * tau) for tau in range(1, last + 1))

    assert slope(pulls, 2.0**-20, 2.0**-10) == pytest.approx(-2 * a, abs=1e-3)

    # The hard pair: reports of two laws at distance TV differ by KL <= 4 (e^eps - 1)^2 TV^2.
    def needed(gap: float) -> float:
        distance = 2 * gap * (5 * gap) ** (1 / v)
        return 1 / (4 * math.expm1(1.0) ** 2 * distance**2)

    assert slope(needed, 1e-6, 1e-4) == pytest.approx(-2 * a)

    def printed(gap: float) -> float:
        return gap**-a

    assert needed(1e-9) > 1e3 * printed(1e-9)  # whatever the constant, for small enough a gap


@pytest.mark.parametrize("v", [0.5, 1.0])
def test_local_lower_bounds_are_loose(v: float) -> None:
    """Tao 10: the proofs replace TV^2 by KL, which is larger by a power of the gap."""
    a = (1 + v) / v

    def laws(gap: float) -> tuple[float, float]:
        g = (5 * gap) ** (1 / v)
        return g ** (1 + v) / 2 - gap * g, g ** (1 + v) / 2 + gap * g

    def divergence(gap: float) -> float:
        p, q = laws(gap)
        return p * math.log(p / q) + (1 - p) * math.log1p((q - p) / (1 - q))

    def square_distance(gap: float) -> float:
        p, q = laws(gap)
        return (q - p) ** 2

    assert slope(divergence, 1e-4, 1e-3) == pytest.approx(a, rel=0.01)
    assert slope(square_distance, 1e-4, 1e-3) == pytest.approx(2 * a)


def test_large_epsilon_in_dpr_se() -> None:
    """Tao 11: the error stays below 4 err up to epsilon = 2.4 only; min(epsilon, 1) repairs it."""

    def coefficient(epsilon: float) -> float:
        return math.sqrt(2 * epsilon) + epsilon / 3 + 1

    limit = optimize.brentq(lambda epsilon: coefficient(epsilon) - 4, 1, 5)
    assert limit == pytest.approx(2.41, abs=0.01)
    assert coefficient(5) > 5.5
    assert coefficient(min(5, 1)) < 4

    # ldpr-se: the same terms shrink with R / log; R >= max(1, epsilon^2) log keeps them small.
    def local_coefficient(epsilon: float, ratio: float) -> float:
        return math.sqrt(2 * epsilon) / ratio**0.25 + epsilon / 3 / ratio**0.5 + 1

    for epsilon in (0.5, 5, 20):
        assert local_coefficient(epsilon, max(1, epsilon**2)) <= 2.75
    assert local_coefficient(20, 1) > 13  # R >= log, all that the listing makes sure of

    def local_noise(ratio: float) -> float:  # by Chernoff's bound, where the proof has 4
        return 2 * (1 + ratio * math.log1p(1 / ratio)) * math.sqrt(1 + 1 / ratio)

    def local_error(epsilon: float, ratio: float) -> float:
        return local_coefficient(epsilon, ratio) + local_noise(ratio)

    for epsilon in (1e-6, 0.5, 1, 2, 5, 100):
        assert local_error(epsilon, 2 * max(1, epsilon**2)) < 7
    assert local_error(1, 1) > 7

    # Lemma 4 at a huge epsilon: two tails of a fair coin, once in four, lose to 1/2 - gap for good.
    epsilon, gap, log = 1e9, 0.1, math.log(4 * 2 * MILLION)
    pulls = math.ceil(24**2 * log / (epsilon * 0.5**2) + 1)  # u = v = 1
    assert pulls == 2
    assert math.sqrt(2 * epsilon / log) > 1  # B: nothing is truncated
    assert 12 * math.sqrt(log / (2 * epsilon)) < 0.01 < 0.5 - gap  # 12 err: what they lose by


def test_bonus_of_dpr_ucb_needs_another_proof() -> None:
    """Tao 12: with Lemma 2 fixed the errors add up to 24; by Chernoff they stay below 18."""

    def summed(noise: float) -> float:
        return 2 + math.sqrt(10) + 2 + noise

    assert summed(10) < 18  # as printed
    levels = 1 / math.log(2)  # of the tree, over log T
    assert 10 * levels**1.5 > 17
    assert summed(10 * levels**1.5) > 24
    assert all(tree_levels(2**k) > levels * math.log(2**k) for k in range(5, 60))

    def error(horizon: int, order: float) -> float:
        made = bl.policy(
            "dpr-ucb",
            arms=2,
            horizon=horizon,
            epsilon=1.0,
            moment_order=order,
            moment_bound=1.0,
        )
        return float(made.error)  # type: ignore[attr-defined]

    # Between powers of two, and from one to the next, all terms fall but rounding. That is nothing
    # up to 2^45, and grows with the horizon.
    for order in (1.000001, 1.5, 2.0):
        assert max(error(horizon, order) for horizon in (100, *(2**k for k in range(7, 45)))) < 17
        assert error(2**44, order) + error(2**56, order) < 18
    assert error(10, 1.01) > 18


def test_mean_of_few_laplace_draws() -> None:
    """Tao 13: 2 b sqrt(log(2/beta) / n) is exceeded too often unless n is large."""

    def excess(n: int, log: float, factor: float = 2.0) -> float:
        """The chance of a sum of n draws beyond factor sqrt(n log(2/beta)), over beta."""
        return float(laplace_sum_tail(n, factor * math.sqrt(n * log)) / (2 * math.exp(-log)))

    assert excess(1, math.log(2 / 1e-3)) == pytest.approx(4.03, abs=0.01)
    assert excess(20, 20.0) == pytest.approx(6.92, abs=0.01)
    assert excess(1000, 20.0) < 0.1
    for n in (1, 2, 5, 20, 50):
        assert all(excess(n, log, math.sqrt(8)) < 1 for log in np.linspace(math.log(2), n, 20))
    assert 28**4 * 2**4 > 9e6  # R over log(...) in the first epoch, for u = v = eps = 1


def test_mean_beyond_a_level() -> None:
    """Tao 14: for X = 2B the integral of the tail beyond B is half of the mean."""
    B, v = 3.0, 0.5
    integral = integrate.quad(lambda t: float(t < 2 * B), B, 4 * B, points=[2 * B])[0]
    assert integral == pytest.approx(B)
    assert integral == pytest.approx(2 * B - B * 1.0)  # E[X 1{X > B}] - B P(X > B)
    assert (2 * B) ** (1 + v) / B**v >= 2 * B  # the lemma


# Asi, Raman, Talwar 2025


def test_resampling_that_fails_counts_the_cap() -> None:
    """Asi 1: M_t = 0 after M failures gives a mean of 13.6 where the proof has 31.79."""
    p, cap = 0.02, 50
    m = np.arange(1, cap + 1)
    success = float((m * p * (1 - p) ** (m - 1)).sum())
    assert success == pytest.approx(13.58, abs=0.01)  # 0 on failure, as listed
    assert success + cap * (1 - p) ** cap == pytest.approx(31.791515995644158)
    assert (1 - (1 - p) ** cap) / p == pytest.approx(31.791515995644158)  # what the proof uses
    # What a round's losses lack, in units of K/M, for the worst chances of the arms.
    chance = np.linspace(0, 1, 10**5)
    for cap in (1, 10, 1000):
        lacking = cap * chance * (1 - chance) ** cap
        assert lacking.max() < 0.37
        assert (lacking * (1 + cap * chance)).max() < 0.84  # 0 on failure


@pytest.mark.statistical
def test_resampling_repeats_the_selection() -> None:
    """Asi 2: resampling with arg max estimates another probability than that of the choice."""
    lead = 3.0  # arm 0 has the smaller loss, by 3 units of the noise
    beaten = (2 + lead) / 4 * math.exp(-lead)  # P(a difference of two Laplace draws > lead)
    chosen = 1 - beaten
    assert 1 / chosen == pytest.approx(1.066, abs=1e-3)
    assert 1 / beaten == pytest.approx(16.07, abs=0.01)  # the weight as listed
    draws = np.random.default_rng(2).laplace(size=(2, 200_000))  # 3 standard errors: 0.002
    assert np.mean(draws[0] < lead + draws[1]) == pytest.approx(chosen, abs=0.002)


def test_noise_of_ftpl_is_not_of_scale_eta() -> None:
    """Asi 3: losses carry noise of scale lambda = 1, not eta; 4 log T suffices for few arms."""
    n, eta = 10**5, 3.0e-5
    exceeds = math.exp(-(4 * eta * math.log(n)))  # P(|Lap(1)| > 4 eta log n)
    assert exceeds > 0.99
    assert math.exp(-(4 * math.log(n))) < 1e-19
    # The event of the proof allows sqrt(10) log(K n); 4 log n covers it for K <= n^0.26.
    assert 4 / math.sqrt(10) - 1 == pytest.approx(0.265, abs=1e-3)


def test_regret_of_ftpl_misses_a_branch() -> None:
    """Asi 4: at K = 5, T = 10^6, eps = 0.1 the bound is below a term of its own proof."""
    K, n = 5, 10**5
    cap = math.sqrt(K * n)
    first = math.sqrt(math.log(K) / (K * n * (1 + 10 * math.log(K * n) ** 2)))
    second = 1 / (cap * (1 + 4 * math.log(n)))
    eta = min(first, second)
    assert eta == second == pytest.approx(3.0056586828348876e-05)
    printed = 11 * math.sqrt(K * n * math.log(K)) * math.log(K * n) + 10
    assert 6 * math.log(K) / eta > 2 * printed
    # The first branch by itself: 6 log(K)/eta and 4 eta K n (...) together.
    for K, n in ((2, 100), (2, 10**4), (1000, 10**6)):
        noisy = K * n * (1 + 10 * math.log(K * n) ** 2)
        first = math.sqrt(math.log(K) / noisy)
        both = 6 * math.log(K) / first + 4 * first * noisy
        assert both > 31 * math.sqrt(K * n * math.log(K)) * math.log(K * n)


def test_printed_mixing_of_exp3_is_enough() -> None:
    """Asi 5: eta times an estimate stays above -1, which is all that the proof uses."""
    x = np.linspace(-1, 50, 100_001)
    assert (np.exp(-x) <= 1 - x + x**2 + 1e-15).all()  # however large x is above 0
    assert math.exp(5.0) > 1 + 5.0 + 25.0  # and not far below -1
    for noise in (0.01, 0.3, 1.0, 10.0):
        base = bl.policy("exp3", arms=5, horizon=10**5, loss_noise=noise, learning_rate_scale=0.2)
        eta, gamma = base.constants().eta, base.constants().gamma
        log = math.log(5 * 10**5)
        assert gamma == pytest.approx(4 * eta * noise * 5 * log)  # as printed
        least = -math.sqrt(10) * noise * log  # a loss of 0 with the worst noise of the proof
        assert eta * least / (gamma / 5) == pytest.approx(-math.sqrt(10) / 4)
    assert bl.policy("exp3", arms=5, horizon=10**5).constants().gamma == 0.0
    # What we had claimed is more than the printed gamma where there is little noise.
    assert 1 + math.sqrt(10) * 0.05 * log > 4 * 0.05 * log


def test_mixing_of_batched_exp4() -> None:
    """Asi 6: the gamma that balances gamma T against C log(1/delta) / gamma^2."""

    def best(log_one_over_delta: float) -> float:
        found = optimize.minimize_scalar(
            lambda x: 1e6 * math.exp(x) + log_one_over_delta * math.exp(-2 * x),
            bounds=(-20, 5),
            method="bounded",
            options={"xatol": 1e-10},
        )
        return math.exp(found.x)

    assert slope(best, 2.0, 16.0) == pytest.approx(1 / 3, abs=1e-5)  # printed: 0

    def regret(log: float, power: float) -> float:
        """Both terms at gamma = log^power, in units in which the balance is at log^(1/3)."""
        return log**power + log / log ** (2 * power)

    assert slope(lambda log: regret(log, 1 / 3), 1e3, 1e6) == pytest.approx(1 / 3, abs=1e-3)
    assert slope(lambda log: regret(log, 0.0), 1e3, 1e6) == pytest.approx(1.0, abs=1e-3)

    def proof(log: float, power: float) -> float:
        """gamma T and the noise with the printed eta and tau; T = 10^30, the rest 1."""
        eta, tau = log ** (1 / 6) / 1e10, log ** (1 / 3) * 1e10
        gamma = (eta * log ** (3 * power)) ** (1 / 3) / tau ** (2 / 3)
        return 1e30 * (gamma + 90 * eta * log / (gamma * tau) ** 2)

    assert slope(lambda log: proof(log, 1 / 3), 1e3, 1e6) == pytest.approx(1 / 6, abs=1e-3)
    assert slope(lambda log: proof(log, 0.0), 1e3, 1e6) == pytest.approx(5 / 6, abs=1e-3)


def test_second_term_of_batched_exp4_stands() -> None:
    """Asi 7: the second branch of gamma is at most 12 times the first where it matters."""
    for n, L, log_N, T, K, epsilon in (
        (50.0, 20.0, 3.0, 1e9, 100.0, 0.01),
        (1e4, 30.0, 8.0, 1e12, 5.0, 1e-6),
        (10.0, 10.0, 1.0, 1e4, 1000.0, 1e-3),
    ):
        eta = n ** (1 / 6) * (L * log_N) ** (1 / 3) / (T ** (1 / 3) * K**0.5 * epsilon ** (1 / 3))
        tau = n ** (1 / 3) * L ** (2 / 3) * T ** (1 / 3) / (epsilon ** (2 / 3) * log_N ** (1 / 3))
        first = (eta * n * K**2 * L**2 / (epsilon * tau) ** 2) ** (1 / 3)
        second = 12 * eta * K * math.sqrt(n) * L / (epsilon * tau)
        printed = math.sqrt(n) * L * log_N / epsilon
        assert (second / first) ** 3 == pytest.approx(12**3 * printed / T)  # without K
    # In units of the printed first term: 3 tau log(N)/eta, gamma T, eta T K and the noise.
    ratio = np.linspace(1, 12, 1000)  # of gamma and its first branch
    assert (3 + ratio + 1 + 90 / ratio**2).max() == 95


def test_head_start_in_lemma_5_1() -> None:
    """Asi 8: playing arm 1 up to tau + p/gamma costs tau/2 less than the proof counts."""
    T, tau, gamma, p = 1000, 100, 0.01, 4
    until = tau + int(p / gamma)
    switched = np.full((T, 2), 0.5)
    switched[:tau, 1], switched[tau:, 1] = 1.0, 0.0
    played = np.where(np.arange(T) < until, 0, 1)
    regret = switched[np.arange(T), played].sum() - switched.sum(axis=0).min()
    assert 2 * gamma * tau <= p <= gamma * (T - tau)
    assert regret == p / (2 * gamma) - tau / 2
    assert regret < p / (2 * gamma) - p / 2  # printed
    bound = bl.bounds.early_commitment(
        horizon=T, epsilon=1e-9, share=gamma, changed=p, switch=tau
    )  # a chance of 1/2 to miss the switch
    assert bound == pytest.approx(max(gamma * T / 4, (p / gamma - p) / 4 - tau / 2))
    noticed = np.where(np.arange(T) < tau, 0, 1)
    assert switched[np.arange(T), noticed].sum() - switched.sum(axis=0).min() == -tau / 2
    longest = p / (2 * gamma)
    assert (p / gamma - p) / 4 - longest / 2 < 0


def test_changed_rounds_of_lemma_5_1() -> None:
    """Asi 15: no fixed round, changed, stands for the round that the policy happens to try."""
    epsilon, q, n = 0.5, 0.1, 20  # arm 2 in one of n rounds, and perhaps once more at the end

    def second_pull(zeros: int) -> float:
        """Its chance if arm 2 loses 0 in so many of the n rounds, and 1 in the others."""
        return q * (1 + (math.exp(epsilon) - 1) * zeros / n)

    # Private: a run is the round of the first pull and whether there is a second one.
    assert (1 - q) / (1 - q * math.exp(epsilon)) < math.exp(epsilon)
    assert second_pull(n) > 1.5 * second_pull(1)  # all rounds against the one of S, p = 1
    assert second_pull(n) == pytest.approx(math.exp(epsilon * 1) * second_pull(0))


def test_term_dropped_for_exp3() -> None:
    """Asi 16: the sum is above what replaces it, and below with the true variance."""
    for noise in (0.1, 1.0, 10.0):
        for log in (math.log(3), 10.0, 30.0):
            x = noise * log  # in units of eta K T
            most = max(noise, noise**2) * log**2
            assert 8 * x + 2 * (1 + 10 * x**2) <= 2 * (1 + 14 * most)
            assert 8 * x + 2 * (1 + 2 * noise**2) <= 2 * (1 + 10 * most)
            if noise >= 1:
                assert 8 * x + 2 * (1 + 10 * x**2) > 2 * (1 + 10 * most)  # printed as equal or less


def test_advice_is_not_protected() -> None:
    """Asi 9: however private the choice of the expert, the action follows the advice."""
    for weights in ([0.5, 0.5], [0.9, 0.1]):
        before, after = np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[0.0, 1.0], [0.0, 1.0]])
        assert (weights @ before)[1] == 0 < (weights @ after)[1]  # no e^eps bounds this
    # Another round sees no more of it than one loss of the inner policy, in [0, 1] either way.


def test_constants_of_the_conversion() -> None:
    """Asi 10: sigma^2 = 6 (not 36) bounds the second moment, and 208 follows."""
    worst = 1 + 2 * 1.0**2  # loss 1 plus Lap(1)
    assert worst <= 2 + 4 * 1.0**2 == 6
    assert 60 * math.sqrt(6) * math.sqrt(2) == pytest.approx(207.8, abs=0.1)
    for epsilon in (1e-6, 1e-3, 1.0):  # from 1/T to 1
        K, T = 7, MILLION
        exact = 60 / epsilon * math.sqrt(6 * K * (epsilon * T + 1))
        assert exact <= 208 * math.sqrt(K * T / epsilon)


def test_rates_balance_with_their_roots() -> None:
    """Asi 11: eta balances log(K)/eta + 2 eta n K (...) only as a square root."""
    K, n, extra = 5, 10**5, 1 + 10 * math.log(5 * 10**5) ** 2

    def bound(eta: float) -> float:
        return math.log(K) / eta + 2 * eta * n * K * extra

    ratio = math.log(K) / (2 * n * K * extra)
    assert bound(math.sqrt(ratio)) == pytest.approx(2 * math.sqrt(2 * n * K * math.log(K) * extra))
    assert bound(ratio) > 1e3 * bound(math.sqrt(ratio))

    N, T, epsilon = 20, MILLION, 0.1

    def noisy(eta: float) -> float:
        return math.log(N) / eta + 3 * eta * T * K * (1 + 10 * (math.log(K * T) / epsilon) ** 2)

    policy = bl.policy("ldp-exp4", arms=K, experts=N, horizon=T, epsilon=epsilon)
    ours = policy.constants().learning_rate
    without = math.sqrt(math.log(N) / (3 * T * K * (1 + 10 * math.log(K * T) ** 2)))
    assert noisy(ours) == pytest.approx(2 * math.log(N) / ours)  # both terms alike
    assert noisy(without) > 4 * noisy(ours)


def test_noise_in_the_regret_of_exp4() -> None:
    """Asi 12: a squared draw is 2 lambda^2 on average, and less where no draw is very large."""
    scale, draws = 0.7, MILLION
    assert stats.laplace(scale=scale).var() == pytest.approx(2 * scale**2)
    most = math.sqrt(10) * scale * math.log(draws)  # the event of the proofs

    def square(x: float) -> float:
        return x * x * math.exp(-x / scale) / scale

    within = integrate.quad(square, 0, most)[0] / -math.expm1(-most / scale)
    assert within < 2 * scale**2
    assert 10 * scale**2 * math.log(draws) ** 2 > 900 * within  # printed
    # The bound of ldp-exp4 is least at a far larger learning rate than the printed one.
    common = {"arms": 5, "experts": 20, "horizon": MILLION, "epsilon": 1.0}
    bounds = {
        scale: bl.policy("ldp-exp4", learning_rate_scale=scale, **common).regret_bound(
            None, MILLION
        )
        for scale in (1.0, 10.0)
    }
    assert bounds[10.0] < bounds[1.0] / 3  # type: ignore[operator]

    def too_low(arms: int, horizon: int) -> float:
        """The best eta by the printed one, for log(N)/eta + eta K T (...) at epsilon = 1."""
        log = math.log(arms * horizon)
        return math.sqrt(3 * (1 + 10 * log**2) / (1 + 2 + 4 * log))

    assert too_low(2, 10**4) == pytest.approx(8.3, abs=0.05)
    assert too_low(5, 10**8) == pytest.approx(12.0, abs=0.05)
    batched = {"arms": 5, "experts": 20, "horizon": 10**9, "epsilon": 1.0, "delta": 1e-6}
    half, one, double = (
        bl.policy("dp-exp4", learning_rate_scale=scale, **batched).regret_bound(None, 10**9)
        for scale in (0.5, 1.0, 2.0)
    )
    assert one < min(half, double)  # type: ignore[type-var, operator]


def test_batch_of_the_conversion_is_rounded_up() -> None:
    """Asi 13: noise of scale 1/(tau eps) <= 1 needs tau >= 1/eps; one reward more is not asked."""
    for epsilon in (1.0, 0.6, 0.3, 1 / 49, 0.001):
        policy = bl.privatise(bl.policy("exp3", arms=2), epsilon=epsilon)
        tau = policy.batch_length
        assert tau * epsilon >= 1 - 1e-9
        assert (tau - 1) * epsilon < 1
    noise = 1 / (math.floor(1 / 0.6) * 0.6)  # rounded down
    assert noise == pytest.approx(1.67, abs=0.01)
    assert 1 + 2 * noise**2 > 6  # the second moment of a loss of 1 with this noise


def test_delta_near_one_in_batched_exp4() -> None:
    """Asi 14: the noise of a release vanishes with log(1/delta), faster than delta allows."""

    def needed(epsilon: float, delta: float, experts: int) -> float:
        """The delta of one Laplace release with the epsilon that the proof gives it."""
        each = epsilon / (3 * math.sqrt(experts * math.log(1 / delta)))
        return max(0.0, -math.expm1((epsilon - each) / 2))

    assert needed(1.0, 0.9999, 2) > 0.99998
    for delta in (1e-6, 0.01, 1 / math.e):
        assert needed(1.0, delta, 2) == 0.0
    common = {"arms": 2, "experts": 2, "horizon": MILLION, "epsilon": 1.0}
    with pytest.raises(ParameterError, match=r"delta = 0\.9999 is too large"):
        bl.policy("dp-exp4", delta=0.9999, **common)
    bl.policy("dp-exp4", delta=1 / math.e, **common)


# Wang, Zhu 2024


def test_edge_of_the_truncated_laplace_law() -> None:
    """Wang 1: F is 0 at the edge x0 - A and delta one step of 1/N inside it."""
    epsilon, delta, N = 1.0, 0.01, 10
    A = math.log1p(math.expm1(epsilon) / (2 * delta)) / (N * epsilon)

    def cdf(w: float) -> float:
        return float(TruncatedLaplaceLaw(0.0, 1 / N, epsilon, delta).cdf(w))

    assert cdf(-A) == pytest.approx(0, abs=1e-15)
    assert cdf(-A + 1 / N) == pytest.approx(delta)
    assert 1 - cdf(A - 1 / N) == pytest.approx(delta)  # no counterpart after a shift by 1/N
    for large in (0.5, 0.75, 0.95):  # A is below 1/N from 1/2 on: the strip has delta at most
        half_width = math.log1p(math.expm1(epsilon) / (2 * large)) / epsilon
        law = TruncatedLaplaceLaw(0.0, 1.0, epsilon, large)
        assert 1 - law.cdf(half_width - 1) <= large + 1e-12
    # For epsilon = 0 the two printed lines are one: 1/2 + N delta w on both sides.
    even = TruncatedLaplaceLaw(0.0, 1 / N, 0.0, delta)
    for w in (-3.0, 2.0):
        assert even.cdf(w) == pytest.approx(0.5 + N * delta * w)


def test_gdp_elim_needs_no_half_delta() -> None:
    """Wang 2: a release by the truncated Laplace law at delta is (eps, delta) for all events."""
    epsilon, delta = 1.0, 0.01

    def excess(parameter: float) -> float:
        """The mass that one law has above e^eps times the shifted one: delta over all events."""
        reach = math.log1p(math.expm1(epsilon) / (2 * parameter)) / epsilon
        x = np.linspace(-reach, reach + 1, 20_001)
        law = TruncatedLaplaceLaw(0.0, 1.0, epsilon, parameter)
        mass, shifted = np.diff(law.cdf(x)), np.diff(law.cdf(x - 1))
        return float(np.maximum(mass - math.exp(epsilon) * shifted, 0).sum())

    assert excess(delta) == pytest.approx(delta, rel=0.01)
    assert excess(delta / 2) == pytest.approx(delta / 2, rel=0.01)


def test_sample_size_of_dp_ftpl_new() -> None:
    """Wang 3: an arm is pulled while 2(...) >= gap, which ends with one log, not log log."""
    T, gap, epsilon = MILLION, 0.1, 0.01
    reach = math.log(T / 2) / epsilon  # delta = 0

    def twice(n: float) -> float:
        return 2 * (math.sqrt(math.log(T) / n) + reach / n)

    enough = max(16 * math.log(T) / gap**2, 4 / gap * reach)
    printed = max(16 * math.log(T) / gap**2, 4 / gap * math.log(math.log(T / 2)) / epsilon)
    assert twice(enough) <= gap < twice(printed)
    # "Only if 2(...) <= gap" would let the arm be pulled for ever: the left side falls with n.
    assert twice(10 * enough) < twice(enough)


def test_revision_rule_of_the_lower_bound() -> None:
    """Wang 4: the rule turns rewards of Instance 2 into those of Instance 1, not the reverse."""
    gap = 0.25
    low, high = 0.5 - gap, 0.5 + gap
    kept = 1 - 2 * gap / (0.5 + gap)
    assert high * kept == pytest.approx(low)
    assert low * kept < low < high
    # The reverse, one expected revision of n pulls at a time: a third of the zeros is left.
    assert (1 - high) / (1 - low) == pytest.approx(1 / 3)

    def steps(n: int) -> int:
        return math.ceil(math.log(3) / -math.log1p(-1 / n)) if n > 1 else n

    assert steps(1000) == 1099 > 1000 * (1 - kept)
    # 4/5 of n + 1 pulls, each 1/4 of regret, are more than the printed bound.
    for x in np.linspace(0.01, 300, 2000):  # L / epsilon
        n = max(n for n in range(int(x) + 2) if steps(n) <= x)
        assert 4 / 5 * (n + 1) * gap >= x / 16


def test_beta_index_proof_has_a_gap() -> None:
    """Wang 5: the proof drops a factor up to (1 + eps)^2; the claim itself holds by far."""
    delta = 0.01
    n = 1000 / 9  # scale of a and b; the condition is the one after (9)

    def conditions(epsilon: float, share: float, total: float) -> tuple[float, float]:
        """Both sides' ratio, as used in the last step and as needed before it."""
        a, b = share * total, (1 - share) * total
        log = math.log(math.e / (2 * math.pi * delta**2))
        used = epsilon**2 * a**2 * b**2 / (a + b) ** 3 / log
        needed = epsilon**2 * a**2 * b**2 / ((a + b) * (a + b + b * epsilon) ** 2) / log
        return used, needed

    used, needed = conditions(2.0, 0.1, n)
    assert used / needed == pytest.approx((1 + 2.0 * 0.9) ** 2)
    total = n / used  # where the last step is content
    assert conditions(2.0, 0.1, total)[0] == pytest.approx(1)
    assert conditions(2.0, 0.1, total)[1] < 0.13
    # Pinsker's inequality holds with 2 (p - q)^2, four times what the proof uses: shares stay in
    # [0.1, 0.9], so that the factor is made good up to (1 + 0.9 eps)^2 = 4.
    assert pytest.approx(1.11, abs=0.01) == (2 - 1) / 0.9
    for epsilon in (0.5, 1.0, 2.0, 5.0, 20.0):
        for log in (0.1, 1.0, 1.7, 3.0, 10.0, 100.0, 700.0):  # of 1/delta
            pulls = math.ceil(beta_threshold(epsilon, math.exp(-log)))
            assert log_of_delta(epsilon, pulls) < -log
    printed, absurd = 8000 / 81 * (1 + 400 * math.log(10) - math.log(2 * math.pi)) / 30**2, 1e-200
    assert math.ceil(printed) == 101
    assert log_of_delta(30.0, 101) == pytest.approx(-178.1 * math.log(10), abs=0.1)
    assert log_of_delta(30.0, math.ceil(beta_threshold(30.0, absurd))) < math.log(absurd)


def log_of_delta(epsilon: float, pulls: int) -> float:
    """Of the smallest delta of a Beta index: F - e^eps F' where the densities' ratio is e^eps.

    With the smallest count of successes, from which an index is the easiest to tell apart; by
    symmetry the other inequality is the worst at the largest.
    """
    shape = beta_shape(0.0, 1 / pulls)
    a, b = shape[0], shape[1] - 1
    x = a / (a + b * math.exp(epsilon))
    difference = stats.binom(a + b, x).logpmf(a)  # F - F'
    terms = (a + b + 1 + np.arange(500)) / (a + 2 + np.arange(500)) * x
    rest = x * b / (a + 1) * (1 + terms.cumprod().sum())  # F' / (F - F'), as a series in x
    return float(difference + math.log1p(-math.expm1(epsilon) * rest))


def test_trajectory_privacy_allows_twice_epsilon_in_a_decision() -> None:
    """Wang 6: a policy that is eps-private as a whole and nearly 2 eps in one decision."""
    epsilon, q = 1.0, 1e-4
    # The reward of round 1 decides the chances of arm 1 in round 2 (p) and, after it, in round 3.
    q_other = q * math.exp(2 * epsilon)
    p = 0.3
    p_other = p * math.exp(-epsilon) * (1 - q) / (1 - q_other)
    joint = {(1, 1): p * q, (1, 0): p * (1 - q), (0, 0): 1 - p}
    other = {(1, 1): p_other * q_other, (1, 0): p_other * (1 - q_other), (0, 0): 1 - p_other}
    whole = max(abs(math.log(joint[a] / other[a])) for a in joint)
    assert whole <= epsilon * 1.001
    assert math.log(q_other / q) > 1.99 * whole  # round 3, given round 2


def test_lower_bound_stands_with_epsilon() -> None:
    """Wang 7: revised the other way, convexity is on the right side, for every epsilon."""
    gap = 0.25
    q = 2 * gap / (0.5 + gap)
    low, high = 0.5 - gap, 0.5 + gap
    assert low + (1 - low) * q == pytest.approx(high)  # zeros of Instance 1 become ones
    for epsilon in (0.1, 1.0, 3.0, 10.0):
        for n in (1, 7, 100):
            average = (1 - q + q * math.exp(-epsilon)) ** n  # E e^(-eps M), M ~ Bin(n, q)
            assert average >= math.exp(-epsilon * q * n)
    # With L as printed this is a contradiction: 3/4 e^(-L) is above 8 c T^(a-1), as 1/5 is it.
    saved, constant = 1000.0, 1.0
    L = math.log(saved / (40 * constant))
    assert math.exp(-L) / 5 == pytest.approx(8 * constant / saved)
    found = bl.bounds.wang_zhu(horizon=MILLION, epsilon=3.0, exponent=0.5, constant=constant)
    assert found == pytest.approx(L / 48) == pytest.approx(0.0671, abs=1e-4)  # ours was 0.0105


def test_factor_in_the_regret_of_beta_indices() -> None:
    """Wang 8: mu'_1 - mu'_i falls short of 4/5 of the gap."""
    pulls = np.arange(97, 100_000)  # after the start phase

    def share(n: Any) -> Any:
        return n / (n + 2 * (n // 8 + 1))

    assert share(pulls).max() < 0.8
    assert share(pulls).min() == pytest.approx(0.788, abs=5e-4)
    assert (0.8 - share(pulls) <= 1.28 / pulls).all()

    def shrunk(mean: float, n: int) -> float:
        return 0.5 + (mean - 0.5) * share(n)

    gap = 0.1
    assert shrunk(0.9, 104) - shrunk(0.9 - gap, 104) < 0.788 * gap
    assert shrunk(1.0, 104) - shrunk(1.0 - 0.007, 99_999) < 0  # few pulls of the best arm


def test_leading_constant_of_gaussian_indices() -> None:
    """Wang 9: an index of variance 2/n is beyond sqrt(2 log T / n) far more often than 1/T."""
    n = 50
    index = stats.norm(0.0, math.sqrt(2 / n))
    for T in (1e3, 1e6, 1e9):
        assert index.sf(math.sqrt(2 * math.log(T) / n)) > 4 / T  # printed: at most 1/T
        assert index.sf(math.sqrt(4 * math.log(T) / n)) < 1 / T
    assert stats.norm.sf(math.sqrt(math.log(31))) < 1 / 31
    assert stats.norm.sf(math.sqrt(math.log(32))) > 1 / 32
    # So 3 log T / gap^2 pulls are not the end: the next one comes long before T rounds are over.
    T, gap = 1e9, 0.5
    pulls = 3 * math.log(T) / gap**2
    assert pulls > 2 * math.log(T) / (gap - 2 * 0.04) ** 2  # the printed term, lambda = 0.04
    chance = float(stats.norm.sf(gap * math.sqrt(pulls / 2)))
    assert T * chance > 10


def test_sum_over_pulls_of_the_best_arm() -> None:
    """Wang 10: a factor above 2/lambda is printed as 2, and a tail as a far thinner one."""
    for lam in (0.01, 0.1, 0.5):
        assert 1 / -math.expm1(-lam / 2) > 2 / lam >= 4
        n = math.ceil(32 / lam**2)
        missed = float(stats.norm.sf(lam / 2 / math.sqrt(2 / n)))  # mean just above mu_1 - lam/2
        assert math.exp(-n * lam**2 / 2) < missed < math.exp(-n * lam**2 / 16)
    assert 2 * math.log(2) == pytest.approx(1.39, abs=0.01)
    # Order 1/lam^2 in all.
    assert slope(lambda lam: best_arm_misses(lam, 1), 1e-4, 1e-2) == pytest.approx(-2, abs=0.01)


# Wu, Zhou, Tao, Wang 2023


def test_confidence_of_prae() -> None:
    """Wu 1: with delta = 1 / threshold the estimates that fail cost regret linear in T."""

    def lost(T: float, delta: float) -> float:
        return T * 5 * math.log2(T) * delta  # K log2 T estimates, each failure may cost T

    threshold = optimize.brentq(lambda n: n - 40 * math.log(4 * 20 * n), 10, 1e6)
    assert lost(1e8, 1 / 1e8) < 200
    assert lost(1e8, 1 / threshold) > 1e6


def test_folds_of_prae_central() -> None:
    """Wu 2: a batch of B gives two folds of B/2; the listing's noise is right for its own n."""
    B, M, epsilon = 64, 3.0, 0.5
    n = B // 2
    moved = 2 * M / n  # the mean of a fold, when one reward changes
    assert moved / (2 * M / (n * epsilon)) == pytest.approx(epsilon)  # as listed
    assert moved / (2 * M / (B * epsilon)) == pytest.approx(2 * epsilon)  # with B for n


def test_histogram_range_of_prae_central() -> None:
    """Wu 3: bins over [-D, D) miss a reward of D, and 99 % of a law whose mean is D."""
    r = math.sqrt(10)
    D = 4 * r

    def located(values: np.ndarray, chances: np.ndarray, low: float, bins: int) -> float:
        """The left end of the fullest bin, half-open as printed; the first if all are empty."""
        places = np.floor((values - low) / r).astype(int)
        inside = (places >= 0) & (places < bins)
        mass = np.bincount(places[inside], chances[inside], minlength=bins)
        return float(low + r * np.argmax(mass))

    always = np.array([D]), np.array([1.0])
    assert located(*always, -D, 8) == -D  # every bin is empty: noise decides
    assert abs(located(*always, -D - r, 10) - D) <= 2 * r
    values, chances = np.array([D + 0.1, D - 9.9]), np.array([0.99, 0.01])
    mean = float(values @ chances)
    assert mean == pytest.approx(D)
    assert chances @ (values - mean) ** 2 < 1
    assert abs(located(values, chances, -D, 8) - mean) > 2 * r  # too far for the second step
    assert abs(located(values, chances, -D - r, 10) - mean) <= 2 * r


@pytest.mark.parametrize("contamination", [0.01, 0.1])
def test_margin_of_prae_central(contamination: float) -> None:
    """Wu 4: the printed bin width leaves the proof a margin of 0.0013: it asks for millions."""

    def margin(outside: float) -> float:
        return (1 - outside) / 3 - outside

    iota = (1 - contamination) / (0.249 - contamination)
    assert margin((1 - contamination) / iota + contamination) == pytest.approx(0.0013, abs=1e-4)
    assert 8 / margin(0.249) ** 2 > 4e6
    wider = (contamination + 0.25) / 2
    assert margin(wider) > 50 * margin(0.249)


def test_horizon_within_the_first_phase_of_prae() -> None:
    """Wu 5: batches below the threshold can outlast the horizon."""
    horizon, threshold = 50, 64
    batches = [2**tau for tau in range(1, 7) if 2**tau < threshold]
    assert sum(batches) > horizon


@pytest.mark.parametrize(("k", "delta"), [(2, 1e-6), (3, 1e-12), (4, 1e-18)])
def test_theorem_6_1_needs_a_bounded_epsilon(k: int, delta: float) -> None:
    """Wu 6: with a large epsilon nothing is truncated, and then the bound is false.

    A law with E X^k = 1 that is v = (n / (2 delta))^(1/k) once in v^k times shows it among n
    rewards with chance above delta. The mean is then beyond sqrt(log(1/delta)/n) by any factor.
    """
    n = 1000
    v = (n / (2 * delta)) ** (1 / k)
    epsilon = 2 * v**k * math.log(1 / delta) / n
    assert (n * epsilon / math.log(1 / delta)) ** (1 / k) > v  # the printed level keeps the value
    assert -math.expm1(n * math.log1p(-(v**-k))) > delta
    error = v / n - v ** (1 - k)
    private = (math.log(1 / delta) / (n * epsilon)) ** (1 - 1 / k)
    assert error > 100 * (math.sqrt(math.log(1 / delta) / n) + private)
    policy = bl.policy(
        "prae-raw",
        arms=2,
        epsilon=epsilon,
        moment_order=k,
        horizon=MILLION,
        failure_probability=delta,
    )
    assert level_of(policy.constants(), n) < v / 100  # ours does not
    # With contamination Bernstein's M log(1/delta) / n is below alpha_1 M, whatever epsilon is.
    share, log = 0.05, math.log(1 / delta)
    assert log / math.ceil(log / share) <= share


# Bubeck, Cesa-Bianchi, Lugosi 2013


@pytest.mark.parametrize(
    ("width", "v", "published"),
    [
        (robust_ucb.truncated_mean_width, 0.5, lambda u, gap, a: 8 * (4 * u / gap) ** a),
        (robust_ucb.truncated_mean_width, 1.0, lambda u, gap, a: 8 * (4 * u / gap) ** a),
        (robust_ucb.median_of_means_width, 0.5, lambda u, gap, a: 32 * (12 * u / gap) ** a),
        (robust_ucb.catoni_width, 1.0, lambda u, gap, a: 8 * u / gap),
    ],
)
def test_regret_of_robust_ucb(width: Any, v: float, published: Any) -> None:
    """Bubeck 1: at the published number of pulls once the bonus is the gap, not twice."""
    log_T, u, gap = 100.0, 2.0, 0.3

    class Params:
        moment_order = 1 + v
        moment_bound = u

    def bonus(pulls: float) -> float:
        return float(width(Params, log_T) / pulls ** (v / (1 + v)))

    pulls = published(u, gap, 1 / v) * log_T / gap  # the regret bound over the gap
    assert bonus(pulls) == pytest.approx(gap, rel=1e-3)  # median of means adds 2 to 32 log T
    assert 2 * bonus(pulls * 2 ** ((1 + v) / v)) == pytest.approx(gap, rel=1e-3)
    # Failures of the two arms: t^-2 for each number of rewards below t. No constant bounds them.
    t = np.arange(2, MILLION)
    failures = 2 * (t - 1) / t.astype(float) ** 2
    assert 5 < failures.sum() < 2 * math.log(MILLION)


def test_median_of_few_means() -> None:
    """Bubeck 2: of two rewards it is a plain mean, which one of them ruins far too often."""
    T, M, gap = MILLION, 145.0, 20.0
    chance = 1 / (1 + M**2)
    law = np.array([-M, 1 / M]), np.array([chance, 1 - chance])
    assert law[0] @ law[1] == pytest.approx(0, abs=1e-12)
    assert law[0] ** 2 @ law[1] == pytest.approx(1)

    class Params:
        moment_order = 2.0
        moment_bound = 1.0

    log_T = math.log(T)
    bonus = robust_ucb.median_of_means_width(Params, log_T) / math.sqrt(2)
    assert (-M + 1 / M) / 2 + bonus < -gap  # below the other arm's mean, at every t <= T
    ruined = 2 * chance * (1 - chance)
    assert ruined == pytest.approx(9.5e-5, rel=0.01)
    assert ruined > 1e7 / T**2
    regret = ruined * gap * (T - 4)
    assert regret == pytest.approx(1900, rel=0.01)
    pulls = 12 / gap * 32 * log_T
    assert pulls + 5 * gap == pytest.approx(365, abs=1)
    assert 4 * (pulls + 12 / gap * 2) + gap * (1 + 2 * log_T) == pytest.approx(1640, abs=5)
    policy = bl.policy(
        "robust-ucb",
        arms=2,
        horizon=T,
        moment_order=2.0,
        moment_bound=1.0,
        estimator="median-of-means",
    )
    assert policy.proved_bound(bl.environment("bernoulli", means=[0.5, 0.4]), T) is None


# Public code


def test_one_draw_for_all_arms_cancels() -> None:
    """Code 1: a decision by comparison does not see noise that all arms share."""
    rng = np.random.default_rng(3)
    means = rng.random((1000, 5))
    shared = means + rng.laplace(size=(1000, 1)) * 10
    assert (shared.argmax(axis=1) == means.argmax(axis=1)).all()
    apart = means + rng.laplace(size=(1000, 5)) * 10
    assert np.mean(apart.argmax(axis=1) == means.argmax(axis=1)) < 0.5


def test_polya_noise_with_the_inverse_scale() -> None:
    """Code 2: summed over the users, noise of deviation 0.48 instead of 14.1."""
    p = math.exp(-1 / 10)  # eps = 1, g = 10

    def deviation(scale: float) -> float:
        one_sided = scale + scale**2  # Poisson of Gamma(1, scale): shapes 1/B add up to 1
        return math.sqrt(2 * one_sided)

    discrete_laplace = math.sqrt(2 * p) / (1 - p)
    assert deviation(p / (1 - p)) == pytest.approx(discrete_laplace) == pytest.approx(14.1, abs=0.1)
    assert deviation((1 - p) / p) == pytest.approx(0.482, abs=1e-3)
