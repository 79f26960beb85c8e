"""What moved mechanisms cost together: pure arithmetic of privacy losses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from balaclava._core.number_format import rounded_up
from balaclava.auditing.tape import MovedInput
from balaclava.privacy.accounting import gaussian_epsilon
from balaclava.privacy.guarantee import Guarantee
from balaclava.privacy.mechanisms.base import ROUNDING

_TOLERANCE = 1e-9  # of floating-point sums


class ComposedLoss(NamedTuple):
    """The loss of one neighbour, and beside it what was declared for the mechanisms it moved.

    >>> str(Charge(epsilon=2.0, declared=2.0, moves=1))
    '1 mechanism moved, which costs epsilon 2 (declared: 2)'
    """

    epsilon: float = 0.0
    delta: float = 0.0
    declared: float = 0.0  # the declared epsilons together
    moves: int = 0

    def within(self, claim: Guarantee) -> bool:
        """Whether the claim covers it; the spare step of exact noise covers the rounding."""
        slack = 1 + _TOLERANCE + ROUNDING
        enough = self.delta <= claim.delta * slack or self.delta <= 1e-300
        return self.epsilon <= claim.epsilon * slack and enough

    def declared_within(self, claim: Guarantee) -> bool:
        """Whether the claim would cover moves as far as was declared."""
        return self.declared <= claim.epsilon * (1 + _TOLERANCE + ROUNDING)

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
    """What the moved mechanisms cost at the claimed delta.

    Pure losses add up, or come to less by advanced composition; Gaussians are one whose shift is
    the root of the sum of squares; deltas add up, and what they leave of the claimed delta pays
    for the rest. `weights` says how often each move counts, once by default.
    """
    times = np.ones(len(moves)) if weights is None else np.asarray(weights, float)
    delta = float(sum(n * move.loss.delta for n, move in zip(times, moves, strict=True)))
    shifts = [n * move.loss.shift for n, move in zip(times, moves, strict=True)]
    shift = math.sqrt(sum(each**2 for each in shifts))
    pure = times * np.array([move.loss.epsilon for move in moves])
    full = times * np.array([0.0 if move.loss.shift else move.terms.epsilon for move in moves])
    spare = claim.delta - delta
    declared = _pure_loss(full, spare, claim.epsilon)
    if any(move.share > 1.0 + ROUNDING for move in moves):
        declared = math.inf  # what was declared bounds nothing
    if shift > 0.0:
        gaussian = gaussian_epsilon(shift, spare) if math.isfinite(shift) else math.inf
        return ComposedLoss(float(pure.sum()) + gaussian, claim.delta, declared, len(moves))
    epsilon = _pure_loss(pure, spare, claim.epsilon)
    return ComposedLoss(
        epsilon, claim.delta if epsilon < float(pure.sum()) else delta, declared, len(moves)
    )


def _pure_loss(losses: np.ndarray, spare: float, claimed: float) -> float:
    """The sum, or what advanced composition makes of it with a delta to spare, if it must."""
    total = float(losses.sum())
    if spare <= 0 or not claimed < total < 1e3:
        return total
    mean = float((losses * np.expm1(losses)).sum())
    return min(total, mean + math.sqrt(2 * math.log(1 / spare) * float((losses**2).sum())))
