"""The loss of several moved mechanisms together."""

from __future__ import annotations

import math

import pytest

from balaclava.auditing.replay.composed_loss import compose
from balaclava.auditing.tape import MovedInput, Recorder, Replayer
from balaclava.errors import PrivacyError
from balaclava.privacy.accounting import gaussian_delta
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
