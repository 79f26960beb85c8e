"""The exact audit: closed forms, verdicts, and violators that it detects."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import pytest
from scipy import stats

import balaclava as bl
from balaclava.auditing.laws.exact_audit import audit_exactly, hockey_stick, sample_sizes
from balaclava.policies.bounded.dp_ftpl_gauss import DPFTPLGauss
from balaclava.policies.bounded.dp_ftpl_new import DPFTPLNew
from balaclava.privacy.guarantee import Guarantee
from balaclava.privacy.mechanisms.truncated_laplace import TruncatedLaplaceLaw


def gaussian_delta(shift, epsilon):
    """Balle and Wang 2018: the delta of N(0, 1) against N(shift, 1)."""
    below = stats.norm.cdf(shift / 2 - epsilon / shift)
    return below - math.exp(epsilon) * stats.norm.cdf(-shift / 2 - epsilon / shift)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("shift", [0.02, 0.25, 1.5])
def test_gaussian_divergence_is_the_closed_form(epsilon, shift):
    found = hockey_stick(stats.norm(0, 1), stats.norm(shift, 1), epsilon)
    expected = gaussian_delta(shift, epsilon)
    assert found.delta == pytest.approx(expected, rel=1e-3, abs=1e-25)
    assert found.half_lines == pytest.approx(found.delta, rel=1e-6, abs=1e-16)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.01), (0.0, 0.1), (0.1, 1e-8), (5.0, 0.3)])
@pytest.mark.parametrize("shift", [1.0, 0.5])
def test_truncated_laplace_divergence_is_exactly_delta(epsilon, delta, shift):
    one, other = (TruncatedLaplaceLaw(c, 1.0, epsilon, delta) for c in (0.0, shift))
    found = hockey_stick(one, other, epsilon)
    if shift == 1.0:
        assert found.delta == pytest.approx(delta, rel=1e-9)
        assert found.half_lines == pytest.approx(delta, rel=1e-9)
    else:
        assert 0 < found.delta < 0.9 * delta


def test_half_lines_are_not_all_events():
    """Uniform on [0, 1] against its two halves pushed outwards: a half-line detects half of it."""
    spread = stats.uniform(-0.25, 1.5)
    found = hockey_stick(stats.uniform(0, 1), spread, 0.0)
    assert found.delta == pytest.approx(1 / 3, rel=1e-6)
    assert found.half_lines == pytest.approx(1 / 6, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "given", "least", "most"),
    [
        ("dp-ftpl-gauss", {"epsilon": 1.0, "delta": 0.01}, 2.92e-6, 2.93e-6),
        ("dp-ftpl-gauss", {"epsilon": 0.0, "delta": 0.01}, 0.00999, 0.01),
        ("dp-ftpl-beta", {"epsilon": 1.0, "delta": 0.01}, 0.0, 1e-13),
        ("dp-ftpl-beta", {"epsilon": 5.0, "delta": 0.01}, 0.0, 1e-13),
        ("dp-ftpl-beta", {"epsilon": 0.0, "delta": 0.3}, 1e-3, 0.3),
        ("dp-ftpl-new", {"epsilon": 1.0, "delta": 0.01, "horizon": 10**6}, 0.00999999, 0.0100001),
        ("dp-ftpl-new", {"epsilon": 0.0, "delta": 0.001, "horizon": 10**6}, 0.000999, 0.0010001),
        ("dp-ftpl-new", {"epsilon": 0.3, "delta": 0.0, "horizon": 10**6}, 0.0, 0.0),
        ("dp-ftpl-new", {"epsilon": 1e-4, "delta": 1e-10, "horizon": 10**6}, 0.9e-10, 1.01e-10),
        ("dp-ftpl-new", {"epsilon": 500.0, "delta": 0.1, "horizon": 100}, 0.0, 0.1001),
    ],
)
def test_policies_keep_their_claim(name, given, least, most):
    audit = audit_exactly(bl.policy(name, arms=3, **given), dense=12)
    assert audit.verdict == "consistent"
    assert least <= audit.delta <= most
    assert audit.half_lines <= audit.delta * (1 + 1e-9)
    assert audit.first == bl.policy(name, arms=3, **given).start_phase
    assert audit.last == given.get("horizon", 10**6)
    assert str(audit).startswith("consistent: ")
    assert f"true delta {audit.delta:.3g} " in str(audit)


def test_sizes():
    policy = bl.policy("dp-ftpl-gauss", arms=2, epsilon=1.0, delta=0.01)
    assert sample_sizes(policy, 30, 100) == (list(range(8, 31)), 30)
    sizes, all_until = sample_sizes(policy, None, 100)
    assert all_until == 107
    assert sizes[:100] == list(range(8, 108))
    assert sizes[-1] == 10**6
    assert np.all(np.diff(sizes) > 0)
    assert sample_sizes(policy, 3, 100) == ([8], 8)  # the horizon ends in the start phase
    planned = bl.policy("dp-ftpl-new", arms=2, epsilon=1.0, horizon=50)
    assert sample_sizes(planned, None, 100) == (list(range(1, 51)), 50)


class HalfTheStart(DPFTPLGauss):
    """A start phase of half the length."""

    name = "half-the-start"

    @property
    def start_phase(self) -> int:
        return super().start_phase // 2


class HalfTheNoise(DPFTPLNew):
    """Half the noise."""

    name = "half-the-noise"
    examples: ClassVar = ({"delta": 0.01},)

    def index_law(self, pulls, total):
        law = super().index_law(pulls, total)
        return TruncatedLaplaceLaw(law.centre, law.sensitivity / 2, self.epsilon, self.delta)


class NoNoise(DPFTPLNew):
    """Almost no noise."""

    name = "no-noise"

    def index_law(self, pulls, total):
        return stats.norm(total / pulls, 1e-6 / pulls)


@pytest.mark.parametrize(
    ("policy", "delta"),
    [
        (HalfTheStart(arms=2, epsilon=0.0, delta=0.01), 0.01 * math.sqrt(2)),
        (HalfTheNoise(arms=2, epsilon=1.0, delta=0.01, horizon=1000), None),
        (HalfTheNoise(arms=2, epsilon=1.0, horizon=1000), None),
        (HalfTheNoise(arms=2, epsilon=0.0, delta=0.01, horizon=1000), 0.02),
        (NoNoise(arms=2, epsilon=1.0, delta=0.01, horizon=1000), 1.0),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_violators_are_caught(policy, delta):
    audit = audit_exactly(policy, dense=8)
    assert audit.verdict == "unproved"
    assert audit.half_lines > 1.3 * policy.delta
    if delta is not None:
        assert audit.delta == pytest.approx(delta, rel=2e-3)


def test_a_claim_of_half_the_epsilon_is_refuted():
    policy = bl.policy("dp-ftpl-new", arms=2, epsilon=1.0, delta=0.01, horizon=1000)
    assert audit_exactly(policy, dense=3).verdict == "consistent"
    for claim in (
        Guarantee(epsilon=0.9, delta=0.01, scope="decision"),
        Guarantee(epsilon=1.0, delta=0.0099, scope="decision"),
    ):
        assert audit_exactly(policy, claim, dense=3).verdict == "unproved"
    assert audit_exactly(policy, Guarantee(epsilon=1.1, delta=0.01, scope="decision"), dense=3)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("dp-se", {"epsilon": 1.0, "horizon": 100}),
        ("gdp-elim-new", {"epsilon": 1.0, "horizon": 100}),
        ("ucb1", {}),
        ("dp-ftpl-new", {"epsilon": 1e4, "horizon": 100}),  # probabilities vanish in floats
    ],
)
def test_does_not_apply(name, given):
    assert audit_exactly(bl.policy(name, arms=2, **given)) is None


@pytest.mark.parametrize("epsilon", [0.0, 0.2, 1.0])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (stats.expon(0.0, 1.0), stats.expon(0.0, 2.0)),
        (stats.expon(0.0, 2.0), stats.expon(0.0, 1.0)),
        (stats.gamma(3.0), stats.gamma(3.0, 0.5)),
        (stats.beta(2.0, 8.0), stats.beta(3.0, 7.0)),
        (stats.norm(0.0, 1.0), stats.norm(0.3, 1.7)),
    ],
)
def test_the_divergence_of_lopsided_laws_is_their_integral(one, other, epsilon):
    """By the densities on a fine grid; half-lines by the distribution functions on it."""
    x = np.linspace(-12.0, 25.0, 400_001)
    p, q, weight = one.pdf(x), other.pdf(x), math.exp(epsilon)
    step = x[1] - x[0]
    delta = max(np.maximum(a - weight * b, 0.0).sum() * step for a, b in ((p, q), (q, p)))
    tails = [(one.cdf(x), other.cdf(x)), (one.sf(x), other.sf(x))]
    half = max((s - weight * t).max() for a, b in tails for s, t in ((a, b), (b, a)))
    found = hockey_stick(one, other, epsilon)
    assert found.delta == pytest.approx(delta, rel=2e-3, abs=1e-4)
    assert found.half_lines == pytest.approx(max(half, 0.0), rel=2e-3, abs=1e-5)
