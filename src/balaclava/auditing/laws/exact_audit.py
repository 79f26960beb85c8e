"""The exact audit: the law of an arm's index, before and after one reward changes.

It is for policies that protect each decision by drawing a random index for every arm and playing
the highest. With the other arms' indices fixed, a decision reveals whether one index is above or
below a number x. So it is enough that, at every x,

    F(x) <= exp(epsilon) F'(x) + delta,  1 - F(x) <= exp(epsilon) (1 - F'(x)) + delta

(Wang, Zhu 2024, Lemma 8). F and F' are computed, not sampled: on a fine grid, for sums R and R + 1
of n rewards, in both directions, at the sample sizes that the policy can reach. The reported delta
is the hockey-stick divergence: the smallest delta with which the law keeps epsilon for every event.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from balaclava.policies.base import Policy
from balaclava.privacy.guarantee import Guarantee
from balaclava.privacy.mechanisms.perturbed_index import ENDLESS_START

LARGEST_COMPUTED_EPSILON = 600.0  # beyond it, probabilities vanish in 64-bit floats
_DEFAULT_HORIZON = 10**6  # rounds, for policies without a horizon
_SPARSE_SIZES = 40  # sample sizes beyond the dense ones, evenly spaced on a logarithmic scale
_ROUNDING_DELTA = 1e-12  # allowed for rounding
# Probabilities whose quantiles are the first grid: far into the tails.
_GRID_TAILS = np.concatenate([np.geomspace(1e-30, 0.02, 60), np.linspace(0.03, 0.5, 20)])
_POINTS_PER_CELL = 30  # in a cell in which the laws cross


class IndexCase(NamedTuple):
    """One comparison: `pulls` rewards of sum `total` and of sum `total` + 1."""

    pulls: int
    total: int


@dataclass(frozen=True)
class ExactAudit:
    """The result of the exact audit."""

    verdict: str  # "consistent" | "unproved": Lemma 8 fails, so the claim has no proof
    epsilon: float  # the claim
    claimed_delta: float
    delta: float  # the true delta of the index law at the claimed epsilon
    half_lines: float  # the part of it that Lemma 8 is about
    sizes: int  # sample sizes checked
    first: int  # the smallest of them
    last: int  # the largest of them
    all_until: int  # every size up to this one was checked
    worst: IndexCase

    def __str__(self) -> str:
        where = f"{self.sizes:,} sample sizes from {self.first:,} to {self.last:,}"
        if self.all_until < self.last:
            where += f" (all until {self.all_until:,})"
        return (
            f"{self.verdict}: {where}; true delta {self.delta:.3g} at epsilon {self.epsilon:.4g}, "
            f"claimed {self.claimed_delta:.3g}; worst with {self.worst.pulls:,} rewards of sum "
            f"{self.worst.total:,} or {self.worst.total + 1:,}"
        )


def audit_exactly(
    policy: Policy, claim: Guarantee | None = None, *, horizon: int | None = None, dense: int = 200
) -> ExactAudit | None:
    """Check the index law of a policy; None if it has no such law, or an epsilon above 600.

    It applies to policies of scope "decision" with a method `index_law(pulls, total)`: the law of
    the index of an arm with `pulls` rewards in [0, 1] of the sum `total`. The law has vectorised
    `cdf`, `sf`, `ppf`, `isf`, and `support()`, like scipy's frozen distributions. `start_phase` is
    the fewest rewards with which an index is drawn, by default 1.

    Args:
        policy: The policy to audit.
        claim: The guarantee to check; by default the policy's own.
        horizon: The largest sample size; by default the policy's horizon, or a million.
        dense: The number of sizes, from the smallest on, that are all checked.

    Example:
        >>> import balaclava as bl
        >>> policy = bl.policy("dp-ftpl-gauss", arms=9, epsilon=1.0, delta=0.01)
        >>> f"{audit_exactly(policy).delta:.1e}"
        '2.9e-06'
    """
    claim = policy.guarantee if claim is None else claim
    law = policy.index_law
    if claim.scope != "decision" or law is None or claim.epsilon > LARGEST_COMPUTED_EPSILON:
        return None
    if policy.start_phase >= ENDLESS_START:
        return None
    sizes, all_until = sample_sizes(policy, horizon, dense)
    worst, delta, half_lines, verdict = IndexCase(sizes[0], 0), 0.0, 0.0, "consistent"
    # For each size the smallest and the largest total, and one between.
    cases = [IndexCase(n, total) for n in sizes for total in sorted({0, n // 2, n - 1})]
    for case in cases:
        # Rounding moves a mean by about 2^-53: this part of the share of one reward.
        rounding = 1e-9 + case.pulls * 2.0**-49
        epsilon = claim.epsilon * (1.0 + rounding)
        divergence = hockey_stick(law(*case), law(case.pulls, case.total + 1), epsilon)
        if divergence.delta > delta * (1.0 + rounding):
            worst, delta = case, divergence.delta
        half_lines = max(half_lines, divergence.half_lines)
        if divergence.half_lines > claim.delta * (1.0 + rounding) + _ROUNDING_DELTA:
            verdict = "unproved"
    return ExactAudit(
        verdict, claim.epsilon, claim.delta, delta, half_lines, len(sizes), sizes[0], sizes[-1],
        all_until, worst,
    )  # fmt: skip


def sample_sizes(policy: Policy, horizon: int | None, dense: int) -> tuple[list[int], int]:
    """The sizes to check, ascending, and the one up to which every size is checked."""
    first = int(policy.start_phase)
    rounds = horizon if horizon is not None else policy.horizon
    last = max(first, _DEFAULT_HORIZON if rounds is None else int(rounds))
    all_until = min(first + dense - 1, last)
    beyond = np.geomspace(all_until, last, _SPARSE_SIZES).round().astype(np.int64).tolist()
    return sorted({*range(first, all_until + 1), *beyond}), all_until


class HockeyStick(NamedTuple):
    """The hockey-stick divergence of two laws, the larger of both directions."""

    delta: float  # over all events
    half_lines: float  # over events of the form "below x" or "above x"


def hockey_stick(one: Any, other: Any, epsilon: float) -> HockeyStick:
    """The hockey-stick divergence at epsilon.

    It is computed on cells between grid points, so it is never too large. Cells in which the laws
    cross are refined, so that it is accurate.
    """
    weight = math.exp(epsilon)
    grid = quantile_grid(one, other)
    a, b = LawOnGrid.of(one, grid), LawOnGrid.of(other, grid)
    grid = np.union1d(
        refine_sign_changes(grid, a.masses - weight * b.masses),
        refine_sign_changes(grid, b.masses - weight * a.masses),
    )
    a, b = a.joined(one, grid), b.joined(other, grid)
    pairs = [(a, b), (b, a)]
    delta = max(float(np.maximum(p.masses - weight * q.masses, 0.0).sum()) for p, q in pairs)
    half_lines = max(
        max(float((p.below - weight * q.below).max()), float((p.above - weight * q.above).max()))
        for p, q in pairs
    )
    return HockeyStick(delta, max(half_lines, 0.0))


def quantile_grid(one: Any, other: Any) -> np.ndarray:
    """Quantiles far into both tails, and the ends of both supports."""
    ends = np.array([*one.support(), *other.support()])
    grid = np.concatenate([one.ppf(_GRID_TAILS), one.isf(_GRID_TAILS), ends[np.isfinite(ends)]])
    return np.unique(grid)


class LawOnGrid(NamedTuple):
    """The distribution function of a law, and its complement, at grid points."""

    grid: np.ndarray
    below: np.ndarray
    above: np.ndarray

    @classmethod
    def of(cls, law: Any, grid: np.ndarray) -> LawOnGrid:
        return cls(grid, law.cdf(grid), law.sf(grid))

    def joined(self, law: Any, more: np.ndarray) -> LawOnGrid:
        """The same law on this grid and on more points."""
        grid, places = np.unique(np.concatenate([self.grid, more]), return_index=True)
        below = np.concatenate([self.below, law.cdf(more)])[places]
        above = np.concatenate([self.above, law.sf(more)])[places]
        return LawOnGrid(grid, below, above)

    @property
    def masses(self) -> np.ndarray:
        """The mass between adjacent points and beyond them, from the smaller tail."""
        below = np.concatenate([[0.0], self.below, [1.0]])
        above = np.concatenate([[1.0], self.above, [0.0]])
        masses: np.ndarray = np.where(below[1:] < 0.5, np.diff(below), -np.diff(above))
        return masses


def refine_sign_changes(grid: np.ndarray, excess: np.ndarray) -> np.ndarray:
    """Points within the cells on either side of a change of sign."""
    edges = np.concatenate([grid[:1], grid, grid[-1:]])
    changes = np.flatnonzero(np.diff(excess > 0.0))
    cells = np.unique(np.concatenate([changes, changes + 1]))
    shares = np.linspace(0.0, 1.0, _POINTS_PER_CELL)
    points: np.ndarray = edges[cells, None] + np.diff(edges)[cells, None] * shares
    return points.ravel()
