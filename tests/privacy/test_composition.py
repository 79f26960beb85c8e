"""Composition: all accountants agree, and defects of one are caught."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest

from balaclava.errors import MissingPartError, ParameterError, PrivacyError
from balaclava.privacy import composition
from balaclava.privacy.accounting import (
    advanced_epsilon,
    gaussian_delta,
    gaussian_epsilon,
    optimal_epsilon,
    zcdp_to_approx_dp,
)
from balaclava.privacy.composition import (
    AnyMechanism,
    Bound,
    GaussianNoise,
    LaplaceNoise,
    RandomizedResponse,
    compose,
    pld_epsilon,
    reconcile,
)
from balaclava.privacy.mechanisms.base import scipy_law
from balaclava.privacy.mechanisms.perturbed_index import BetaLaw


@pytest.mark.parametrize("n", [1, 2, 30, 3000])
@pytest.mark.parametrize("epsilon", [1e-6, 0.01, 0.5, 5.0])
@pytest.mark.parametrize("delta", [1e-8, 1e-3])
def test_accountants_agree_for_any_mechanism(epsilon: float, n: int, delta: float) -> None:
    for law in (AnyMechanism(epsilon), AnyMechanism(epsilon, delta / (2 * n))):
        composed = compose(law, n, delta)
        assert composed.best.method == "optimal composition"
        assert composed.epsilon("PLD") == pytest.approx(composed.best.epsilon, rel=1e-3)
        for method in ("basic", "advanced", "RDP"):
            assert composed.epsilon(method) >= composed.best.epsilon
    bit = compose(RandomizedResponse(epsilon), n, delta)
    assert bit.bounds == compose(AnyMechanism(epsilon), n, delta).bounds


@pytest.mark.parametrize("n", [1, 2, 30, 3000])
@pytest.mark.parametrize("shift", [1e-3, 0.1, 1.0])
def test_accountants_agree_for_gaussian_noise(shift: float, n: int) -> None:
    composed = compose(GaussianNoise(shift), n, 1e-6)
    assert composed.best.method == "analytic Gaussian"
    assert composed.epsilon("PLD") == pytest.approx(composed.best.epsilon, rel=1e-3)
    for method in ("basic", "advanced", "RDP", "zCDP"):
        assert composed.epsilon(method) >= composed.best.epsilon


def laplace_delta(epsilon: float, n: int, target: float, cells: int, up: bool) -> float:
    """delta of n Laplace releases: the losses rounded up or down onto a grid and convolved."""
    # Loss epsilon with probability 1/2, -epsilon with e^-epsilon / 2, between with the density
    # e^((loss - epsilon)/2) / 4: all from the law of the output, 0 or beyond 1 or between.
    h = 2 * epsilon / cells
    edges = -epsilon + h * np.arange(cells + 1)
    between = np.diff(np.exp((edges - epsilon) / 2) / 2)
    one = np.zeros(cells + 1)
    one[1 if up else 0 : cells + (1 if up else 0)] = between
    one[0] += math.exp(-epsilon) / 2
    one[-1] += 0.5
    many = np.ones(1)
    for _ in range(n):
        many = np.convolve(many, one)
    losses = -n * epsilon + h * np.arange(len(many))
    above = losses > target
    return float(np.sum(many[above] * -np.expm1(target - losses[above])))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize("delta", [1e-4, 0.02])
def test_laplace_is_the_convolution(epsilon: float, n: int, delta: float) -> None:
    composed = compose(LaplaceNoise(epsilon), n, delta)
    found = composed.epsilon("PLD")
    cells = 2000 // n
    # Rounded down the losses promise too much, rounded up too little; delta lies between.
    assert laplace_delta(epsilon, n, found * 0.99, cells, up=True) > delta
    assert laplace_delta(epsilon, n, found + 0.001 * epsilon, cells, up=False) <= delta
    assert composed.epsilon("output cut in two") <= found * 1.001
    if n == 1:
        assert composed.best.method == "Laplace"


def test_laplace_is_less_than_the_worst() -> None:
    composed = compose(LaplaceNoise(0.5), 100, 1e-6)
    assert composed.best.method == "PLD"
    assert composed.best.epsilon < 0.95 * composed.epsilon("optimal composition")


def test_many_laplace_releases_of_a_tiny_epsilon_meet_both_closed_forms() -> None:
    composed = compose(LaplaceNoise(1e-4), 10_000, 1e-6)
    low, best = composed.epsilon("output cut in two"), composed.best.epsilon
    assert low <= best <= low * 1.0001


def test_a_pld_accountant_that_forgets_the_count_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    def forgetful(law: AnyMechanism, decisions: int, delta: float) -> float:
        noise = 2 / (1 + math.exp(law.epsilon))
        event = dp_accounting.RandomizedResponseDpEvent(noise, 2)
        accountant = PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE)
        return float(accountant.compose(event, decisions).get_epsilon(delta))

    law = RandomizedResponse(0.7654321)
    assert forgetful(law, 50, 1e-6) == pytest.approx(forgetful(law, 1, 1e-6))  # the defect
    monkeypatch.setattr(composition, "pld_epsilon", forgetful)
    with pytest.raises(PrivacyError, match="disagree: PLD"):
        compose(law, 50, 1e-6)


def test_gaussian_neighbours_that_differ_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    def replacing(law: GaussianNoise, decisions: int, delta: float) -> float:
        accountant = PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE)
        event = dp_accounting.GaussianDpEvent(1 / law.shift)
        return float(accountant.compose(event, decisions).get_epsilon(delta))

    law = GaussianNoise(0.4321)
    assert replacing(law, 4, 1e-6) == pytest.approx(  # the defect: twice the sensitivity
        gaussian_epsilon(2 * 2 * law.shift, 1e-6), rel=1e-3
    )
    monkeypatch.setattr(composition, "pld_epsilon", replacing)
    with pytest.raises(PrivacyError, match="disagree"):
        compose(law, 4, 1e-6)


@pytest.mark.parametrize("wrong", ["rdp_epsilon", "pld_epsilon"])
@pytest.mark.parametrize("law", [AnyMechanism(0.31), LaplaceNoise(0.31), GaussianNoise(0.31)])
def test_an_accountant_of_half_the_truth_is_caught(
    wrong: str, law: composition.Law, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = getattr(composition, wrong)
    monkeypatch.setattr(composition, wrong, lambda *arguments: 0.5 * right(*arguments))
    with pytest.raises(PrivacyError, match="disagree"):
        compose(law, 77, 1e-6)


def test_reconcile() -> None:
    reconcile([Bound("a", 1.0, "exact"), Bound("b", 1.009, "numerical"), Bound("c", 9.0, "upper")])
    reconcile([Bound("a", 1.0, "upper"), Bound("b", 0.1, "lower")])
    for contradiction in (
        [Bound("a", 1.0, "exact"), Bound("b", 1.02, "numerical")],
        [Bound("a", 1.0, "exact"), Bound("b", 0.98, "upper")],
        [Bound("a", 1.0, "upper"), Bound("b", 1.02, "lower")],
        [Bound("a", 1.0, "numerical"), Bound("b", 1.02, "lower")],
    ):
        with pytest.raises(PrivacyError, match="disagree"):
            reconcile(contradiction)
    with pytest.raises(PrivacyError, match="disagree"):
        reconcile([Bound("a", 0.0, "exact"), Bound("b", 0.002, "numerical")], scale=0.1)
    reconcile([Bound("a", 0.0, "exact"), Bound("b", 0.0005, "numerical")], scale=0.1)


def test_a_million_decisions() -> None:
    for law in (AnyMechanism(0.01), AnyMechanism(50.0), AnyMechanism(1e-6), GaussianNoise(0.001)):
        composed = compose(law, 10**6, 1e-6)
        assert composed.epsilon("PLD") == pytest.approx(composed.best.epsilon, rel=0.01)


def test_what_cannot_be_composed() -> None:
    with pytest.raises(PrivacyError, match=r"delta above 0\.0952"):
        compose(AnyMechanism(1.0, 1e-3), 100, 1e-6)
    with pytest.raises(PrivacyError, match="delta"):
        compose(GaussianNoise(1.0), 100, 0.0)
    assert compose(LaplaceNoise(0.5), 4, 0.0).best.epsilon == pytest.approx(2.0)
    compose(AnyMechanism(1.0), 1, 0.1)
    for n in (0, -1, 1.5, True, math.nan, math.inf, "3", None, 10**400, 10**10):
        with pytest.raises(ParameterError, match="whole number"):
            compose(AnyMechanism(1.0), n, 0.1)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf, "1", None, True])
def test_bad_laws(value: float) -> None:
    for law in (AnyMechanism, RandomizedResponse, LaplaceNoise, GaussianNoise):
        with pytest.raises(ParameterError, match="not allowed"):
            law(value)


def test_zero_laws() -> None:
    for law in (AnyMechanism, RandomizedResponse, LaplaceNoise):
        with pytest.raises(ParameterError, match="epsilon = 0 with delta = 0"):
            law(0.0)
    with pytest.raises(ParameterError, match="shift"):
        GaussianNoise(0.0)
    with pytest.raises(ParameterError, match="RandomizedResponse has delta = 0"):
        RandomizedResponse(1.0, 0.1)
    assert compose(AnyMechanism(0.0, 1e-3), 10, 0.01).best.epsilon == 0


def test_composition_prints_every_bound() -> None:
    text = str(compose(AnyMechanism(0.1), 1000, 1e-6))
    assert "19.3447  exact  <- best" in text
    assert all(method in text for method in ("basic", "advanced", "RDP", "PLD"))
    assert compose(AnyMechanism(0.1), 1000, 0.0).epsilon("RDP") == math.inf
    assert pld_epsilon(AnyMechanism(800.0), 2, 0.1) == math.inf


def test_heavy_packages_are_loaded_late() -> None:
    code = (
        "import sys, balaclava.privacy.guarantee, balaclava.privacy.composition; "
        "sys.exit(bool({'scipy', 'dp_accounting'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_basic_and_advanced_composition_split_delta() -> None:
    n, delta, law = 50, 1e-4, GaussianNoise(0.1)
    composed = compose(law, n, delta)
    assert composed.epsilon("basic") == pytest.approx(n * gaussian_epsilon(0.1, delta / n))
    each = gaussian_epsilon(0.1, delta / (2 * n))
    assert composed.epsilon("advanced") == pytest.approx(advanced_epsilon(each, n, delta / 2))
    lossy = compose(AnyMechanism(0.1, 1e-6), n, delta)
    assert lossy.epsilon("basic") == pytest.approx(0.1 * n)
    assert lossy.epsilon("advanced") == pytest.approx(advanced_epsilon(0.1, n, delta - n * 1e-6))
    assert compose(AnyMechanism(0.1, 1e-6), n, 50e-6).epsilon("basic") == pytest.approx(0.1 * n)
    assert compose(AnyMechanism(0.1, 1e-6), n, 49.999e-6).epsilon("basic") == math.inf
    assert composed.epsilon("zCDP") == zcdp_to_approx_dp(0.1**2 * n / 2, delta)


def test_a_delta_that_fourier_transforms_do_not_resolve_has_no_pld() -> None:
    for law, n, delta, resolved in (
        (AnyMechanism(0.1), 10, 1e-10, True),
        (AnyMechanism(0.1), 10, 0.99e-10, False),
        (AnyMechanism(0.1), 10_000, 0.99e-9, False),
        (AnyMechanism(0.1), 10_000, 1.01e-9, True),
        (LaplaceNoise(0.99e-3), 10, 1e-4, False),
        (LaplaceNoise(1e-3), 10, 1e-4, True),
        (GaussianNoise(99.0), 1, 1e-4, True),
        (GaussianNoise(51.0), 4, 1e-4, False),
    ):
        assert math.isfinite(compose(law, n, delta).epsilon("PLD")) is resolved, (law, n)


@pytest.mark.parametrize("epsilon", [1e-4, 0.99e-3, 1e-3, 0.1])
@pytest.mark.parametrize("kind", [AnyMechanism, LaplaceNoise])
def test_rdp_of_many_small_losses_is_that_of_a_gaussian(
    kind: type[AnyMechanism], epsilon: float
) -> None:
    exact = gaussian_epsilon(2.0, 1e-5)  # of the shift epsilon sqrt(n)
    found = composition.rdp_epsilon(kind(epsilon), round(4 / epsilon**2), 1e-5)
    assert 0.99 * exact <= found <= 1.1 * exact


def test_one_laplace_release_has_its_closed_form() -> None:
    for epsilon, delta in ((0.5, 0.01), (2.0, 1e-3), (0.1, 0.1)):
        composed = compose(LaplaceNoise(epsilon), 1, delta)
        assert composed.epsilon("Laplace") == max(epsilon + 2 * math.log1p(-delta), 0.0)
        cut = math.log(2 * math.exp(epsilon / 2) - 1)
        assert composed.epsilon("output cut in two") == pytest.approx(
            optimal_epsilon(cut, 0.0, 1, delta)
        )
    assert compose(LaplaceNoise(0.5), 2, 0.01).epsilon("Laplace") == math.inf


@pytest.mark.parametrize("missing", ["dp_accounting", "scipy"])
def test_a_missing_package_is_named_with_its_extra(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    calls = {
        "dp_accounting": [lambda: composition.rdp_epsilon(AnyMechanism(0.1), 2, 0.1)],
        "scipy": [
            lambda: gaussian_epsilon(1.0, 0.1),
            lambda: gaussian_delta(1.0, 0.1),
            lambda: optimal_epsilon(0.1, 0.0, 2, 0.1),
            lambda: scipy_law("norm"),
            lambda: BetaLaw(1.0, 2.0).cdf(0.5),
        ],
    }
    for call in calls[missing]:
        with pytest.raises(MissingPartError, match="which is not installed; install it with"):
            call()
