"""The statistical audit of a local policy: what is audited is the report that leaves its owner."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from balaclava._core.kernels import compiled
from balaclava.auditing.games.statistical_audit import VIOLATED, StatisticalAudit
from balaclava.auditing.two_sample_bounds import epsilon_lower
from balaclava.policies.base import Policy
from balaclava.privacy.randomness import seeded

_THRESHOLDS = 200


def make_reports(report: Callable[..., Any], prepare: Callable[..., Any]) -> Callable[..., Any]:
    """A loop that reports one reward again and again."""

    def reports(params: Any, reward: float, level: float, count: int, rng: Any) -> np.ndarray:
        answers = np.empty(count)
        for i in range(count):
            answers[i] = report(params, prepare(params, reward), level, rng)
        return answers

    return reports


def audit_reports(
    policy: Policy, epsilon: float, delta: float, *, trials: int, seed: int, confidence: float
) -> StatisticalAudit:
    """Report the least and the largest reward many times, and tell the two apart."""
    assert policy.report_kernel is not None  # the caller has looked
    reports = compiled(make_reports, policy.report_kernel, policy.prepare())
    params, half = policy.constants(), max(trials // 4, 1)
    low, high = policy.accepts
    level = first_level(policy)
    extremes = (low, high) if math.isfinite(low + high) else (-level, level)

    def sample(side: int, stage: int) -> np.ndarray:
        answers: np.ndarray = reports(
            params, extremes[side], level, half, seeded(seed, side, stage)
        )
        return answers

    train = [sample(0, 0), sample(1, 0)]
    thresholds = np.unique(np.quantile(np.concatenate(train), np.linspace(0, 1, _THRESHOLDS)))
    best = (-1.0, 0, True, float(thresholds[0]))
    for at_least in (True, False):
        counts = [_counts(answers, thresholds, at_least) for answers in train]
        for side in (0, 1):
            bounds = epsilon_lower(counts[side], counts[1 - side], half, delta, 0.05)
            i = int(bounds.argmax())
            best = max(best, (float(bounds[i]), side, at_least, float(thresholds[i])))
    _, side, at_least, threshold = best
    test = [_counts(sample(s, 1), np.array([threshold]), at_least) for s in (side, 1 - side)]
    bound = float(epsilon_lower(test[0], test[1], half, delta, 1 - confidence)[0])
    sure = float(epsilon_lower(test[0], test[1], half, delta, min(1 - confidence, VIOLATED))[0])
    return StatisticalAudit(
        verdict="violated" if sure > epsilon else "consistent",
        epsilon_lower=bound,
        confidence=confidence,
        games=4 * half,
        event=f"the report is {'at least' if at_least else 'at most'} {threshold:.4g}",
        place=1,
    )


def first_level(policy: Policy) -> float:
    """The level that is sent with the first decision; 1 where none is."""
    if policy.report_level is None:
        return 1.0
    params = policy.constants()
    return float(policy.report_level(params, policy.kernels.begin(params), 0, 1))


def _counts(answers: np.ndarray, thresholds: np.ndarray, at_least: bool) -> np.ndarray:
    """How many answers are at least (or at most) each threshold."""
    ordered = np.sort(answers)
    if at_least:
        return ordered.size - np.searchsorted(ordered, thresholds, side="left")
    return np.searchsorted(ordered, thresholds, side="right")
