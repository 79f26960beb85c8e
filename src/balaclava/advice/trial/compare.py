"""`balaclava compare`: from a log of decisions to a report on which policies would suit it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np

from balaclava._core.declared import Delta, Epsilon, Range, check
from balaclava.advice.choose.recommend import code_of, recommend
from balaclava.advice.choose.rules import RECOMMENDATION_RULES, Rewards
from balaclava.advice.choose.scale_search import with_scale
from balaclava.advice.log.log_summary import LogSummary
from balaclava.advice.log.participants import Participants
from balaclava.advice.log.worlds import draw_worlds
from balaclava.advice.trial.feature_trial import FeatureGain, measure_feature_gain
from balaclava.advice.trial.log_trial import LogTrial
from balaclava.advice.trial.standings import (
    AT_RANDOM,
    RADIUS_SCALE,
    Standing,
    make_standing,
    mean_ratio,
)
from balaclava.policies.base import Policy
from balaclava.policies.base import policy as make_policy
from balaclava.simulation.engine import Progress
from balaclava.simulation.feedback import Feedback
from balaclava.simulation.results import Results
from balaclava.simulation.reward_delays import Delay

LOG_NOT_PRIVATE = (
    "Looking at a log is not itself private: what is printed and drawn here tells something about "
    "the rewards in it, and is as confidential as the log. Whatever is chosen by it (a policy, a "
    "range, a scale) was chosen by looking at those rewards, outside epsilon."
)
_SCALES = tuple(2.0**-k for k in range(8))  # that are tried, for private policies and baselines
_TRIALS = (4, 8)  # worlds to choose a scale on; the fewer the longer the runs
_TRIAL_ROUNDS = 200_000
_WORST = 0.1  # weight of the worst run, as in `bl.calibrate`
_NAMED = 12  # arms, at most, that are named in a line of code
_ROUNDS = (1_000, 50_000)  # by default: seconds, for a million rows


class Candidate(NamedTuple):
    """A private policy that takes such rewards, why it is here, and the baseline beside it."""

    policy: Policy
    why: str
    baseline: str


class Price(NamedTuple):
    """How many times the regret of its baseline a private policy has; both chosen the same way."""

    label: str
    baseline: str
    times: float
    plus_minus: float


@dataclass(frozen=True)
class Comparison:
    """Policies that take the rewards of a log, and how they did on worlds drawn from it."""

    log: LogSummary
    candidates: dict[str, Candidate]
    results: Results
    standings: tuple[Standing, ...]
    prices: tuple[Price, ...]
    people: Participants | None
    context: FeatureGain | None = None  # what features are worth, where there are some

    @property
    def fitting(self) -> dict[str, str]:
        """Those that clearly beat playing at random, and why they are there; the best first."""
        return {
            row.label: self.candidates[row.label].why
            for row in self.standings
            if row.label in self.candidates and row.beats_random
        }

    @property
    def others(self) -> list[str]:
        """Private policies that do not."""
        return [label for label in self.candidates if label not in self.fitting]

    @property
    def best(self) -> str | None:
        """The label of the policy with the least regret, of those that fit.

        Policies that protect all decisions together come first: what an observer sees of a run is
        for its owner to say, and until then this is the safe assumption.
        """
        scopes = {label: self.candidates[label].policy.guarantee.scope for label in self.fitting}
        return min(scopes, key=lambda label: scopes[label] != "trajectory", default=None)

    def named(self, label: str) -> Policy:
        """A candidate with the arms' names, unless they are many."""
        policy = self.candidates[label].policy
        if len(self.log.labels) > _NAMED:
            return policy
        return type(policy).create({**policy.parameters, "arms": self.log.labels})

    def findings(self) -> list[str]:
        """What to make of it, in sentences."""
        if self.fitting:
            return []
        return [
            "No private policy clearly beats playing at random here: at this epsilon and horizon "
            "there is too little to learn, or the log leaves too much open. A longer run "
            "(--horizon), a larger epsilon or more rows may change that."
        ]

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON. It holds averages of the log: as confidential as the log."""
        log = self.log
        return {
            "confidential": LOG_NOT_PRIVATE,
            "log": {
                "path": log.path,
                "rows": log.rows,
                "kind": log.kind,
                "format": log.rows_read.kind,
                "detected": list(log.rows_read.detected),
                "left_out": list(log.left_out),
                "arms": [row._asdict() for row in log.arms],
                "weighted": [row._asdict() for row in log.weighted],
                "best": {**log.telling._asdict(), "told": log.telling.told},
                "findings": log.findings(),
            },
            "people": None
            if self.people is None
            else {**self.people._asdict(), "caps": [cap._asdict() for cap in self.people.caps]},
            "horizon": self.results.horizon,
            "seed": self.results.seed,
            "policies": [
                {
                    **row._asdict(),
                    "policy": self.results.policies[row.label].name,
                    "parameters": self.results.policies[row.label].parameters,
                    "fits": row.label in self.fitting,
                }
                for row in self.standings
            ],
            "context": None if self.context is None else self.context.to_dict(),
            "prices": [price._asdict() for price in self.prices],
            "findings": self.findings(),
            "use": None if self.best is None else code_of(self.named(self.best)),
        }


def compare(
    log: LogSummary,
    *,
    epsilon: float = 1.0,
    delta: float = 0.0,
    horizon: int | None = None,
    repetitions: int = 30,
    seed: int = 1,
    delay: Delay | None = None,
    patience: int | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Play the policies that take such rewards on worlds that the log leaves possible.

    Each repetition has a world of its own, drawn from the log's uncertainty; all policies meet the
    same worlds. Scales of confidence radii, of private policies and of baselines alike, are chosen
    on other draws. The horizon is by default the number of rows, within 1,000 and 50,000. `delta`
    is for policies with features, which are played where the log has features that clearly help.
    `delay` and `patience` are those of `bl.simulate`: how late rewards come, and how long they are
    waited for.

    Example:
        >>> import tempfile, pathlib
        >>> from balaclava.advice.log.log_reading import read
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder, "log.csv")
        ...     _ = file.write_text("ad,click\\n" + "a,0\\nb,1\\n" * 30 + "a,1\\nb,0\\n" * 10)
        ...     log = read(file, arm="ad", reward="click")
        >>> log.kind, log.counts, log.telling.told
        ('bounded', {'a': 40, 'b': 40}, True)
    """
    epsilon = check("epsilon", epsilon, Epsilon)
    delta = check("delta", delta, Delta)
    repetitions = check("repetitions", repetitions, Annotated[int, Range(2)])
    low, high = _ROUNDS
    rounds = min(max(log.rows, low), high) if horizon is None else horizon
    candidates, baselines = _candidates(log, epsilon, rounds)
    arena = LogTrial(
        lambda number: draw_worlds(log, number),
        log.world,
        rounds,
        seed,
        Feedback.create(delay, patience),
        workers,
    )
    candidates, baselines = _with_scales(arena, candidates, baselines)
    policies = {
        AT_RANDOM: make_policy("random", arms=log.world.arms),
        **baselines,
        **{label: candidate.policy for label, candidate in candidates.items()},
    }
    results, at_random = arena.play(policies, repetitions, progress)
    standings = tuple(
        sorted(
            (make_standing(results, label, at_random) for label in policies), key=lambda r: r.mean
        )
    )
    promise = next(iter(candidates.values())).policy.guarantee
    return Comparison(
        log,
        candidates,
        results,
        standings,
        tuple(_prices(results, candidates, standings)),
        log.per_person(promise),
        measure_feature_gain(log, arena, repetitions, epsilon, delta),
    )


def _candidates(
    log: LogSummary, epsilon: float, rounds: int
) -> tuple[dict[str, Candidate], dict[str, Policy]]:
    """Private policies by label and the baselines beside them, at their proofs' constants."""
    known: dict[str, Any] = {"arms": log.world.arms, "horizon": rounds, "epsilon": epsilon}
    ranged = {"reward_range": log.reward_range, "outside": log.outside}
    groups: list[tuple[tuple[Rewards, ...], dict[str, Any], str]] = [(("bounded",), ranged, "")]
    if log.kind != "bounded":
        moment = {"moment_order": log.moment_order, "moment_bound": log.moment_bound}
        groups = [(("heavy-tailed", "unknown-tails"), moment, "")]
        if log.clip is not None:
            limits = {"reward_range": log.clip, "outside": "clip"}
            groups.append((("bounded",), limits, "clipped"))
    candidates: dict[str, Candidate] = {}
    baselines: dict[str, Policy] = {}
    for kinds, parameters, setting in groups:
        for rule in (rule for rule in RECOMMENDATION_RULES if rule.rewards in kinds):
            advice = recommend(
                rewards=rule.rewards,
                trust=rule.trust,
                scope=rule.scope or "trajectory",
                simulate=False,
                **known,
                **parameters,
            )
            baseline = advice.baseline
            if RADIUS_SCALE in baseline.annotations:
                baseline = with_scale(baseline, RADIUS_SCALE, 1.0)
            beside = _labelled(baseline.name, setting)
            baselines[beside] = baseline
            candidates[_labelled(rule.policy, setting)] = Candidate(
                advice.policy, advice.why, beside
            )
    return candidates, baselines


def _labelled(label: str, setting: str) -> str:
    """A label with one more setting in its brackets."""
    if not setting:
        return label
    return f"{label[:-1]}, {setting})" if label.endswith(")") else f"{label}({setting})"


def _with_scales(
    arena: LogTrial, candidates: dict[str, Candidate], baselines: dict[str, Policy]
) -> tuple[dict[str, Candidate], dict[str, Policy]]:
    """Each scale that did best on other draws; private policies are kept as proved, too."""
    policies = {**baselines, **{label: each.policy for label, each in candidates.items()}}
    variants = {
        (label, scale): with_scale(policy, RADIUS_SCALE, scale)
        for label, policy in policies.items()
        if RADIUS_SCALE in policy.annotations
        for scale in _SCALES
    }
    if not variants:
        return candidates, baselines
    labels = {
        _labelled(label, f"{RADIUS_SCALE}={scale:g}"): (label, scale) for label, scale in variants
    }
    few, many = _TRIALS
    trial, at_random = arena.play(
        {text: variants[key] for text, key in labels.items()},
        min(max(_TRIAL_ROUNDS // arena.rounds, few), many),
        None,
        stream=2,
    )
    best: dict[str, tuple[float, str, float]] = {}
    for text, (label, scale) in labels.items():
        regret = trial.final_regret(text) / max(float(at_random.mean()), 1e-300)
        cost = float(regret.mean() + _WORST * regret.max())
        best[label] = min(best.get(label, (np.inf, "", 0.0)), (cost, text, scale))
    renamed = {label: text for label, (_, text, scale) in best.items() if scale != 1.0}
    tuned_baselines = {
        renamed.get(label, label): variants.get((label, best[label][2]), policy)
        if label in best
        else policy
        for label, policy in baselines.items()
    }
    tuned: dict[str, Candidate] = {}
    for label, each in candidates.items():
        other = renamed.get(each.baseline, each.baseline)
        tuned[label] = each._replace(baseline=other)
        if label in renamed:
            scale = best[label][2]
            why = f"{each.why}; its {RADIUS_SCALE} was chosen on other draws, which gives up the "
            why += "proof of regret, not that of privacy"
            tuned[renamed[label]] = Candidate(variants[label, scale], why, other)
            # The proof's constants beside a baseline that was tuned would say nothing.
            tuned[label] = tuned[label]._replace(baseline="")
    return tuned, tuned_baselines


def _prices(
    results: Results, candidates: Mapping[str, Candidate], standings: Iterable[Standing]
) -> Iterable[Price]:
    """The price of each that clearly learns, against a baseline that does."""
    learns = {row.label for row in standings if row.beats_random}
    for label, candidate in candidates.items():
        if label in learns and candidate.baseline in learns:
            times, reach = mean_ratio(
                results.final_regret(label), results.final_regret(candidate.baseline)
            )
            yield Price(label, candidate.baseline, times, reach)
