"""Whether the noise of an array keeps its declared loss in the declared norm."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from balaclava.privacy.mechanisms.base import Mechanism, Terms

_MOST_SPREAD = 8  # parts over which a move is spread
_CELLS = 4_000  # of a part's law; a guess
_LOSS_STEPS = 2_000  # per epsilon, to which losses are rounded down


def spread_move(mechanism: Mechanism, terms: Terms, parts: int) -> float:
    """How far each of some parts moves if together they move by the sensitivity."""
    return float(terms.sensitivity * parts ** (-1.0 / mechanism.norm))


def spread_delta(law: Any, move: float, parts: int, epsilon: float) -> float:
    """Delta at epsilon if each of some parts with this law moves so far; never too large.

    The loss of each part is computed on cells and rounded down; losses of the parts add up.
    """
    tails = np.geomspace(1e-15, 0.01, _CELLS // 4)
    shares = np.concatenate([tails, np.linspace(0.01, 0.99, _CELLS // 2), 1.0 - tails[::-1]])
    grid = np.unique(np.concatenate([law.ppf(shares), law.ppf(shares) + move]))
    p, q = (cell_masses(each, grid) for each in (law, ShiftedLaw(law, move)))
    step = epsilon / _LOSS_STEPS
    known = (p > 0.0) & (q > 0.0)
    certain = float(p[(p > 0.0) & (q <= 0.0)].sum())
    steps = np.floor(np.log(p[known] / q[known]) / step).astype(np.int64)
    lowest, width = int(steps.min()), int(np.ptp(steps)) + 1
    one = np.bincount(steps - lowest, p[known], width)
    size = 1 << (parts * width).bit_length()
    total = np.fft.irfft(np.fft.rfft(one, size) ** parts, size)[: parts * (width - 1) + 1]
    losses = step * (parts * lowest + np.arange(total.size))
    over = losses > epsilon
    excess = -np.expm1(epsilon - losses[over]) * np.maximum(total[over], 0.0)
    return float(excess.sum()) + 1.0 - (1.0 - certain) ** parts


def cell_masses(law: Any, grid: np.ndarray) -> np.ndarray:
    below, above = law.cdf(grid), law.sf(grid)
    inner = np.where(below[1:] < 0.5, np.diff(below), -np.diff(above))
    masses: np.ndarray = np.concatenate([below[:1], inner, above[-1:]])
    return masses


def norm_fault_delta(mechanism: Mechanism, terms: Terms, law: Any) -> float:
    """The delta that a move spread over several parts needs beyond the declared one, or 0."""
    size = min(len(terms.value), _MOST_SPREAD)
    if size < 2 or not math.isfinite(terms.epsilon) or terms.epsilon <= 0.0:
        return 0.0
    needed = spread_delta(law, spread_move(mechanism, terms, size), size, terms.epsilon)
    return needed if needed > terms.delta * (1 + 1e-3) + 1e-9 else 0.0


@dataclass(frozen=True)
class ShiftedLaw:
    """A law moved to the right."""

    law: Any
    by: float

    def cdf(self, x: Any) -> Any:
        return self.law.cdf(np.asarray(x) - self.by)

    def sf(self, x: Any) -> Any:
        return self.law.sf(np.asarray(x) - self.by)

    def ppf(self, p: Any) -> Any:
        return self.law.ppf(p) + self.by

    def isf(self, p: Any) -> Any:
        return self.law.isf(p) + self.by

    def support(self) -> tuple[float, float]:
        low, high = self.law.support()
        return low + self.by, high + self.by
