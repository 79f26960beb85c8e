"""The privacy loss of several moved mechanisms together."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from balaclava._core.number_format import rounded_up
from balaclava.auditing.tape import MovedInput
from balaclava.privacy.accounting import gaussian_epsilon
from balaclava.privacy.guarantee import Guarantee
from balaclava.privacy.mechanisms.base import ROUNDING

_SUM_TOLERANCE = 1e-9  # relative: the rounding of sums of losses
_NEGLIGIBLE_DELTA = 1e-300  # underflow of a product of floats
_LARGEST_COMPOSED = 1e3  # epsilon, above which advanced composition gains nothing


class ComposedLoss(NamedTuple):
    """The loss between two neighbours, and the declared losses of the moved mechanisms.

    >>> str(ComposedLoss(epsilon=2.0, declared=2.0, moves=1))
    '1 mechanism moved, which costs epsilon 2 (declared: 2)'
    """

    epsilon: float = 0.0
    delta: float = 0.0
    declared: float = 0.0  # the sum of the declared epsilons
    moves: int = 0

    def within(self, claim: Guarantee) -> bool:
        """Whether the claim covers it; the spare step of exact noise covers the rounding."""
        slack = 1 + _SUM_TOLERANCE + ROUNDING
        enough = self.delta <= claim.delta * slack or self.delta <= _NEGLIGIBLE_DELTA
        return self.epsilon <= claim.epsilon * slack and enough

    def declared_within(self, claim: Guarantee) -> bool:
        """Whether the claim covers moves as large as the declared sensitivities."""
        return self.declared <= claim.epsilon * (1 + _SUM_TOLERANCE + ROUNDING)

    def __str__(self) -> str:
        delta = f" and delta {rounded_up(self.delta, '.3g')}" if self.delta else ""
        declared = f"declared: {rounded_up(self.declared, '.4g')}"
        if math.isinf(self.declared):
            declared = "one moved by more than its sensitivity"
        moved = "1 mechanism" if self.moves == 1 else f"{self.moves} mechanisms"
        return (
            f"{moved} moved, which costs epsilon "
            f"{rounded_up(self.epsilon, '.4g')}{delta} ({declared})"
        )


def compose(
    moves: Sequence[MovedInput], claim: Guarantee, weights: Sequence[float] | None = None
) -> ComposedLoss:
    """The loss of the moved mechanisms at the claimed delta.

    Pure losses add up, or cost less by advanced composition. Several Gaussians are one whose shift
    is the root of the sum of squares. Deltas add up; the other two use the rest of the claimed
    delta. `weights` has the factor of each move, by default 1.
    """
    times = np.ones(len(moves)) if weights is None else np.asarray(weights, float)
    delta = float(sum(n * move.loss.delta for n, move in zip(times, moves, strict=True)))
    shifts = [n * move.loss.shift for n, move in zip(times, moves, strict=True)]
    shift = math.sqrt(sum(each**2 for each in shifts))
    pure = times * np.array([move.loss.epsilon for move in moves])
    full = times * np.array([0.0 if move.loss.shift else move.terms.epsilon for move in moves])
    spare = claim.delta - delta
    declared = _pure_loss(full, spare, claim.epsilon)
    if any(move.distance > 1.0 + ROUNDING for move in moves):
        declared = math.inf  # a declared loss bounds nothing beyond its sensitivity
    if shift > 0.0:
        gaussian = gaussian_epsilon(shift, spare) if math.isfinite(shift) else math.inf
        return ComposedLoss(float(pure.sum()) + gaussian, claim.delta, declared, len(moves))
    epsilon = _pure_loss(pure, spare, claim.epsilon)
    advanced = epsilon < float(pure.sum())
    return ComposedLoss(epsilon, claim.delta if advanced else delta, declared, len(moves))


def _pure_loss(losses: np.ndarray, spare: float, claimed: float) -> float:
    """The sum or, if it exceeds the claim, advanced composition at delta `spare` if smaller."""
    total = float(losses.sum())
    if spare <= 0 or not claimed < total < _LARGEST_COMPOSED:
        return total
    mean = float((losses * np.expm1(losses)).sum())
    return min(total, mean + math.sqrt(2 * math.log(1 / spare) * float((losses**2).sum())))
