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
# What a move adds to: the delta, the squared shift of a Gaussian, and, of its loss and of its
# declared loss e: e, e (exp(e) - 1), and e squared.
DELTAS, SHIFTS, LOSSES, DECLARED, INGREDIENTS = 0, 1, slice(2, 5), slice(5, 8), 8


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

    `weights` has the factor of each move, by default 1.
    """
    loss = composed(ingredients(moves, weights).sum(axis=0), claim, len(moves))
    if any(move.distance > 1.0 + ROUNDING for move in moves):
        return loss._replace(declared=math.inf)  # it bounds nothing beyond its sensitivity
    return loss


def ingredients(moves: Sequence[MovedInput], weights: Sequence[float] | None = None) -> np.ndarray:
    """What each move adds to `composed`: [moves, INGREDIENTS]."""
    times = np.ones(len(moves)) if weights is None else np.asarray(weights, float)
    table = np.zeros((len(moves), INGREDIENTS))
    table[:, DELTAS] = times * [move.loss.delta for move in moves]
    table[:, SHIFTS] = np.square(times * [move.loss.shift for move in moves])
    pure = times * [move.loss.epsilon for move in moves]
    full = times * [0.0 if move.loss.shift else move.terms.epsilon for move in moves]
    with np.errstate(over="ignore"):  # then the plain sum is less
        table[:, LOSSES] = np.stack([pure, pure * np.expm1(pure), pure**2], axis=1)
        table[:, DECLARED] = np.stack([full, full * np.expm1(full), full**2], axis=1)
    return table


def composed(sums: np.ndarray, claim: Guarantee, moves: int) -> ComposedLoss:
    """The loss of moves whose ingredients have these sums.

    Pure losses add up, or cost less by advanced composition. Several Gaussians are one whose shift
    is the root of the sum of squares. Deltas add up; the other two use the rest of the claimed
    delta.
    """
    delta, shift = float(sums[DELTAS]), math.sqrt(sums[SHIFTS])
    spare, total = claim.delta - delta, float(sums[LOSSES][0])
    declared = _pure_loss(sums[DECLARED], spare, claim.epsilon)
    if shift > 0.0:
        gaussian = gaussian_epsilon(shift, spare) if math.isfinite(shift) else math.inf
        return ComposedLoss(total + gaussian, claim.delta, declared, moves)
    epsilon = _pure_loss(sums[LOSSES], spare, claim.epsilon)
    return ComposedLoss(epsilon, claim.delta if epsilon < total else delta, declared, moves)


def _pure_loss(sums: np.ndarray, spare: float, claimed: float) -> float:
    """The sum or, if it exceeds the claim, advanced composition at delta `spare` if smaller."""
    total, mean, squares = sums.tolist()
    if spare <= 0 or total <= claimed:
        return float(total)
    return float(min(total, mean + math.sqrt(2 * math.log(1 / spare) * squares)))
