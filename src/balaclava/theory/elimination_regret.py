"""Regret of elimination in phases, from its confidence radii alone.

Let every estimate of a phase be within beta of its mean, and let an arm be removed if it is more
than 2 beta behind. Then the best arm is never removed, and an arm whose gap is above 4 beta is
removed at the end of that phase: the estimates are more than gap - 2 beta > 2 beta apart. So an
arm is pulled at most until the first phase whose 4 beta is below its gap.
"""

from collections.abc import Sequence

import numpy as np


def pulls_until_removed(gap: float, phases: Sequence[tuple[int, float]], most: int) -> int:
    """Pulls of an arm in phases of (length, beta), at most `most`."""
    pulls = 0
    for length, beta in phases:
        pulls += length
        if 4.0 * beta < gap:
            return min(pulls, most)
    return most


def elimination_regret(
    gaps: np.ndarray, phases: Sequence[tuple[int, float]], rounds: int, failure: float
) -> float:
    """Upper bound on the expected regret in `rounds` rounds.

    The arms with the largest gaps get the first rounds, as many as their pulls allow. With
    probability `failure` some radius fails, and every round may cost the largest gap.
    """
    pulls = [pulls_until_removed(gap, phases, rounds) for gap in gaps.tolist()]
    largest = rounds * float(gaps.max())
    return min(worst_regret(gaps, np.array(pulls), rounds) + min(failure, 1.0) * largest, largest)


def worst_regret(gaps: np.ndarray, pulls: np.ndarray, horizon: float) -> float:
    """Largest regret of `horizon` rounds if each arm has at most these pulls.

    Example:
        >>> worst_regret(np.array([0.0, 0.5, 1.0]), np.array([np.inf, 10.0, 10.0]), 15)
        12.5
    """
    total, remaining = 0.0, float(horizon)
    for arm in np.argsort(-gaps):
        share = min(float(pulls[arm]), remaining)
        total += float(gaps[arm]) * share
        remaining -= share
    return total


def removal_epochs(gaps: np.ndarray) -> np.ndarray:
    """The first epoch tau = 1, 2, ... with 2^-tau <= gap, for gaps above 0."""
    epochs: np.ndarray = np.maximum(np.ceil(np.log2(1.0 / gaps)), 1.0).astype(np.int64)
    return epochs


def worst_elimination_regret(
    arms: int, steps: Sequence[tuple[float, float]], rounds: float, failure: float, largest: float
) -> float:
    """Upper bound on the regret in `rounds` rounds for all gaps up to `largest`.

    `steps` are (D, P), D decreasing: an arm whose gap is at least D is pulled at most P times.
    Split the gaps at some D. Those below cost at most D per round. Each of the other arms costs at
    most the maximum of P times the largest gap for which P holds, the D before. With probability
    `failure` every round costs `largest`.

    Example:
        >>> worst_elimination_regret(3, [(0.5, 10.0), (0.25, 100.0)], 1000, 0.0, 1.0)
        350.0
    """
    least, above, dearest = largest * rounds, largest, 0.0
    for gap, pulls in steps:
        if gap < above:
            dearest = max(dearest, pulls * above)
            least = min(least, gap * rounds + (arms - 1) * dearest)
            above = gap
    return float(min(least + min(failure, 1.0) * rounds * largest, largest * rounds))
