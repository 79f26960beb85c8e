"""The loss of several moved mechanisms together."""

from __future__ import annotations

import math

import pytest

from balaclava.auditing.replay.composed_loss import ComposedLoss, compose
from balaclava.auditing.tape import MovedInput, Recorder, Replayer
from balaclava.errors import PrivacyError
from balaclava.privacy.accounting import gaussian_delta, gaussian_epsilon
from balaclava.privacy.guarantee import Guarantee
from balaclava.privacy.mechanisms.base import Loss, Terms
from balaclava.privacy.mechanisms.laplace import laplace_release


def move(loss, epsilon=1.0, distance=1.0):
    return MovedInput("a mechanism", Terms(0.0, 1.0, epsilon, 0.0), loss, distance=distance)


def test_a_move_costs_its_loss():
    claim = Guarantee(epsilon=1.0)
    half = compose([move(Loss(0.5), distance=0.5)], claim)
    assert (half.epsilon, half.declared, half.within(claim)) == (0.5, 1.0, True)
    both = compose([move(Loss(0.5)), move(Loss(0.6))], claim)
    assert both.epsilon == pytest.approx(1.1)
    assert not both.within(claim)
    assert not compose([move(Loss(0.5), distance=2.0)], claim).declared_within(claim)
    assert compose([move(Loss(0.5))], claim, [2.0]).epsilon == 1.0


def test_gaussians_are_composed_by_their_shifts():
    """Four shifts of 0.1 are one of 0.2, not four epsilons."""
    claim = Guarantee(epsilon=1.0, delta=gaussian_delta(0.2, 1.0) * 1.001)
    moves = [move(Loss(shift=0.1)) for _ in range(4)]
    assert compose(moves, claim).epsilon == pytest.approx(1.0, rel=1e-3)
    assert compose(moves, claim).within(claim)
    assert not compose([*moves, move(Loss(shift=0.1))], claim).within(claim)
    assert not compose(moves, Guarantee(epsilon=1.0)).within(Guarantee(epsilon=1.0))


def test_an_infinite_input_costs_everything_and_nan_is_refused_as_by_an_agent():
    recorder = Recorder(0)
    laplace_release(recorder, 1.0, 1.0, 1.0)
    replayer = Replayer(recorder.tape, 0)
    with pytest.raises(PrivacyError, match="NaN"):
        laplace_release(Replayer(recorder.tape, 0), math.nan, 1.0, 1.0)
    laplace_release(replayer, math.inf, 1.0, 1.0)
    assert compose(replayer.moves, Guarantee(epsilon=1e6)).epsilon == math.inf


def test_many_small_losses_cost_less_by_advanced_composition():
    """sqrt(2 log(1/spare) sum of squares) + sum of e (exp(e) - 1), where the sum exceeds it."""
    losses, claim = [0.1] * 100 + [0.2] * 10, Guarantee(epsilon=5.0, delta=1e-3)
    moves = [move(Loss(each, 1e-6), epsilon=each) for each in losses]
    spare = 1e-3 - 110e-6
    mean = sum(each * math.expm1(each) for each in losses)
    expected = mean + math.sqrt(2 * math.log(1 / spare) * sum(each**2 for each in losses))
    found = compose(moves, claim)
    assert found.epsilon == found.declared == pytest.approx(expected)
    assert (found.delta, found.moves) == (1e-3, 110)
    assert found.within(claim) is (expected <= 5.0)
    plain = compose(moves, Guarantee(epsilon=13.0, delta=1e-3))  # the sum is within the claim
    assert (plain.epsilon, plain.delta) == (pytest.approx(12.0), pytest.approx(110e-6))
    assert compose(moves, Guarantee(epsilon=5.0, delta=110e-6)).epsilon == pytest.approx(12.0)
    large = compose([move(Loss(100.0), epsilon=100.0)] * 10, claim)
    assert large.epsilon == 1000.0
    weighted = compose(moves[:1], claim, [120.0])
    assert (weighted.epsilon, weighted.delta) == (pytest.approx(12.0), pytest.approx(120e-6))


def test_gaussian_and_pure_losses_add_up():
    claim = Guarantee(epsilon=2.0, delta=1e-4)
    found = compose([move(Loss(0.5, 1e-5)), move(Loss(shift=0.3))], claim, [1.0, 2.0])
    assert found.epsilon == pytest.approx(0.5 + gaussian_epsilon(0.6, 1e-4 - 1e-5))
    assert (found.delta, found.declared, found.moves) == (1e-4, 1.0, 2)
    assert compose([move(Loss(shift=math.inf))], claim).epsilon == math.inf
    assert compose([], claim) == (0.0, 0.0, 0.0, 0)


def test_a_claim_covers_what_rounding_adds():
    claim = Guarantee(epsilon=1.0, delta=1e-3)
    slack = 2.0**-20
    for factor, covered in ((1 + 0.9 * slack, True), (1 + 1.1 * slack, False)):
        assert ComposedLoss(epsilon=factor).within(claim) is covered
        assert ComposedLoss(delta=1e-3 * factor).within(claim) is covered
        assert ComposedLoss(declared=factor).declared_within(claim) is covered
        beyond = compose([move(Loss(0.5), distance=factor)], claim)
        assert math.isfinite(beyond.declared) is covered
    pure = Guarantee(epsilon=1.0)
    assert ComposedLoss(delta=1e-301).within(pure)
    assert not ComposedLoss(delta=1e-299).within(pure)


def test_the_loss_in_words():
    assert str(ComposedLoss(0.5, 1e-3, 1.0, 2)) == (
        "2 mechanisms moved, which costs epsilon 0.5 and delta 0.001 (declared: 1)"
    )
    assert "one moved by more than its sensitivity" in str(ComposedLoss(0.5, declared=math.inf))
