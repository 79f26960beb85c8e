"""Recommending a policy for given rewards, trust and scope."""

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, NamedTuple

from balaclava._core import declared
from balaclava._core.number_format import rounded_up
from balaclava.advice.choose.best_arm_advice import Goal, naming_advice, plan_around
from balaclava.advice.choose.contest import MAX_SIMULATED_ROUNDS, Contest, ContestRunner
from balaclava.advice.choose.context_advice import advise_features
from balaclava.advice.choose.expert_bounds import recommend_experts
from balaclava.advice.choose.plausible_problems import Around, plausible_problems
from balaclava.advice.choose.rules import RecommendationRule, Rewards, Trust, WantedScope, find_rule
from balaclava.advice.plan.trial_plan import TrialPlan
from balaclava.agents.settling import Settle, require_missing
from balaclava.errors import ParameterError
from balaclava.policies.base import POLICIES, Policy
from balaclava.policies.bounded.dp_top_two import AnswerConfidence
from balaclava.privacy.guarantee import Guarantee
from balaclava.simulation.analysis.statistics import mean_of_regret
from balaclava.simulation.engine import Progress
from balaclava.simulation.engine import simulate as play
from balaclava.simulation.feedback import Feedback
from balaclava.simulation.reward_delays import Delay

# Policies that fit too, and do better at some horizons. No other policy beats playing at random by
# a relevant margin where these do not (benchmarks/short_trials.py).
_ALTERNATIVES = {
    "dp-imed": ("dp-klucb",),
    "ldp-ucb-bernoulli": ("ldp-ucb-laplace",),
    "dp-htinf": ("dp-tsallis-inf",),
}
# A policy is recommended with the constants of its proof. A smaller radius mostly has less regret,
# unproved, at the same privacy.
_SMALLER_RADIUS_SCALE = {"dpr-batch-ucb": 0.2}
# Settings of a baseline. Of ten (two estimators, five radii) at 20,000 rounds this one was the best
# on resampled Pareto samples and the second best on Pareto arms.
_BASELINE_SETTINGS: dict[str, dict[str, Any]] = {
    "robust-ucb": {"estimator": "median-of-means", "radius_scale": 0.03}
}

# Of the parameters of `recommend` that policies take, in its order.
_PARAMETER_KINDS: dict[str, Any] = {
    "arms": declared.Arms,
    "horizon": Annotated[int, declared.Range(2, 10**12)],
    "epsilon": declared.Epsilon,
    "delta": declared.Delta | None,
    "confidence": AnswerConfidence,
    "reward_range": declared.RewardRange,
    "outside": declared.Outside,
    "moment_order": declared.MomentOrder | None,
    "moment_bound": declared.MomentBound | None,
    "contamination": declared.Contamination | None,
    "experts": declared.Experts | None,
}
_MOST_DELTA = 1e-5  # of hidden features at most; below 1 over the number of participants
_SINGLE_DECISIONS = (
    "policies for single decisions release no means, so they name no arm; this one protects the "
    "whole trajectory"
)
_NO_SPLIT_PLAN = (
    "plans are for one trusted server; simulate with winners=True how long it takes with two"
)
_EXPECTATION_ROUNDS = 20_000_000  # simulated rounds to estimate what a policy costs: seconds
_EXPECTATION_REPETITIONS = (4, 100)  # fewest for an interval, most for speed
_HARDLY_BETTER_SHARE = 0.8  # of the regret of playing at random, above which `choose` warns


class Expectation(NamedTuple):
    """Simulated regret on a plausible problem. Field names are those of the JSON output."""

    instance: str
    rounds: int
    regret: float
    plus_minus: float  # half the width of the 95 % interval for the mean
    baseline_regret: float
    random_regret: float  # of playing arms at random

    @property
    def hardly_better(self) -> bool:
        """Whether the policy is hardly better than playing at random."""
        return self.regret > _HARDLY_BETTER_SHARE * self.random_regret

    @property
    def price(self) -> float:
        """Regret as a multiple of the baseline's; NaN if that is 0."""
        return self.regret / self.baseline_regret if self.baseline_regret > 0 else math.nan


@dataclass(frozen=True)
class Recommendation:
    """A recommended policy and the reasons for it; `expect` simulates its regret.

    Attributes:
        policy: the recommended policy.
        learner: the best policy that learns: `policy`, unless that is "random".
        baseline: a policy for the same rewards without privacy.
        why: the reason, in words.
        rewards: the kind of rewards.
        horizon: rounds.
        notes: remarks, in sentences.
        contest: the simulation behind the choice; None if nothing was simulated.
        around: average and difference of the arms that are simulated; None if they are assumed.
        goal: what the policy is for; None if it was not asked.
        plan: participants until the best arm is named, for rewards in a range; None if no goal was
            given, or nothing was simulated.
    """

    policy: Policy
    learner: Policy
    baseline: Policy
    why: str
    rewards: Rewards
    horizon: int
    notes: tuple[str, ...] = ()
    contest: Contest | None = None
    around: Around | None = None
    goal: Goal | None = None
    plan: TrialPlan | None = None

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the policy."""
        return self.policy.guarantee

    @property
    def baseline_label(self) -> str:
        """The name of the baseline, with its tuned settings."""
        name = self.baseline.name
        tuned = _BASELINE_SETTINGS.get(name, {})
        settings = ", ".join(f"{key}={value}" for key, value in tuned.items())
        return f"{name}({settings})" if settings else name

    @property
    def code(self) -> str:
        """A line of Python that creates the policy."""
        return policy_code(self.policy)

    def expect(
        self,
        *,
        repetitions: int | None = None,
        seed: int = 1,
        delay: Delay | None = None,
        patience: int | None = None,
        settle: Settle = "arrival",
        missing: float | None = None,
    ) -> Expectation:
        """Simulate the policy and its baseline on a plausible problem.

        Args:
            repetitions: runs of each; by default 4 to 100, so that it takes seconds.
            seed: the same seed gives the same figures.
            delay, patience, settle, missing: how late rewards arrive, and when they count, as in
                `bl.simulate`.

        Returns:
            The regret of the policy, of its baseline and of playing at random, over the horizon
            or its first 10^6 rounds.

        Raises:
            ParameterError: if the policy decides by features.
        """
        if self.policy.features is not None:
            raise ParameterError(
                f"{self.policy.name} decides by features, and no problem with features is usual; "
                "simulate it on bl.environment('linear') or 'labelled', or ask a log with "
                "balaclava compare --features"
            )
        rounds = min(self.horizon, MAX_SIMULATED_ROUNDS)
        world, words = plausible_problems(self.rewards, self.learner, rounds, self.around)[0]
        if repetitions is None:
            low, high = _EXPECTATION_REPETITIONS
            repetitions = min(max(_EXPECTATION_ROUNDS // (2 * rounds), low), high)
        both = {"policy": self.policy, "baseline": self.baseline}
        results = play(
            both,
            world,
            horizon=rounds,
            repetitions=repetitions,
            seed=seed,
            checkpoints=1,
            delay=delay,
            patience=patience,
            settle=settle,
            missing=missing,
        )
        if str(results.feedback):
            words += f", {results.feedback}"
        regret, reach = mean_of_regret(results, "policy")
        other = results.final_regret("baseline").mean()
        at_random = rounds * float(world.gaps.mean())
        return Expectation(words, rounds, regret, reach, float(other), at_random)

    def __str__(self) -> str:
        notes = "".join(f"Note: {note}.\n" for note in self.notes)
        planned = "" if self.plan is None else f"Plan: {self.plan.sentence}\n"
        return (
            f"{self.policy.name}: {self.guarantee}\nWhy: {self.why}.\n{notes}{planned}"
            f"Promise: {self.guarantee.explain()}\nUse: {self.code}"
        )


def recommend(
    *,
    arms: int | Sequence[str],
    horizon: int,
    goal: Goal | None = None,
    epsilon: float = 1.0,
    delta: float | None = None,
    confidence: float = 0.95,
    rewards: Rewards = "bounded",
    trust: Trust = "central",
    scope: WantedScope = "trajectory",
    reward_range: tuple[float, float] = (0.0, 1.0),
    outside: declared.Outside = "refuse",
    moment_order: float | None = None,
    moment_bound: float | None = None,
    contamination: float | None = None,
    experts: int | None = None,
    features: int | None = None,
    hidden_features: bool = False,
    average: float | None = None,
    difference: float | None = None,
    simulate: bool = True,
    seed: int = 1,
    delay: Delay | None = None,
    patience: int | None = None,
    settle: Settle = "arrival",
    missing: float | None = None,
    progress: Progress | None = None,
) -> Recommendation:
    """Recommend the policy that fits the rewards and the need for privacy, and did best in trials.

    Plays the policies that fit on plausible problems at this horizon, epsilon and number of arms,
    for seconds. If none beats playing at random by a relevant margin, recommends "random". A note
    then tells from which horizon or epsilon on a policy would.

    With goal "best" it plans the trial instead (`bl.plan`): dp-top-two if nine of ten such trials
    name the best arm within the horizon; otherwise whichever of it and dp-even names it more often.

    Args:
        arms: number of arms, or their names.
        horizon: number of rounds: the participants that there are.
        goal: "regret" if as few participants as possible shall get a worse arm, "best" to know
            which arm is best. With either, for rewards in a range, the answer has a plan. None is
            "regret" without a plan.
        epsilon: privacy loss.
        delta: probability outside it; by default 0 if the policy allows it.
        confidence: chance that a named arm is the best.
        rewards: "bounded" (in `reward_range`), "heavy-tailed" (a moment is known),
            "unknown-tails", "outliers" (as heavy-tailed, and some rewards are wrong),
            "adversarial" (losses in [0, 1] that an adversary chooses) or "experts" (such losses,
            and advice).
        trust: "central" if the operator may see rewards, "split" if two servers hold shares of them
            and neither is trusted alone (bounded rewards), "local" if devices add the noise.
        scope: what an observer sees: the whole "trajectory" or one "decision".
        reward_range: the smallest and the largest reward, for bounded rewards.
        outside: "refuse" rewards or losses outside the range, or "clip" them to it.
        moment_order: order of the known moment E|X|^k, for heavy tails and outliers.
        moment_bound: bound on that moment.
        contamination: bound on the share of outliers.
        experts: number of experts.
        features: number of features of a participant, a constant included, if decisions may depend
            on them. Below the break-even measured on real tables, a note says so and they are left
            out. Nothing is simulated for them: `balaclava compare --features` asks a log.
        hidden_features: whether they are confidential too; by default they are public.
        average: what a usual arm earns, such as a conversion rate of 0.003, for bounded rewards.
            It sets the problems that are played, as does `difference`; by default means lie
            between 0.3 and 0.7, or as far from the ends of the range.
        difference: how far ahead of it the best arm is.
        simulate: play the candidates; without it the first that fits is taken.
        seed: a whole number; the same seed gives the same advice.
        delay, patience, settle, missing: how late rewards arrive, and when they count, as in
            `bl.simulate`: the plan and the trials are those of that mode.
        progress: called with the rounds played and the rounds in all.

    Returns:
        The policy, the reason for it, and its baseline.

    Raises:
        ParameterError: a number is missing or out of its range, or no policy fits.

    Example:
        >>> import balaclava as bl
        >>> advice = bl.recommend(arms=5, horizon=10_000, epsilon=1.0)
        >>> print(advice.code)
        bl.policy('dp-imed', arms=5, epsilon=1.0, horizon=10000)
        >>> print(advice.guarantee)
        ε=1 per trajectory
        >>> bl.recommend(arms=4, horizon=500, epsilon=0.05).policy.name  # too little to learn from
        'random'
    """
    declared.check("goal", goal, Goal | None)
    declared.check("rewards", rewards, Rewards)
    declared.check("trust", trust, Trust)
    declared.check("scope", scope, WantedScope)
    count = len(arms) if isinstance(arms, list | tuple) else arms
    answers = (count, horizon, epsilon, delta, confidence, reward_range, outside, moment_order,
               moment_bound, contamination, experts)  # fmt: skip
    parameters = _completed(rewards, trust, answers)
    feedback = Feedback.create(delay, patience, settle, missing)
    single = goal == "best" and rewards == "bounded" and trust == "central" and scope == "decision"
    wanted: WantedScope = "trajectory" if single else scope
    rule = find_rule(rewards, trust, wanted)
    advice = _first_that_fits(rule, wanted, parameters, (_SINGLE_DECISIONS,) if single else ())
    require_missing(advice.policy, feedback.settling)
    advice = replace(advice, goal=goal, around=_checked_around(advice, average, difference))
    if simulate and goal is not None and rewards == "bounded" and rule.scope != "decision":
        advice = _planned(advice, parameters, trust, feedback, seed)
    if goal == "best":
        advice = _naming(advice, rule, parameters)
    elif simulate:
        runner = ContestRunner(rewards, feedback, seed, progress, advice.around)
        advice = _best_that_fits(advice, parameters, runner)
    if features is not None:
        kinds = (hidden_features, trust, rewards, scope)
        advice = _with_features(advice, features, kinds, parameters)
    if isinstance(arms, list | tuple):
        values = {**advice.policy.parameters, "arms": list(arms)}
        advice = replace(advice, policy=type(advice.policy).create(values))
    return advice


def _with_features(
    advice: Recommendation,
    features: int,
    kinds: tuple[bool, Trust, Rewards, WantedScope],
    parameters: dict[str, Any],
) -> Recommendation:
    """A policy that decides by features, or a note that they do not pay yet."""
    features = declared.check("features", features, Annotated[int, declared.Range(1, 10_000)])
    epsilon, horizon = parameters["epsilon"], parameters["horizon"]
    context = advise_features(features, *kinds, epsilon)
    if horizon < context.break_even:
        note = (
            f"features are left out: on real tables {context.policy} had less regret than dp-imed "
            f"from about {context.break_even:,} rounds on at this epsilon"
        )
        return replace(advice, notes=(*advice.notes, note))
    known = {**parameters, "features": features, "disjoint": True}
    if context.policy == "dp-squarecb":
        known.setdefault("delta", min(_MOST_DELTA, 0.1 / horizon))
    policy, baseline = policy_taking(context.policy, known), policy_taking("linucb", known)
    return replace(
        advice, policy=policy, learner=policy, baseline=baseline, why=context.why,
        notes=(context.note,), contest=None, plan=None,
    )  # fmt: skip


def _completed(rewards: Rewards, trust: Trust, answers: tuple[Any, ...]) -> dict[str, Any]:
    """The parameters, with what the baseline needs; refuses those that do not fit together."""
    checked = {
        name: declared.check(name, value, kind)
        for (name, kind), value in zip(_PARAMETER_KINDS.items(), answers, strict=True)
    }
    parameters = {name: value for name, value in checked.items() if value is not None}
    if trust == "split":  # a parameter of the policy; the other policies have one trust each
        parameters = {**parameters, "trust": trust}
    if parameters["arms"] < 2:
        raise ParameterError("arms = 1 leaves nothing to choose; give at least 2")
    low, high = parameters["reward_range"]
    if not low < high:
        raise ParameterError(f"reward_range = ({low:g}, {high:g}) is empty; give the smaller first")
    if rewards == "outliers" and "contamination" not in parameters:
        raise ParameterError("contamination is missing; bound the share of outliers, such as 0.05")
    if rewards == "unknown-tails":
        # The baseline needs a moment; the policy does not.
        return {"moment_order": 1.5, "moment_bound": 3.0} | parameters
    return parameters


def _checked_around(
    advice: Recommendation, average: float | None, difference: float | None
) -> Around | None:
    if average is None and difference is None:
        return None
    if average is None or difference is None or advice.rewards != "bounded":
        raise ParameterError("give average and difference together, and for bounded rewards only")
    around = Around(average, difference)
    plausible_problems(advice.rewards, advice.policy, 1, around)  # refuses means outside it
    return around


def _first_that_fits(
    rule: RecommendationRule,
    scope: WantedScope,
    parameters: dict[str, Any],
    first_notes: tuple[str, ...],
) -> Recommendation:
    """The policy of the rule, without a trial."""
    notes = list(first_notes)
    if rule.scope is not None and rule.scope != scope:
        notes.append(
            "no policy for such rewards is made for single decisions; this one protects the whole "
            "trajectory"
        )
    if rule.scope is None and scope == "decision":
        notes.append(
            "with local trust the scope does not matter: each report is randomised on its device, "
            "so one decision and all decisions are protected alike"
        )
    if rule.policy in _SMALLER_RADIUS_SCALE:
        notes.append(
            f"a smaller radius_scale, such as {_SMALLER_RADIUS_SCALE[rule.policy]}, mostly has "
            "less regret. That is not proved: a run may settle on a wrong arm. Privacy is the same"
        )
    name, why = rule.policy, rule.why
    tuned = _BASELINE_SETTINGS.get(rule.baseline, {})
    baseline = policy_taking(rule.baseline, parameters | tuned)
    if rule.rewards == "experts" and rule.trust == "central":
        name, why, more = _for_experts(rule, parameters)
        notes += more
    policy = policy_taking(name, parameters)
    horizon = parameters["horizon"]
    return Recommendation(policy, policy, baseline, why, rule.rewards, horizon, tuple(notes))


def _planned(
    advice: Recommendation, parameters: dict[str, Any], trust: str, feedback: Feedback, seed: int
) -> Recommendation:
    """Add a plan, or a note why there is none."""
    if trust == "split":
        return replace(advice, notes=(*advice.notes, _NO_SPLIT_PLAN))
    try:
        plan = plan_around(parameters, trust, advice.around, feedback, seed)
    except ParameterError as error:
        return replace(advice, notes=(*advice.notes, f"there is no plan: {error}"))
    return replace(advice, plan=plan)


def _naming(
    first: Recommendation, rule: RecommendationRule, parameters: dict[str, Any]
) -> Recommendation:
    """The policy that names the best arm."""
    naming = naming_advice(rule, first.plan)
    try:
        policy = policy_taking(naming.name, parameters | naming.changes)
    except ParameterError:  # dp-even refuses a horizon that allows no answer
        naming = naming_advice(rule, None)._replace(notes=naming.notes)
        policy = policy_taking(naming.name, parameters)
    notes = [note for note in first.notes if "radius_scale" not in note]
    return replace(
        first, policy=policy, learner=policy, why=naming.why, notes=(*notes, *naming.notes)
    )


def _best_that_fits(
    first: Recommendation, parameters: dict[str, Any], runner: ContestRunner
) -> Recommendation:
    """The policy that did best in simulation, or "random" if none pays."""
    name = first.policy.name
    candidates = {name: first.policy}
    for each in _ALTERNATIVES.get(name, ()):
        with contextlib.suppress(ParameterError):  # it refuses these parameters
            candidates[each] = policy_taking(each, parameters)
    contest = runner.run(candidates, first.horizon)
    learner = contest.best.policy
    if not contest.pays:

        def make(**changes: Any) -> Policy:
            return policy_taking(name, {**parameters, **changes})

        return replace(
            first,
            policy=policy_taking("random", parameters),
            learner=learner,
            why="nothing that fits beats playing at random here by a relevant margin",
            notes=(runner.explain_failure(contest, make, parameters["epsilon"], first.horizon),),
            contest=contest,
        )
    if learner is first.policy:
        return replace(first, contest=contest)
    why = f"of those that fit, {', '.join(candidates)}, it did best at this horizon and epsilon"
    return replace(first, policy=learner, learner=learner, why=why, contest=contest)


def _for_experts(rule: RecommendationRule, answers: dict[str, Any]) -> tuple[str, str, list[str]]:
    """The policy for experts with the least proved regret, which depends on the numbers."""
    parameters = {name: answers[name] for name in ("arms", "experts", "horizon", "epsilon")}
    ranking = recommend_experts(**parameters, delta=answers.get("delta", 0.0))
    best = ranking.candidates[0]
    if best.bound is None:
        return rule.policy, rule.why, ["no bound on its regret is proved for these numbers"]
    answers["learning_rate_scale"] = best.learning_rate_scale
    least = rounded_up(best.bound, ",.0f")
    why = f"{rule.why}; its proved regret is the least of such policies, {least}"
    empty = "that is no less than the horizon: raise horizon or epsilon, or use fewer experts"
    return best.policy, why, [empty] if ranking.empty else []


def policy_taking(name: str, parameters: dict[str, Any]) -> Policy:
    """The policy with the parameters that it takes; ignores the others."""
    cls = POLICIES.get(name)
    return cls.create({key: value for key, value in parameters.items() if key in cls.annotations})


def changed_parameters(policy: Policy) -> dict[str, Any]:
    defaults = {field.name: field.default for field in fields(policy)}
    return {
        name: policy.parameters[name] if name == "arms" else getattr(policy, name)
        for name in policy.annotations
        if getattr(policy, name) != defaults[name]
    }


def policy_code(policy: Policy) -> str:
    """A line of Python that creates the policy."""
    arguments = [f"{name}={value!r}" for name, value in changed_parameters(policy).items()]
    return f"bl.policy({', '.join([repr(policy.name), *arguments])})"
