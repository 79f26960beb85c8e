"""Private policies with features, played on worlds drawn from a log whose features help."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from balaclava.advice.choose.context_advice import advise_features
from balaclava.advice.choose.recommend import policy_taking
from balaclava.advice.choose.scale_search import RADIUS_SCALE, with_scale
from balaclava.advice.log.feature_columns import FeatureScaling
from balaclava.advice.log.feature_gain import FeatureGain
from balaclava.advice.log.log_summary import LogSummary
from balaclava.advice.log.off_policy import IntervalEstimate, coefficient_posterior
from balaclava.advice.trial.log_trial import LogTrial
from balaclava.advice.trial.standings import AT_RANDOM, Standing, rank_policies
from balaclava.advice.trial.worlds import draw_linear_worlds
from balaclava.policies.base import Policy
from balaclava.policies.base import policy as make_policy
from balaclava.simulation.analysis.statistics import plus_minus
from balaclava.simulation.results import Results

_WITHOUT_FEATURES = "dp-imed"  # the private policy that policies with features must beat
_HALF_DECADES = (1.0, 0.3, 0.1)  # scales of a radius, down from the proof's constant
_WITH_FEATURES = {
    "dp-kernel-ucb": (0.85,),  # its default
    "dp-linucb": _HALF_DECADES,
    "dp-lin-ts": _HALF_DECADES,
    "ldp-linucb": _HALF_DECADES,
}
_LINEAR_TUNING_WORLDS = 4  # worlds to choose a scale and a policy on; few, for speed
_FEATURE_STREAM, _FEATURE_TUNING_STREAM = 3, 4  # of worlds; `compare` uses 1 and 2


class FeatureTrial(NamedTuple):
    """A private policy with features against one without, on drawn worlds."""

    policy: Policy
    label: str
    gain: IntervalEstimate  # of reward per round
    standings: tuple[Standing, ...]
    results: Results

    @property
    def pays(self) -> bool:
        """Whether it earns more, beyond chance."""
        return self.gain.low > 0

    def to_dict(self) -> dict[str, Any]:
        return {
            "policy": self.policy.name,
            "parameters": self.policy.parameters,
            "gain_a_round": self.gain._asdict(),
            "standings": [row._asdict() for row in self.standings],
        }


def feature_advice(gain: FeatureGain, trial: FeatureTrial | None) -> list[str]:
    """Whether a private policy with features is advised, in a sentence; empty without a gain."""
    if not gain.clear:
        return []
    if trial is None:
        return [
            "The gain is clear, but private policies with features need rewards in a range: give "
            "one with --range, --clip or --clip-from to try them."
        ]
    difference = trial.gain
    played = (
        f"In worlds drawn from the log, of {trial.results.horizon:,} rounds, {trial.label} "
        f"({trial.results.guarantee(trial.label)}) earns {difference.value:+.3g} per round against "
        f"{_WITHOUT_FEATURES}, which ignores features; 95 % interval {difference.low:.3g} to "
        f"{difference.high:.3g}. Regret below is against the best rule by features, so it "
        "is larger than above, where it is against the best arm."
    )
    if trial.pays:
        return [f"The gain is clear. {played} It is advised, if features may be public."]
    epsilon = trial.policy.guarantee.epsilon
    scaled = advise_features(1, False, "central", "bounded", "trajectory", epsilon).break_even
    if trial.results.horizon < scaled:
        played += f" On real tables features paid from about {scaled:,} rounds on at this epsilon."
    return [
        f"The gain is clear, but not with privacy at this epsilon and horizon. {played} No policy "
        "with features is advised. A longer run (--horizon), a larger epsilon, fewer features or a "
        "delta above 0 (--delta) may change that."
    ]


def play_with_features(
    log: LogSummary,
    gain: FeatureGain,
    trial: LogTrial,
    repetitions: int,
    epsilon: float,
    delta: float,
) -> FeatureTrial | None:
    """Play private policies with features; None unless features help and rewards have a range."""
    if not gain.clear or (log.kind != "bounded" and log.clip is None):
        return None
    low, high = limits = log.clip if log.clip is not None else log.reward_range
    rewards = (np.clip(log.logged.rewards, low, high) - low) / (high - low)
    fitted = coefficient_posterior(gain.rows, log.logged.arms, rewards, len(log.labels))
    trial = dataclasses.replace(
        trial,
        worlds=lambda seed: draw_linear_worlds(gain.rows, *fitted, seed),
        feedback=trial.feedback.in_units(limits),
    )
    known = {"arms": len(log.labels), "horizon": trial.rounds, "epsilon": epsilon}
    played = _play(trial, known, gain.scaling, delta, repetitions)
    outside = log.outside if log.clip is None else "clip"
    ranged = {**played.policy.parameters, "reward_range": limits, "outside": outside}
    return played._replace(
        policy=type(played.policy).create(ranged),
        gain=IntervalEstimate(*((high - low) * each for each in played.gain)),
    )


def _play(
    trial: LogTrial, known: dict[str, Any], scaling: FeatureScaling, delta: float, repetitions: int
) -> FeatureTrial:
    """Play the private policy with features that did best on other worlds, and baselines."""
    linear: dict[str, Any] = {
        "arms": known["arms"],
        "features": ["intercept", *scaling.names],
        "disjoint": True,
        "long_features": "clip",
    }
    variants: dict[str, Policy] = {}
    for name, scales in {"linucb": _HALF_DECADES, **_WITH_FEATURES}.items():
        policy = policy_taking(name, {"epsilon": known["epsilon"], "delta": delta, **linear})
        variants |= {
            f"{name}({RADIUS_SCALE}={scale:g})": with_scale(policy, RADIUS_SCALE, scale)
            for scale in scales
        }
    tuning, _ = trial.play(variants, _LINEAR_TUNING_WORLDS, None, stream=_FEATURE_TUNING_STREAM)
    cost = {label: float(tuning.final_regret(label).mean()) for label in variants}
    label, baseline = (
        min((each for each in variants if variants[each].name in names), key=cost.__getitem__)
        for names in (_WITH_FEATURES, ("linucb",))
    )
    policies = {
        AT_RANDOM: make_policy("random", arms=known["arms"]),
        "imed": make_policy("imed", arms=known["arms"]),
        _WITHOUT_FEATURES: make_policy(_WITHOUT_FEATURES, **known),
        **{each: variants[each] for each in (label, baseline)},
    }
    results, random_regret = trial.play(policies, repetitions, None, stream=_FEATURE_STREAM)
    saved = results.final_regret(_WITHOUT_FEATURES) - results.final_regret(label)
    saved = saved / trial.rounds
    mean, reach = float(saved.mean()), float(plus_minus(saved))
    gain = IntervalEstimate(mean, mean - reach, mean + reach)
    standings = rank_policies(results, random_regret)
    return FeatureTrial(variants[label], label, gain, standings, results)
