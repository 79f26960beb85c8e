"""Hard losses, tuned policies and proved powers for Asi, Raman and Talwar (2025)."""

from typing import Any

from balaclava.advice.choose.scale_search import least_proved_bound
from balaclava.environments.base import Environment
from balaclava.environments.hard_losses import hidden_best
from balaclava.papers.harness.figure_policies import make_policy
from balaclava.papers.harness.figure_registry import Paper
from balaclava.papers.harness.figure_run import OUR_SCALE
from balaclava.papers.harness.worst_case_slopes import (
    FEWEST_FIT_POINTS,
    LEARNED_SHARE,
    WorstRegrets,
)
from balaclava.policies.base import Policy

ASI_2025 = Paper(
    reference="Asi, Raman, Talwar. Faster rates for private adversarial bandits. ICML 2025",
    seed=2025,
    full_scale=OUR_SCALE,
)
LARGEST_GAP = 0.5  # that `hidden_best` allows: losses lie in [0, 1]
BASELINES = ("exp3", "htinf")
# Candidates for learning_rate_scale, in half powers of two up to 2^12. The range is a guess.
_RATE_SCALES = tuple(2.0 ** (i / 2) for i in range(25))
TUNED = ", tuned"  # ends the label of a policy at the rate with the least proved bound
PROVED_POWERS = {  # of epsilon, K (with experts: N) and T, without logarithms; Table 1
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
    """Gaps a factor of three apart, up to the largest."""
    sizes = []
    while start < 0.7 * LARGEST_GAP:
        sizes.append(start)
        start *= 3.0
    return [*sizes, LARGEST_GAP]


def hardest(arms: int, horizon: int, epsilon: float | None) -> float:
    return float(hidden_best(arms, horizon, epsilon=epsilon).gaps.max())


def family(arms: int, horizon: int, epsilon: float | None) -> tuple[Environment, ...]:
    """Environments whose best arm is ahead of all others by each of the gaps."""
    start = hardest(arms, horizon, epsilon)
    return tuple(hidden_best(arms, horizon, gap=gap) for gap in gaps(start))


def private(label: str, **parameters: Any) -> Policy:
    """A policy; for a label with `TUNED`, at the learning rate with the least proved bound."""
    name = label.removesuffix(TUNED)
    policy: Policy = make_policy(name, **parameters)
    if name == label:
        return policy
    world = hidden_best(2, 2)
    candidates = [
        make_policy(name, **parameters, learning_rate_scale=scale) for scale in _RATE_SCALES
    ]
    best = least_proved_bound(candidates, world, parameters["horizon"])
    return candidates[0] if best is None else best[0]


def proved_power(label: str, panel: str) -> float | None:
    """The power in the theorem, without logarithms; None if nothing is proved."""
    powers = PROVED_POWERS.get(label.removesuffix(TUNED))
    if powers is None:
        return None
    epsilon, width, horizon = powers
    return {"a": epsilon, "b": width, "c": horizon, "d": horizon - epsilon / 2.0}[panel]


def describe_slopes(regrets: WorstRegrets, panel: str, order: str = "abcd") -> list[str]:
    """The fitted and the proved power of each policy; then the policies that were not fitted."""
    fits, unfitted = [], []
    for label in regrets.labels(panel):
        points = regrets.points(panel, label)
        if len(points) == 1:
            continue
        power = proved_power(label, "abcd"[order.index(panel)])
        theory = "no proof" if power is None else f"proved {power:+.2f}"
        slope = regrets.slope(panel, label)
        if slope is None:
            share = min(point.mean / point.ceiling for point in points)
            unfitted.append(f"{label} ({theory}), at least {share:.0%} of even play")
        else:
            fits.append(f"{label} {slope}, {theory}")
    lines = [f"({panel}) fitted power: {'; '.join(fits) or 'none'}."]
    if unfitted:
        lines.append(
            f"({panel}) not fitted, with fewer than {FEWEST_FIT_POINTS} values below "
            f"{LEARNED_SHARE:.0%} of even play: {'; '.join(unfitted)}."
        )
    return lines
