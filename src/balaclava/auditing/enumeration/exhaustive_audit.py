"""The exhaustive audit: the exact law of everything that an observer sees in a small world.

A small world has few rounds, two arms if the policy allows it, and at most six rewards that vary.
Each of these is the smallest or the largest reward. For every assignment of them, the probability
of every sequence of observations is computed from the policy's kernels; nothing is sampled. The
claim is compared on every pair of assignments that differ in one reward:

- delta = 0: the largest ratio of the probabilities of one sequence. Rewards that depend on the arm
  add nothing, since along one sequence only the rewards of its arms count.
- delta > 0: the hockey-stick divergence at the claimed epsilon, the smallest delta that holds.
- scope "decision": the same for each decision, given those before it.

Mechanisms' answers are rounded (`branching`), which is post-processing. So a claim that follows
from the composition of the mechanisms holds here too. If it does not hold and nothing was rounded,
the claim is violated. Otherwise games with the real noise test the worst pair, and the claim is at
least unproved: its proof would need more than composition.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from balaclava._core.number_format import counted
from balaclava.auditing.enumeration.branching import NotEnumerable
from balaclava.auditing.enumeration.small_worlds import SmallWorld, enumerated_worlds
from balaclava.errors import PolicyError, PrivacyError
from balaclava.policies.base import Policy

_KERNEL_ERRORS = (PrivacyError, PolicyError, ArithmeticError, LookupError, TypeError, ValueError)


@dataclass(frozen=True)
class ExhaustiveAudit:
    """The result of the exhaustive audit."""

    verdict: str  # "consistent" | "unproved" | "violated" | "does not apply"
    reason: str  # why it does not apply, or the fault, or ""
    rounds: int = 0  # of the longest world
    pairs: int = 0  # of assignments
    sequences: int = 0  # of observations, in all worlds
    epsilon: float | None = None  # exact; None if infinite, or if the claim has a delta
    delta: float = 0.0  # exact, at the claimed epsilon
    changed: dict[str, Any] | None = None  # parameters of the variant
    coarse: tuple[str, ...] = ()  # draws outside the mechanisms that have a few values here
    left_out: int = 0  # worlds that could not be enumerated

    @property
    def fits(self) -> bool:
        """Whether the law was computed, and depends on a reward."""
        return self.verdict != "does not apply"

    def __str__(self) -> str:
        if not self.fits:
            return f"does not apply: {self.reason}"
        values = ", ".join(f"{name}={value}" for name, value in (self.changed or {}).items())
        where = f"{self.rounds} rounds{' at ' + values if values else ''}"
        size = f"all {self.sequences:,} sequences, {self.pairs:,} neighbouring pairs in {where}"
        if self.left_out:
            worlds = counted(self.left_out, "world")
            size += f" (fewer than planned: {worlds} could not be enumerated)"
        if self.reason:
            return f"{self.verdict}: {size}; {self.reason}"
        exact = f"delta {self.delta:.3g}" if self.epsilon is None else f"epsilon {self.epsilon:.6g}"
        coarse = "".join(f"; rng.{draw} has a few values" for draw in self.coarse)
        return f"{self.verdict}: {size}; exact {exact}{coarse}"


def audit_exhaustively(policy: Policy, seed: int = 0, games: bool = True) -> ExhaustiveAudit:
    """Compute the law of all decisions in small worlds, and compare it with the claim.

    Args:
        policy: The policy to audit; a variant with short phases is enumerated.
        seed: Seed of the games.
        games: Whether games test the worst pair if the law exceeds the claim.

    Example:
        >>> import balaclava as bl
        >>> report = audit_exhaustively(bl.policy("ldp-ucb-bernoulli", arms=2, epsilon=1.0))
        >>> report.verdict, round(report.epsilon, 9)
        ('consistent', 1.0)
    """
    if not policy.guarantee.private:
        return ExhaustiveAudit("does not apply", "it claims nothing")
    try:
        with np.errstate(all="ignore"):
            worlds, left_out = enumerated_worlds(policy)
    except NotEnumerable as error:
        return ExhaustiveAudit("does not apply", str(error))
    except _KERNEL_ERRORS as error:
        return ExhaustiveAudit("does not apply", f"a kernel raises {type(error).__name__}")
    if not any(world.moved for world in worlds):
        if errors := set[str]().union(*(world.counts.errors for world in worlds)):
            return ExhaustiveAudit("does not apply", f"a kernel raises {min(errors)}")
        rounds = max(world.played for world in worlds)
        why = f"in {rounds} rounds nothing depends on a reward; set its first batch or epoch to 1"
        return ExhaustiveAudit("does not apply", why)
    result = conclude(policy, worlds, seed, games)
    return dataclasses.replace(result, left_out=left_out) if result.fits else result


def conclude(policy: Policy, worlds: list[SmallWorld], seed: int, games: bool) -> ExhaustiveAudit:
    """The verdict on the worst pair of all worlds."""
    exact = [world for world in worlds if not (world.exceeds_claim and world.counts.coarse)]
    coarse = {draw for world in worlds for draw in world.counts.coarse}
    if not exact:
        reason = f"privacy rests on rng.{min(coarse)}, which cannot be enumerated"
        return ExhaustiveAudit("does not apply", reason)
    worst = max(exact, key=lambda world: world.worst.loss)
    verdict, reason = "consistent", ""
    if worst.exceeds_claim:
        verdict, reason = "unproved", worst.describe()
        if not worst.counts.rounded:
            verdict = "violated"
        elif games:
            result = worst.play_games(seed)
            verdict, reason = "violated" if result.refuted else verdict, f"{reason}; {result}"
    loss, pure = worst.worst.loss, worst.claim.delta == 0.0
    changed = {
        name: value
        for name, value in worst.policy.parameters.items()
        if policy.parameters[name] != value
    }
    return ExhaustiveAudit(
        verdict,
        reason,
        rounds=max(world.played for world in worlds),
        pairs=sum(len(world.free) * 2 ** max(len(world.free) - 1, 0) for world in worlds),
        sequences=sum(world.sequences for world in worlds),
        epsilon=loss if pure and math.isfinite(loss) else None,
        delta=0.0 if pure else loss,
        changed=changed,
        coarse=tuple(sorted(coarse)),
    )
