"""From the summary of a log to a ranking of the policies that fit it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, NamedTuple

from balaclava._core.declared import Delta, Epsilon, Range, check
from balaclava.advice.choose.recommend import policy_code, recommend
from balaclava.advice.choose.rules import RECOMMENDATION_RULES, Rewards
from balaclava.advice.choose.scale_search import RADIUS_SCALE, regret_cost, with_scale
from balaclava.advice.log.feature_gain import FeatureGain, estimate_feature_gain
from balaclava.advice.log.log_summary import LogSummary
from balaclava.advice.log.participants import Participants
from balaclava.advice.trial.drift_trial import DriftTrial, play_with_drift
from balaclava.advice.trial.feature_trial import FeatureTrial, feature_advice, play_with_features
from balaclava.advice.trial.log_trial import LogTrial
from balaclava.advice.trial.rows_needed import RowsNeeded, rows_needed
from balaclava.advice.trial.standings import AT_RANDOM, Standing, mean_ratio, rank_policies
from balaclava.advice.trial.worlds import LogWorlds, log_environment
from balaclava.agents.settling import Settle
from balaclava.policies.base import Policy
from balaclava.policies.base import policy as make_policy
from balaclava.simulation.analysis.statistics import CONFIDENCE
from balaclava.simulation.engine import Progress
from balaclava.simulation.feedback import Feedback
from balaclava.simulation.results import Results
from balaclava.simulation.reward_delays import Delay

ONE_AHEAD = (
    "One arm is far ahead of others that look alike. The shares of regret are then predicted too "
    "high: in trials with known arms their 95 % intervals held the truth in 82 to 96 % of logs."
)
LOG_NOT_PRIVATE = (
    "Looking at a log is not itself private: this output depends on its rewards, and is as "
    "confidential as the log. A policy, a range or a scale chosen here depends on those rewards, "
    "outside epsilon."
)
# Radius scales tried for private policies and baselines: factors of 2 down from the proof's
# constant. Finer steps change regret by a few per cent, less than its spread over worlds.
_TUNING_SCALES = tuple(2.0**-k for k in range(8))
_TUNING_WORLDS = (4, 8)  # fewest and most worlds to choose a scale on
_TUNING_ROUNDS = 200_000  # rounds per policy and scale, divided among the worlds: seconds in all
_TUNING_STREAM = 2  # of worlds, apart from stream 1 that policies are ranked on
PLAUSIBLE_WORLDS = 1_000  # drawn for the interval of a share; nothing is played in them
_MAX_NAMED_ARMS = 12  # arms named in a line of code; more make it unreadable
# Fewest and most rounds by default. With 30 repetitions the most take seconds on two cores.
_DEFAULT_ROUNDS = (1_000, 50_000)


class Candidate(NamedTuple):
    """A private policy that takes such rewards, why it fits, and its baseline."""

    policy: Policy
    why: str
    baseline: str


class Price(NamedTuple):
    """Regret of a private policy as a multiple of its baseline's; both are tuned the same way."""

    label: str
    baseline: str
    times: float
    plus_minus: float


@dataclass(frozen=True)
class Comparison:
    """Policies that take the rewards of a log, ranked on worlds drawn from it."""

    log: LogSummary
    candidates: dict[str, Candidate]
    results: Results
    standings: tuple[Standing, ...]
    equal: (
        float  # p-value of the test that all arms are equal, and share of worlds in which they are
    )
    prices: tuple[Price, ...]
    participants: Participants | None
    feature_gain: FeatureGain | None = None  # if the log has features
    feature_trial: FeatureTrial | None = None  # if they help
    drift_trial: DriftTrial | None = None  # if averages drift and rewards have a range
    rows_needed: RowsNeeded | None = None  # to name the best arm, if averages do not drift
    one_ahead: bool = False  # whether one arm is far ahead of others that look alike

    @property
    def fitting(self) -> dict[str, str]:
        """Private policies that clearly beat playing at random, best first, and why they fit."""
        return {
            row.label: self.candidates[row.label].why
            for row in self.standings
            if row.label in self.candidates and row.beats_random
        }

    @property
    def others(self) -> list[str]:
        return [label for label in self.candidates if label not in self.fitting]

    @property
    def best(self) -> str | None:
        """The fitting policy with the least regret; None if no policy fits.

        If averages drift, the policy that does best with that drift; none without a trial of it.
        Policies that protect the whole trajectory come first: only the operator knows what an
        observer sees, and this is the safe assumption.
        """
        if self.log.drifts:
            return None if self.drift_trial is None else self.drift_trial.best
        scopes = {label: self.candidates[label].policy.guarantee.scope for label in self.fitting}
        return min(scopes, key=lambda label: scopes[label] != "trajectory", default=None)

    def named(self, label: str) -> Policy:
        """A policy with the names of the arms, unless they are many."""
        policies = {label: each.policy for label, each in self.candidates.items()}
        if self.drift_trial is not None:
            policies |= self.drift_trial.policies
        policy = policies[label]
        if len(self.log.labels) > _MAX_NAMED_ARMS:
            return policy
        return type(policy).create({**policy.parameters, "arms": self.log.labels})

    def findings(self) -> list[str]:
        """That arms may be equal, how many rows it takes, and whether no policy fits."""
        sentences = []
        if self.equal > 1 - CONFIDENCE and not self.log.best_arm_test.conclusive:
            sentences = [
                "This log does not show that any arm is better: if all were equal, differences as "
                f"large as these would come by chance with probability {self.equal:.2g}. Among "
                "equal arms no policy gains anything over playing at random."
            ]
        if self.one_ahead:
            sentences.append(ONE_AHEAD)
        if self.rows_needed is not None:
            sentences += self.rows_needed.sentences()
        if self.fitting:
            return sentences
        return [
            *sentences,
            "No private policy clearly beats playing at random here: at this epsilon and horizon "
            "there is too little to learn, or the log is too uncertain. A longer run (--horizon), "
            "a larger epsilon or more rows may change that.",
            *self._least_regret(),
        ]

    def _least_regret(self) -> Iterator[str]:
        """The private policy with the least regret, in a sentence."""
        row = next(row for row in self.standings if row.label in self.candidates)
        if row.share == row.share:
            yield (
                f"The private policy with the least regret is {row.label}: it has {row.share:.0%} "
                f"of that of playing at random, 95 % interval {row.share_low:.0%} to "
                f"{row.share_high:.0%}."
            )

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, for JSON; as confidential as the log."""
        log, people = self.log, self.participants
        caps = [] if people is None else [cap._asdict() for cap in people.caps]
        return {
            "confidential": LOG_NOT_PRIVATE,
            "log": {
                "path": log.path,
                "rows": log.rows,
                "kind": log.kind,
                "format": log.logged.kind,
                "detected": list(log.logged.detected),
                "left_out": list(log.left_out),
                "arms": [row._asdict() for row in log.arms],
                "weighted": [row._asdict() for row in log.weighted_arms],
                "best": {**log.best_arm_test._asdict(), "told": log.best_arm_test.conclusive},
                "findings": log.findings(),
            },
            "people": None if people is None else people._asdict() | {"caps": caps},
            "equal": self.equal,
            "rows_needed": None if self.rows_needed is None else self.rows_needed.to_dict(),
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
            "context": self._features_to_dict(),
            "drift": None if self.drift_trial is None else self.drift_trial.to_dict(),
            "prices": [price._asdict() for price in self.prices],
            "findings": self.findings(),
            "use": None if self.best is None else policy_code(self.named(self.best)),
        }

    def _features_to_dict(self) -> dict[str, Any] | None:
        gain, trial = self.feature_gain, self.feature_trial
        if gain is None:
            return None
        return {
            **gain.to_dict(),
            "advised": trial.label if trial is not None and trial.pays else None,
            "private": None if trial is None else trial.to_dict(),
            "findings": [*gain.findings(), *feature_advice(gain, trial)],
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
    settle: Settle = "arrival",
    missing: float | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Play the policies that take such rewards on worlds drawn from the log.

    Each repetition has its own world, drawn from the log's uncertainty; all policies play in the
    same worlds. Radius scales, of private policies and baselines alike, are chosen on other worlds.
    `delta` is for policies with features only. The horizon is by default the rows of the log, at
    least 1,000 and at most 50,000.

    Example:
        >>> import tempfile, pathlib
        >>> from balaclava.advice.log.log_reading import summarise_log
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder, "log.csv")
        ...     _ = file.write_text("ad,click\\n" + "a,0\\nb,1\\n" * 30 + "a,1\\nb,0\\n" * 10)
        ...     log = summarise_log(file, arm="ad", reward="click")
        >>> log.kind, log.counts, log.best_arm_test.conclusive
        ('bounded', {'a': 40, 'b': 40}, True)
    """
    epsilon = check("epsilon", epsilon, Epsilon)
    delta = check("delta", delta, Delta)
    repetitions = check("repetitions", repetitions, Annotated[int, Range(2)])
    rounds = default_rounds(log) if horizon is None else horizon
    candidates, baselines = _candidates(log, epsilon, rounds)
    worlds = LogWorlds(log)
    feedback = Feedback.create(delay, patience, settle, missing)
    trial = LogTrial(worlds.draw, log_environment(log), rounds, seed, feedback, workers)
    # A scale matters only if arms differ.
    tuning = replace(trial, worlds=partial(worlds.draw, ties=False))
    candidates, baselines = _tune_scales(tuning, candidates, baselines)
    policies = {
        AT_RANDOM: make_policy("random", arms=len(log.labels)),
        **baselines,
        **{label: candidate.policy for label, candidate in candidates.items()},
    }
    results, random_regret = trial.play(policies, repetitions, progress)
    standings = rank_policies(results, random_regret, rounds * worlds.gaps(PLAUSIBLE_WORLDS, seed))
    gain = estimate_feature_gain(log, seed)
    return Comparison(
        log,
        candidates,
        results,
        standings,
        worlds.equal,
        tuple(_prices(results, candidates, standings)),
        log.per_participant(next(iter(candidates.values())).policy.guarantee),
        gain,
        gain and play_with_features(log, gain, trial, repetitions, epsilon, delta),
        play_with_drift(log, worlds, trial, epsilon, repetitions),
        None if log.drifts else rows_needed(log, worlds, PLAUSIBLE_WORLDS, seed, epsilon),
        worlds.averages.one_ahead,
    )


def default_rounds(log: LogSummary) -> int:
    """The horizon if none is given: the rows of the log, within limits."""
    low, high = _DEFAULT_ROUNDS
    return min(max(log.rows, low), high)


def _candidates(
    log: LogSummary, epsilon: float, rounds: int
) -> tuple[dict[str, Candidate], dict[str, Policy]]:
    """Private policies by label, and their baselines, at the constants of their proofs."""
    known: dict[str, Any] = {"arms": len(log.labels), "horizon": rounds, "epsilon": epsilon}
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
            beside, label = _labelled(baseline.name, setting), _labelled(rule.policy, setting)
            baselines[beside] = baseline
            candidates[label] = Candidate(advice.policy, advice.why, beside)
    return candidates, baselines


def _labelled(label: str, setting: str) -> str:
    """A label with one more setting in its brackets."""
    if not setting:
        return label
    return f"{label[:-1]}, {setting})" if label.endswith(")") else f"{label}({setting})"


def _tune_scales(
    trial: LogTrial, candidates: dict[str, Candidate], baselines: dict[str, Policy]
) -> tuple[dict[str, Candidate], dict[str, Policy]]:
    """Add the best radius scale of each private policy, and replace that of each baseline."""
    policies = {**baselines, **{label: each.policy for label, each in candidates.items()}}
    variants = {
        (label, scale): with_scale(policy, RADIUS_SCALE, scale)
        for label, policy in policies.items()
        if RADIUS_SCALE in policy.annotations
        for scale in _TUNING_SCALES
    }
    if not variants:
        return candidates, baselines
    best = _best_scales(trial, variants)
    renamed = {label: text for label, (_, text, scale) in best.items() if scale != 1.0}
    tuned_baselines = {
        renamed.get(label, label): variants[label, best[label][2]] if label in best else policy
        for label, policy in baselines.items()
    }
    tuned: dict[str, Candidate] = {}
    for label, each in candidates.items():
        baseline = renamed.get(each.baseline, each.baseline)
        tuned[label] = each._replace(baseline=baseline)
        if label in renamed:
            why = (
                f"{each.why}; its {RADIUS_SCALE} was chosen on other draws, which gives up the "
                "proof of regret, not that of privacy"
            )
            tuned[renamed[label]] = Candidate(variants[label, best[label][2]], why, baseline)
            # A price of the proof's constants against a tuned baseline would mislead.
            tuned[label] = tuned[label]._replace(baseline="")
    return tuned, tuned_baselines


def _best_scales(
    trial: LogTrial, variants: Mapping[tuple[str, float], Policy]
) -> dict[str, tuple[float, str, float]]:
    """The least cost of each policy on the tuning worlds, with its label and its scale."""
    labels = {_labelled(key[0], f"{RADIUS_SCALE}={key[1]:g}"): key for key in variants}
    few, many = _TUNING_WORLDS
    results, random_regret = trial.play(
        {text: variants[key] for text, key in labels.items()},
        min(max(_TUNING_ROUNDS // trial.rounds, few), many),
        None,
        stream=_TUNING_STREAM,
    )
    best: dict[str, tuple[float, str, float]] = {}
    for text, (label, scale) in labels.items():
        shares = results.final_regret(text) / max(float(random_regret.mean()), 1e-300)
        tuned = (regret_cost(shares), text, scale)
        best[label] = min(best.get(label, tuned), tuned)
    return best


def _prices(
    results: Results, candidates: Mapping[str, Candidate], standings: Iterable[Standing]
) -> Iterable[Price]:
    """The price of each private policy that clearly learns, if its baseline does too."""
    learns = {row.label for row in standings if row.beats_random}
    for label, candidate in candidates.items():
        if label in learns and candidate.baseline in learns:
            both = (results.final_regret(each) for each in (label, candidate.baseline))
            yield Price(label, candidate.baseline, *mean_ratio(*both))
