"""The statistical audit of a local policy, on the reports of a device."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from balaclava._core.kernels import compiled
from balaclava.auditing.games.statistical_audit import StatisticalAudit, bounds_verdict
from balaclava.auditing.two_sample_bounds import VIOLATION_ERROR, best_threshold
from balaclava.policies.base import Policy
from balaclava.privacy.randomness import seeded

_REPORT_THRESHOLDS = 200  # quantiles tried as thresholds; a guess
_RANKING_ERROR = 0.05  # of the bounds by which thresholds are ranked; the result has its own


def make_reports(report: Callable[..., Any], prepare: Callable[..., Any]) -> Callable[..., Any]:
    def reports(params: Any, reward: float, level: float, count: int, rng: Any) -> np.ndarray:
        answers = np.empty(count)
        for i in range(count):
            answers[i] = report(params, prepare(params, reward), level, rng)
        return answers

    return reports


def audit_reports(
    policy: Policy, epsilon: float, delta: float, *, trials: int, seed: int, confidence: float
) -> StatisticalAudit:
    """Report the smallest and the largest reward many times, and distinguish the two."""
    assert policy.report_kernel is not None  # the caller has checked
    reports = compiled(make_reports, policy.report_kernel, policy.prepare())
    params, half = policy.constants(), max(trials // 4, 1)
    low, high = policy.accepts
    level = first_level(policy)
    extremes = (low, high) if math.isfinite(low + high) else (-level, level)

    def samples(stage: int) -> list[np.ndarray]:
        return [
            reports(params, reward, level, half, seeded(seed, side, stage))
            for side, reward in enumerate(extremes)
        ]

    event = best_threshold(samples(0), _REPORT_THRESHOLDS, delta, _RANKING_ERROR)
    measured = samples(1)
    certain = event.bound(measured, delta, min(1 - confidence, VIOLATION_ERROR))
    return StatisticalAudit(
        verdict=bounds_verdict(certain, epsilon),
        epsilon_lower=event.bound(measured, delta, 1 - confidence),
        confidence=confidence,
        games=4 * half,
        event=f"the report is {event}",
        place=1,
        claimed=epsilon,
    )


def first_level(policy: Policy) -> float:
    """The level of the first decision; 1 for policies without levels."""
    if policy.report_level is None:
        return 1.0
    params = policy.constants()
    return float(policy.report_level(params, policy.kernels.begin(params), 0, 1))
