"""What the measurements of this paper share: hard losses, tuned policies, proved powers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from balaclava.environments.base import Environment
from balaclava.environments.hard_losses import hidden_best
from balaclava.papers.harness.figure_policies import make_policy
from balaclava.papers.harness.worst_case_slopes import (
    FEWEST_FIT_POINTS,
    LEARNED_SHARE,
    WorstRegrets,
)

if TYPE_CHECKING:
    from balaclava.policies.base import Policy

REFERENCE = "Asi, Raman, Talwar. Faster rates for private adversarial bandits. ICML 2025"
SEED = 2025

NO_NUMBERS = (
    "The paper proves this and measures nothing: horizons, numbers of arms and losses are our "
    "choice."
)
MIXING = (
    "At the tuned rate the local policies pay for their mixing, in proportion to log(K T) / ε, "
    "rather than for the variance of the noise, 2 / ε^2, as long as ε is above 1 / {:.0f}. There "
    "regret grows as the square root of 1/ε; the proved 1/ε is for smaller ε."
)
LARGEST_GAP = 0.5
BASELINES = ("exp3", "htinf")
_SCALES = tuple(2.0 ** (i / 2) for i in range(25))
TUNED = ", tuned"
PROVED = {  # powers of epsilon, K and T
    "dp-htinf": (-0.5, 0.5, 0.5),
    "dp-exp3": (-0.5, 0.5, 0.5),
    "dp-ftpl": (-0.5, 0.5, 0.5),
    "ldp-exp3": (-1.0, 0.5, 0.5),
    "exp3": (0.0, 0.5, 0.5),
    "htinf": (0.0, 0.5, 0.5),
    "dp-htinf-experts": (-0.5, 0.5, 0.5),
    "ldp-exp4": (-1.0, 0.0, 0.5),
    "dp-exp4": (-1 / 3, 1 / 6, 2 / 3),
    "exp4": (0.0, 0.0, 0.5),
}


def gaps(start: float) -> list[float]:
    """Gaps a factor of three apart, and the largest there is."""
    sizes = []
    while start < 0.7 * LARGEST_GAP:
        sizes.append(start)
        start *= 3.0
    return [*sizes, LARGEST_GAP]


def hardest(arms: int, horizon: int, epsilon: float | None) -> float:
    """The gap, up to a constant, that is hardest at this epsilon."""
    return float(hidden_best(arms, horizon, epsilon=epsilon).gaps.max())


def family(arms: int, horizon: int, epsilon: float | None) -> tuple[Environment, ...]:
    """One arm is better than all others, by more and more."""
    start = hardest(arms, horizon, epsilon)
    return tuple(hidden_best(arms, horizon, gap=gap) for gap in gaps(start))


def private(label: str, **parameters: Any) -> Policy:
    """A policy, or the same with the learning rate at which its proved bound is least."""
    name = label.removesuffix(TUNED)
    policy: Policy = make_policy(name, **parameters)
    if name == label:
        return policy
    world = hidden_best(2, 2)
    candidates = [make_policy(name, **parameters, learning_rate_scale=scale) for scale in _SCALES]
    bounds = [candidate.proved_bound(world, parameters["horizon"]) for candidate in candidates]
    best: Policy = candidates[int(np.argmin([math.inf if b is None else b for b in bounds]))]
    return best


def proved_power(label: str, panel: str) -> float | None:
    """The power in the theorem, without logarithms; None where nothing is proved."""
    powers = PROVED.get(label.removesuffix(TUNED))
    if powers is None:
        return None
    epsilon, width, horizon = powers
    return {"a": epsilon, "b": width, "c": horizon, "d": horizon - epsilon / 2.0}[panel]


def describe_slopes(regrets: WorstRegrets, panel: str, order: str = "abcd") -> list[str]:
    """The fitted power of each policy beside the proved one, and who was not fitted."""
    fits, rest = [], []
    for label in regrets.labels(panel):
        points = regrets.points(panel, label)
        if len(points) == 1:
            continue
        power = proved_power(label, "abcd"[order.index(panel)])
        theory = "no proof" if power is None else f"proved {power:+.2f}"
        slope = regrets.slope(panel, label)
        if slope is None:
            share = min(point.mean / point.ceiling for point in points)
            rest.append(f"{label} ({theory}), at least {share:.0%} of even play")
        else:
            fits.append(f"{label} {slope}, {theory}")
    lines = [f"({panel}) fitted power: {'; '.join(fits) or 'none'}."]
    if rest:
        lines.append(
            f"({panel}) not fitted, as fewer than {FEWEST_FIT_POINTS} values are below "
            f"{LEARNED_SHARE:.0%} of even play: {'; '.join(rest)}."
        )
    return lines
