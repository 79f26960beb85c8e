"""What features are worth: first on the log itself, then with privacy, on worlds drawn from it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from balaclava.advice.choose.scale_search import with_scale
from balaclava.advice.log.feature_columns import FeatureScaling, fit_scaling
from balaclava.advice.log.log_summary import LogSummary
from balaclava.advice.log.off_policy import (
    OFF_POLICY_METHODS,
    IntervalEstimate,
    OffPolicyEvaluation,
    coefficient_posterior,
    evaluate_off_policy,
)
from balaclava.advice.log.worlds import DrawnWorld
from balaclava.advice.trial.log_trial import LogTrial
from balaclava.advice.trial.standings import AT_RANDOM, RADIUS_SCALE, Standing, make_standing
from balaclava.environments.base import environment as make_environment
from balaclava.policies.base import Policy
from balaclava.policies.base import policy as make_policy
from balaclava.simulation.analysis.statistics import plus_minus
from balaclava.simulation.results import Results

FEATURES_ARE_PUBLIC = (
    "Features count as public: policies that decide by them protect rewards and nothing else, and "
    "a decision may give a person's features away."
)
_WITHOUT = "dp-imed"  # the private policy without features that the others are measured by
_PRIVATE = ("dp-linucb", "dp-lin-ts")
_SCALES = (1.0, 0.3, 0.1)
_TRIALS = 4  # worlds to choose a scale and a policy on
_CONTEXTS = 2_000  # of the log that a world has at most
_FEW = 100  # rows that an estimate should be worth


class FeatureTrial(NamedTuple):
    """A private policy with features against one without, on worlds drawn from the log."""

    policy: Policy
    label: str
    gain: IntervalEstimate  # of reward a round
    standings: tuple[Standing, ...]
    results: Results

    @property
    def pays(self) -> bool:
        """Whether it earns more, beyond chance."""
        return self.gain.low > 0


class FeatureGain(NamedTuple):
    """What deciding by features gains over the best single arm."""

    off_policy: OffPolicyEvaluation
    scaling: FeatureScaling
    horizon: int
    ranged: bool  # whether rewards have a range, which policies with features need
    extra: FeatureTrial | None

    @property
    def clear(self) -> bool:
        """Whether the log shows a gain, beyond chance, from enough rows."""
        gain = self.off_policy.gain
        enough = min(value.effective for value in self.off_policy.values) >= _FEW
        return enough and gain["doubly robust"].low > 0 and gain["SNIPS"].value > 0

    def findings(self) -> list[str]:
        """What is public, and what the log shows, in sentences; the gain is the last."""
        return [FEATURES_ARE_PUBLIC, *self._propensities(), *self._gain()]

    def _propensities(self) -> list[str]:
        if not self.off_policy.estimated:
            return []
        return [
            "Warning: no propensities were given. They were estimated from the features (logistic "
            "regression): if whatever chose the arms looked at anything else that matters, the "
            "estimates below are biased, and their intervals do not show it. Log the chance of "
            "each choice, and give its column with --propensity."
        ]

    def _gain(self) -> list[str]:
        names = ", ".join(self.scaling.names)
        gains = "; ".join(
            f"{method} {each.value:.3g}, 95 % interval {each.low:.3g} to {each.high:.3g}"
            for method, each in self.off_policy.gain.items()
        )
        sentence = (
            f"Deciding by {names} instead of playing the best single arm would gain, a decision: "
            f"{gains}. Both were fitted on one half of the log and evaluated on the other, both "
            "ways."
        )
        worth = min(value.effective for value in self.off_policy.values)
        if worth < _FEW:
            return [
                sentence,
                f"The rows that follow these policies are worth {worth:.0f}: too few to tell.",
            ]
        if not self.clear:
            return [
                sentence,
                "This log does not show that features help: no policy that decides by them is "
                "advised.",
            ]
        return [sentence]

    def advice(self) -> list[str]:
        """Whether a private policy with features is advised, in a sentence; where features help."""
        if not self.clear:
            return []
        if self.extra is None:
            return [
                "The gain is clear, but private policies with features need rewards in a range: "
                "give one with --range, --clip or --clip-from to see what they would do."
            ]
        extra, gain = self.extra, self.extra.gain
        played = (
            f"In worlds drawn from the log, of {self.horizon:,} rounds, {extra.label} "
            f"({extra.results.guarantee(extra.label)}) earns {gain.value:+.3g} a round against "
            f"{_WITHOUT}, which looks at no features; 95 % interval {gain.low:.3g} to "
            f"{gain.high:.3g}."
        )
        if extra.pays:
            return [f"The gain is clear. {played} It is advised, if features may be public."]
        return [
            f"The gain is clear, but not with privacy at this epsilon and horizon. {played} No "
            f"policy with features is advised. A longer run (--horizon), a larger epsilon, fewer "
            "features or a delta above 0 (--delta) may change that."
        ]

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        off, extra = self.off_policy, self.extra
        return {
            "public": FEATURES_ARE_PUBLIC,
            "propensities": "estimated" if off.estimated else "logged",
            "values": [
                {
                    "policy": value.policy,
                    "effective": value.effective,
                    **{method: value.estimates[method]._asdict() for method in OFF_POLICY_METHODS},
                }
                for value in off.values
            ],
            "gain": {method: off.gain[method]._asdict() for method in OFF_POLICY_METHODS},
            "clear": self.clear,
            "scaling": self.scaling.to_dict(),
            "advised": extra.label if extra is not None and extra.pays else None,
            "private": None
            if extra is None
            else {
                "policy": extra.policy.name,
                "parameters": extra.policy.parameters,
                "gain_a_round": extra.gain._asdict(),
                "standings": [row._asdict() for row in extra.standings],
            },
            "findings": [*self.findings(), *self.advice()],
        }


def measure_feature_gain(
    log: LogSummary, arena: LogTrial, repetitions: int, epsilon: float, delta: float
) -> FeatureGain | None:
    """What the log's features are worth; None where it has none.

    Private policies are played only where the log shows a gain, and rewards have a range.
    """
    if log.features is None:
        return None
    scaling = fit_scaling(log.features)
    rows = scaling.rows(log.features.table)
    off = evaluate_off_policy(
        log.rows_read.arms, log.rows_read.rewards, rows, log.propensities, log.people, arena.seed
    )
    limits = log.clip if log.clip is not None else log.reward_range
    ranged = log.kind == "bounded" or log.clip is not None
    context = FeatureGain(off, scaling, arena.rounds, ranged, None)
    if not (context.clear and ranged):
        return context
    low, high = limits
    rewards = (np.clip(log.rows_read.rewards, low, high) - low) / (high - low)
    fitted = coefficient_posterior(rows, log.rows_read.arms, rewards, len(log.labels))
    stage = dataclasses.replace(arena, worlds=lambda seed: draw_linear_worlds(rows, *fitted, seed))
    known = {"arms": len(log.labels), "horizon": arena.rounds, "epsilon": epsilon}
    extra = _play(stage, known, scaling, delta, repetitions)
    limits_of_policy: Any = {"reward_range": limits, "outside": log.outside}
    if log.clip is not None:
        limits_of_policy["outside"] = "clip"
    policy = type(extra.policy).create({**extra.policy.parameters, **limits_of_policy})
    scale = high - low
    gain = IntervalEstimate(*(scale * each for each in extra.gain))
    return context._replace(extra=extra._replace(policy=policy, gain=gain))


def draw_linear_worlds(
    rows: np.ndarray, theta: np.ndarray, roots: np.ndarray, seed: int
) -> Iterator[DrawnWorld]:
    """Worlds whose rewards are coins with means linear in the features of people of the log.

    The coefficients of each arm are drawn about those that were fitted, as far as the log leaves
    them open; means beyond [0, 1] are clipped.
    """
    rng = np.random.default_rng(seed)
    while True:
        order = rng.permutation(len(theta))
        drawn = theta + np.einsum("aij,aj->ai", roots, rng.standard_normal(theta.shape))
        people = rows[rng.integers(len(rows), size=min(len(rows), _CONTEXTS))]
        world: Any = make_environment(
            "linear",
            theta=drawn[order].ravel(),
            arms=len(theta),
            contexts="disjoint",
            table=people,
            outside="clip",
        )
        means = world.means_of_contexts
        yield DrawnWorld(world, order, float((means.max(axis=1) - means.mean(axis=1)).mean()))


def _play(
    arena: LogTrial, known: dict[str, Any], scaling: FeatureScaling, delta: float, repetitions: int
) -> FeatureTrial:
    """The private policy with features that did best on other draws, beside its baselines."""
    names = ["intercept", *scaling.names]
    linear: dict[str, Any] = {
        "arms": known["arms"],
        "features": names,
        "disjoint": True,
        "long_features": "clip",
    }
    private = {
        name: make_policy(name, epsilon=known["epsilon"], delta=delta, **linear)
        for name in _PRIVATE
    }
    plain = {"linucb": make_policy("linucb", **linear)}
    variants = {
        f"{name}({RADIUS_SCALE}={scale:g})": with_scale(policy, RADIUS_SCALE, scale)
        for name, policy in {**plain, **private}.items()
        for scale in _SCALES
    }
    trial, _ = arena.play(variants, _TRIALS, None, stream=4)
    cost = {label: float(trial.final_regret(label).mean()) for label in variants}
    best = {
        kind: min((label for label in variants if variants[label].name in kind), key=cost.get)  # type: ignore[arg-type]
        for kind in (_PRIVATE, ("linucb",))
    }
    policies = {
        AT_RANDOM: make_policy("random", arms=known["arms"]),
        "imed": make_policy("imed", arms=known["arms"]),
        _WITHOUT: make_policy(_WITHOUT, **known),
        **{label: variants[label] for label in best.values()},
    }
    results, at_random = arena.play(policies, repetitions, None, stream=3)
    label = best[_PRIVATE]
    saved = (results.final_regret(_WITHOUT) - results.final_regret(label)) / arena.rounds
    mean, reach = float(saved.mean()), float(plus_minus(saved))
    standings = sorted(
        (make_standing(results, each, at_random) for each in policies), key=lambda row: row.mean
    )
    gain = IntervalEstimate(mean, mean - reach, mean + reach)
    return FeatureTrial(variants[label], label, gain, tuple(standings), results)
