"""The exact audit: the law of an arm's index, before and after one reward changes.

For policies that protect each decision by drawing a random index for every arm and playing the
highest. With the other arms' indices held fixed, a decision tells whether one index is above or
below a number x, so it is enough that, at every x,

    F(x) <= exp(epsilon) F'(x) + delta,  1 - F(x) <= exp(epsilon) (1 - F'(x)) + delta

(Wang, Zhu 2024, Lemma 8). Here F and F' are computed, not sampled: on a fine grid, for sums R and
R + 1 of n rewards, in both directions, at the sample sizes that the policy can reach. The delta
reported is the smallest with which the law would keep epsilon for every event, half-lines or not:
the mass by which one law exceeds exp(epsilon) times the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from balaclava.policies.base import Policy
from balaclava.privacy.guarantee import Guarantee
from balaclava.privacy.mechanisms.perturbed_index import NEVER

_HORIZON = 10**6  # where the policy does not say how long it will be played
_SPARSE = 40  # sizes beyond those that are all checked, spread evenly on a logarithmic scale
_LARGEST = 600.0  # an epsilon beyond which probabilities vanish in 64-bit floats
_SMALLEST_DELTA = 1e-12  # what rounding may add up to
_TAIL = np.concatenate([np.geomspace(1e-30, 0.02, 60), np.linspace(0.03, 0.5, 20)])


class IndexCase(NamedTuple):
    """One comparison: so many rewards of sum `total`, and of sum `total` + 1."""

    pulls: int
    total: int


@dataclass(frozen=True)
class ExactAudit:
    """What the closed form of the index law says."""

    verdict: str  # "consistent" | "unproved": Lemma 8 fails, so that nothing proves the claim
    epsilon: float  # the claim
    claimed_delta: float
    delta: float  # the true delta of the index law at the claimed epsilon
    half_lines: float  # the part of it that Lemma 8 asks for
    sizes: int  # sample sizes checked
    first: int  # the smallest,
    last: int  # the largest,
    all_until: int  # and the one up to which none was left out
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
    """Check the index law of a policy; None where the policy has none, or an epsilon above 600.

    It applies to policies of scope "decision" that offer `index_law(pulls, total)`: the law of
    the index of an arm with so many rewards, on the scale of [0, 1], of sum `total`, with
    vectorised `cdf`, `sf`, `ppf`, `isf` and with `support()`, as scipy's frozen distributions
    have. `start_phase` says how many rewards an arm has at least when an index is drawn (1 if the
    policy does not say).

    Args:
        policy: what to audit.
        claim: what it must keep; its own guarantee by default.
        horizon: the largest sample size, by default the policy's horizon or a million.
        dense: how many sizes, from the smallest on, are checked without leaving one out.

    Example:
        >>> import balaclava as bl
        >>> policy = bl.policy("dp-ftpl-gauss", arms=9, epsilon=1.0, delta=0.01)
        >>> f"{audit_exactly(policy).delta:.1e}"
        '2.9e-06'
    """
    claim = policy.guarantee if claim is None else claim
    law = policy.index_law
    if claim.scope != "decision" or law is None or claim.epsilon > _LARGEST:
        return None
    if policy.start_phase >= NEVER:
        return None
    sizes, all_until = sample_sizes(policy, horizon, dense)
    worst, delta, half_lines, verdict = IndexCase(sizes[0], 0), 0.0, 0.0, "consistent"
    for case in cases(sizes):
        # Rounding moves a mean by about 2^-53, which is this large a part of one reward's share.
        rounding = 1e-9 + case.pulls * 2.0**-49
        epsilon = claim.epsilon * (1.0 + rounding)
        divergence = hockey_stick(law(*case), law(case.pulls, case.total + 1), epsilon)
        if divergence.delta > delta * (1.0 + rounding):
            worst, delta = case, divergence.delta
        half_lines = max(half_lines, divergence.half_lines)
        if divergence.half_lines > claim.delta * (1.0 + rounding) + _SMALLEST_DELTA:
            verdict = "unproved"
    return ExactAudit(
        verdict, claim.epsilon, claim.delta, delta, half_lines, len(sizes), sizes[0], sizes[-1],
        all_until, worst,
    )  # fmt: skip


def sample_sizes(policy: Policy, horizon: int | None, dense: int) -> tuple[list[int], int]:
    """The sizes to check, ascending, and the one up to which none is left out."""
    first = int(policy.start_phase)
    rounds = horizon if horizon is not None else policy.horizon
    last = max(first, _HORIZON if rounds is None else int(rounds))
    all_until = min(first + dense - 1, last)
    beyond = np.geomspace(all_until, last, _SPARSE).round().astype(np.int64).tolist()
    return sorted({*range(first, all_until + 1), *beyond}), all_until


def cases(sizes: list[int]) -> Iterator[IndexCase]:
    """For each size the smallest and the largest total, and one between."""
    for pulls in sizes:
        for total in sorted({0, pulls // 2, pulls - 1}):
            yield IndexCase(pulls, total)


class HockeyStick(NamedTuple):
    """How much delta two laws need, whichever of the two is the true one."""

    delta: float  # over all events
    half_lines: float  # over events of the form "below x" or "above x"


def hockey_stick(one: Any, other: Any, epsilon: float) -> HockeyStick:
    """The delta that tells two laws apart at epsilon.

    On cells between grid points, so never too large; the cells in which the laws cross are cut
    finer, so hardly too small.
    """
    weight = math.exp(epsilon)
    grid = starting_grid(one, other)
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


def starting_grid(one: Any, other: Any) -> np.ndarray:
    """Quantiles far into both tails, and the ends of both supports."""
    ends = np.array([*one.support(), *other.support()])
    grid = np.concatenate([one.ppf(_TAIL), one.isf(_TAIL), ends[np.isfinite(ends)]])
    return np.unique(grid)


class LawOnGrid(NamedTuple):
    """A law on a grid."""

    grid: np.ndarray
    below: np.ndarray
    above: np.ndarray

    @classmethod
    def of(cls, law: Any, grid: np.ndarray) -> LawOnGrid:
        return cls(grid, law.cdf(grid), law.sf(grid))

    def joined(self, law: Any, more: np.ndarray) -> LawOnGrid:
        """On this grid and on more points."""
        grid, places = np.unique(np.concatenate([self.grid, more]), return_index=True)
        below = np.concatenate([self.below, law.cdf(more)])[places]
        above = np.concatenate([self.above, law.sf(more)])[places]
        return LawOnGrid(grid, below, above)

    @property
    def masses(self) -> np.ndarray:
        """The mass between neighbouring points and outside them, from the smaller tail."""
        below = np.concatenate([[0.0], self.below, [1.0]])
        above = np.concatenate([[1.0], self.above, [0.0]])
        masses: np.ndarray = np.where(below[1:] < 0.5, np.diff(below), -np.diff(above))
        return masses


def refine_sign_changes(grid: np.ndarray, excess: np.ndarray) -> np.ndarray:
    """Points within the cells on either side of a change of sign."""
    edges = np.concatenate([grid[:1], grid, grid[-1:]])
    changes = np.flatnonzero(np.diff(excess > 0.0))
    cells = np.unique(np.concatenate([changes, changes + 1]))
    shares = np.linspace(0.0, 1.0, 30)
    points: np.ndarray = edges[cells, None] + np.diff(edges)[cells, None] * shares
    return points.ravel()
