"""`balaclava compare`: from a log of decisions to a report on which policies would suit it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from balaclava._core.declared import Epsilon, check
from balaclava.advice.findings import Log
from balaclava.advice.recommend import BOLDER, RULES, Recommendation, Rewards, recommend
from balaclava.policies.base import Policy
from balaclava.policies.base import policy as make_policy
from balaclava.simulation.engine import Progress, simulate
from balaclava.simulation.results import Results

NOT_PRIVATE = (
    "Looking at a log is not itself private: what is printed and drawn here tells something about "
    "the rewards in it. Show it only to those who may see the log."
)
_ROUNDS = (1_000, 100_000)


@dataclass(frozen=True)
class Comparison:
    """Policies that fit a log, and how they did on it."""

    log: Log
    advice: dict[str, Recommendation]
    results: Results

    def why(self) -> dict[str, str]:
        """Why each private policy is there."""
        return {
            label: "; ".join([advice.why, *advice.notes]) for label, advice in self.advice.items()
        }


def compare(
    log: Log,
    *,
    epsilon: float = 1.0,
    horizon: int | None = None,
    repetitions: int = 30,
    seed: int = 1,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Play the policies that fit a log on rewards resampled from it.

    The horizon is by default the number of rows, and at least 1,000.

    Example:
        >>> import tempfile, pathlib
        >>> from balaclava.advice.findings import read
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder, "log.csv")
        ...     _ = file.write_text("ad,click\\n" + "a,0\\nb,1\\n" * 30 + "a,1\\nb,0\\n" * 10)
        ...     log = read(file, arm="ad", reward="click")
        >>> log.kind, log.counts
        ('bounded', {'a': 40, 'b': 40})
    """
    epsilon = check("epsilon", epsilon, Epsilon)
    low, high = _ROUNDS
    rounds = min(max(log.rows, low), high) if horizon is None else horizon
    parameters: dict[str, Any] = {"arms": log.world.arms, "horizon": rounds, "epsilon": epsilon}
    if log.kind == "bounded":
        parameters |= {"reward_range": log.reward_range, "outside": log.outside}
        kinds: tuple[Rewards, ...] = ("bounded",)
    else:
        parameters |= {"moment_order": log.moment_order, "moment_bound": log.moment_bound}
        kinds = ("heavy-tailed", "unknown-tails")
    advice: dict[str, Recommendation] = {}
    policies: dict[str, Policy] = {"random": make_policy("random", arms=log.world.arms)}
    for rule in RULES:
        if rule.rewards in kinds:
            recommendation = recommend(
                rewards=rule.rewards,
                trust=rule.trust,
                scope=rule.scope or "trajectory",
                simulate=False,
                **parameters,
            )
            advice[rule.policy] = recommendation
            policies.setdefault(recommendation.baseline_label, recommendation.baseline)
            policies[rule.policy] = recommendation.policy
            if rule.policy in BOLDER:
                changes = BOLDER[rule.policy]
                told_apart = ", ".join(f"{name}={value}" for name, value in changes.items())
                bolder = type(recommendation.policy).create(
                    {**recommendation.policy.parameters, **changes}
                )
                policies[f"{rule.policy}({told_apart})"] = bolder
    results = simulate(
        policies,
        log.world,
        horizon=rounds,
        repetitions=repetitions,
        seed=seed,
        workers=workers,
        progress=progress,
    )
    return Comparison(log, advice, results)
