"""Which policy? A few answers about rewards and trust, and what follows from them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Annotated, Any, NamedTuple

from balaclava._core.declared import (
    Arms,
    Contamination,
    Delta,
    Epsilon,
    Experts,
    MomentBound,
    MomentOrder,
    Outside,
    Range,
    RewardRange,
    check,
)
from balaclava._core.number_format import rounded_up
from balaclava.advice.choose.contest import MAX_SIMULATED_ROUNDS, Contest, ContestRunner
from balaclava.advice.choose.expert_bounds import recommend_experts
from balaclava.advice.choose.plausible_problems import plausible
from balaclava.advice.choose.rules import Rewards, Rule, Trust, WantedScope, find_rule
from balaclava.errors import ParameterError
from balaclava.policies.base import REGISTRY, Policy
from balaclava.privacy.guarantee import Guarantee
from balaclava.simulation.analysis.statistics import mean_of_regret
from balaclava.simulation.engine import Progress
from balaclava.simulation.engine import simulate as play
from balaclava.simulation.reward_delays import Delay

# The constants of a proof explore for long. A smaller radius mostly has less regret, unproved, and
# the same privacy. A policy is recommended as it is proved. A baseline is tuned: of ten settings
# (two estimators, five radii) at 20,000 rounds this one was the best on resampled Pareto samples
# and the second on Pareto arms. So prices come out high, and are said to be against a tuned one.
# What else fits where a policy is recommended, and does better at some horizons. Of the others
# none beats playing at random by a margin that matters where these do not (short_trials.py).
ALSO = {
    "dp-imed": ("dp-klucb",),
    "ldp-ucb-bernoulli": ("ldp-ucb-laplace",),
    "dp-htinf": ("dp-tsallis-inf",),
}
BOLDER = {"dpr-batch-ucb": {"radius_scale": 0.2}}
_BASELINES: dict[str, dict[str, Any]] = {
    "robust-ucb": {"estimator": "median-of-means", "radius_scale": 0.03}
}

_ROUNDS_IN_ALL = 20_000_000  # that are simulated to say what a policy costs
_REPETITIONS = (4, 20)
_HARDLY = 0.8  # of the regret of choosing at random


class Expectation(NamedTuple):
    """Regret on a plausible instance, simulated."""

    instance: str
    rounds: int
    regret: float
    plus_minus: float  # half the width of the 95 % interval for the mean
    baseline_regret: float
    random_regret: float  # of choosing arms at random

    @property
    def in_vain(self) -> bool:
        """Whether it is hardly better than choosing at random: too little is learned."""
        return self.regret > _HARDLY * self.random_regret

    @property
    def price(self) -> float:
        """How many times the regret without privacy."""
        return self.regret / self.baseline_regret if self.baseline_regret > 0 else math.nan


@dataclass(frozen=True)
class Recommendation:
    """A policy, why it is, and what it promises; `expect` says what it costs."""

    policy: Policy
    learner: Policy  # of those that learn, the one that did best: the policy, or it is "random"
    baseline: Policy
    why: str
    rewards: Rewards
    horizon: int
    notes: tuple[str, ...] = ()
    contest: Contest | None = None  # what was played to find it

    @property
    def guarantee(self) -> Guarantee:
        """What the policy promises."""
        return self.policy.guarantee

    @property
    def baseline_label(self) -> str:
        """The name of the baseline, with the settings in which it was tuned."""
        name = self.baseline.name
        settings = ", ".join(f"{key}={value}" for key, value in _BASELINES.get(name, {}).items())
        return f"{name}({settings})" if settings else name

    @property
    def code(self) -> str:
        """The line of Python that makes the policy."""
        return code_of(self.policy)

    def expect(
        self,
        *,
        repetitions: int | None = None,
        seed: int = 1,
        delay: Delay | None = None,
        patience: int | None = None,
    ) -> Expectation:
        """Simulate the policy and its baseline on a plausible instance.

        Up to 10^6 rounds are played as they are; of longer runs the first 10^6.
        """
        rounds = min(self.horizon, MAX_SIMULATED_ROUNDS)
        world, words = plausible(self.rewards, self.learner, rounds)
        if repetitions is None:
            low, high = _REPETITIONS
            repetitions = min(max(_ROUNDS_IN_ALL // (2 * rounds), low), high)
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
        )
        if str(results.feedback):
            words += f", {results.feedback}"
        regret, reach = mean_of_regret(results, "policy")
        other = results.final_regret("baseline").mean()
        at_random = rounds * float(world.gaps.mean())
        return Expectation(words, rounds, regret, reach, float(other), at_random)

    def __str__(self) -> str:
        lines = [
            f"{self.policy.name}: {self.guarantee}",
            f"Why: {self.why}.",
            *(f"Note: {note}." for note in self.notes),
            f"Promise: {self.guarantee.explain()}",
            f"Use: {self.code}",
        ]
        return "\n".join(lines)


def recommend(
    *,
    arms: int | Sequence[str],
    horizon: int,
    epsilon: float = 1.0,
    delta: float | None = None,
    rewards: Rewards = "bounded",
    trust: Trust = "central",
    scope: WantedScope = "trajectory",
    reward_range: tuple[float, float] = (0.0, 1.0),
    outside: Outside = "refuse",
    moment_order: float | None = None,
    moment_bound: float | None = None,
    contamination: float | None = None,
    experts: int | None = None,
    simulate: bool = True,
    seed: int = 1,
    delay: Delay | None = None,
    patience: int | None = None,
    progress: Progress | None = None,
) -> Recommendation:
    """The policy that fits the rewards and the need for privacy, and did best when tried.

    The table `RULES` names the policies that fit. They are played on plausible problems at this
    horizon, epsilon and number of arms, which takes seconds, and the best is recommended. Where
    none beats playing at random by a margin that matters, "random" is, and a note says from which
    horizon or epsilon on one would.

    Args:
        arms: number of arms, or their names.
        horizon: number of rounds.
        epsilon: privacy loss.
        delta: probability outside it; left out, 0 where the policy can do without.
        rewards: "bounded" (in `reward_range`), "heavy-tailed" (a moment is known),
            "unknown-tails", "outliers" (as heavy-tailed, and some rewards are wrong),
            "adversarial" (losses in [0, 1], chosen by anyone) or "experts" (such losses, and
            advice).
        trust: "central" if the operator may see rewards, "local" if nobody may.
        scope: what an observer sees: the whole "trajectory", or one "decision".
        reward_range: the smallest and the largest reward, for bounded ones.
        outside: "refuse" rewards or losses outside the range, or "clip" them to it.
        moment_order: order of the known moment E|X|^k, for heavy tails and outliers.
        moment_bound: bound on that moment.
        contamination: bound on the share of outliers.
        experts: number of experts.
        simulate: play the candidates; without it the first that fits is taken, untried.
        seed: a whole number; the same seed gives the same advice.
        delay: how late rewards come, as in `bl.simulate`.
        patience: rounds after which a decision is given up.
        progress: called with the rounds played and the rounds in all.

    Example:
        >>> import balaclava as bl
        >>> advice = bl.recommend(arms=5, horizon=10_000, epsilon=1.0)
        >>> print(advice.code)
        bl.policy('dp-imed', arms=5, epsilon=1.0)
        >>> print(advice.guarantee)
        ε=1 per trajectory
        >>> bl.recommend(arms=4, horizon=500, epsilon=0.05).policy.name  # too little to learn from
        'random'
    """
    check("rewards", rewards, Rewards)
    check("trust", trust, Trust)
    check("scope", scope, WantedScope)
    parameters: dict[str, Any] = {
        "arms": check("arms", len(arms) if isinstance(arms, list | tuple) else arms, Arms),
        "horizon": check("horizon", horizon, Annotated[int, Range(2, 10**12)]),
        "epsilon": check("epsilon", epsilon, Epsilon),
        "delta": check("delta", delta, Delta | None),
        "reward_range": check("reward_range", reward_range, RewardRange),
        "outside": check("outside", outside, Outside),
        "moment_order": check("moment_order", moment_order, MomentOrder | None),
        "moment_bound": check("moment_bound", moment_bound, MomentBound | None),
        "contamination": check("contamination", contamination, Contamination | None),
        "experts": check("experts", experts, Experts | None),
    }
    parameters = {name: value for name, value in parameters.items() if value is not None}
    if rewards == "unknown-tails":
        # The baseline is told what the policy need not be.
        parameters = {"moment_order": 1.5, "moment_bound": 3.0} | parameters
    if rewards == "outliers" and "contamination" not in parameters:
        raise ParameterError(
            "contamination is missing; give a bound on the share of outliers, such as 0.05"
        )
    advice = _first_that_fits(find_rule(rewards, trust, scope), scope, parameters)
    if simulate and advice.policy.arms > 1:
        arena = ContestRunner(rewards, delay, patience, seed, progress)
        advice = _best_of_those_that_fit(advice, parameters, arena)
    if isinstance(arms, list | tuple):
        values = {**advice.policy.parameters, "arms": list(arms)}
        advice = replace(advice, policy=type(advice.policy).create(values))
    return advice


def _first_that_fits(rule: Rule, scope: WantedScope, parameters: dict[str, Any]) -> Recommendation:
    """The policy that the table names, untried."""
    notes = []
    if rule.scope is not None and rule.scope != scope:
        notes.append(
            "no policy here is made for single decisions on such rewards; this one protects all "
            "decisions of a run together"
        )
    if rule.policy in BOLDER:
        notes.append(
            f"a smaller radius_scale, such as {BOLDER[rule.policy]['radius_scale']}, mostly has "
            "less regret, which is not proved: a run may settle on a wrong arm; privacy is the same"
        )
    name, why = rule.policy, rule.why
    baseline = fitted(rule.baseline, {**parameters, **_BASELINES.get(rule.baseline, {})})
    if rule.rewards == "experts" and rule.trust == "central":
        name, why, more = _for_experts(rule, parameters)
        notes += more
    policy = fitted(name, parameters)
    horizon = parameters["horizon"]
    return Recommendation(policy, policy, baseline, why, rule.rewards, horizon, tuple(notes))


def _best_of_those_that_fit(
    first: Recommendation, parameters: dict[str, Any], arena: ContestRunner
) -> Recommendation:
    """What did best when played, or "random" if none of them was worth it."""
    name = first.policy.name
    candidates = {name: first.policy}
    for each in ALSO.get(name, ()):
        with contextlib.suppress(ParameterError):  # it does not take these numbers
            candidates[each] = fitted(each, parameters)
    contest = arena.contest(candidates, first.horizon)
    learner = contest.best.policy
    if not contest.pays:
        make = partial(_variant, name, parameters)
        return replace(
            first,
            policy=fitted("random", parameters),
            learner=learner,
            why="nothing that fits beats playing at random here by a margin that matters",
            notes=(arena.in_vain(contest, make, parameters["epsilon"], first.horizon),),
            contest=contest,
        )
    if learner is first.policy:
        return replace(first, contest=contest)
    why = f"of those that fit, {', '.join(candidates)}, it did best at this horizon and epsilon"
    return replace(first, policy=learner, learner=learner, why=why, contest=contest)


def _variant(name: str, parameters: dict[str, Any], **changes: Any) -> Policy:
    return fitted(name, {**parameters, **changes})


def _for_experts(rule: Rule, answers: dict[str, Any]) -> tuple[str, str, list[str]]:
    """Which policy is best depends on the numbers here: the one with the least proved regret."""
    parameters = {name: answers[name] for name in ("arms", "experts", "horizon", "epsilon")}
    ranking = recommend_experts(**parameters, delta=answers.get("delta", 0.0))
    best = ranking.candidates[0]
    if best.bound is None:
        return rule.policy, rule.why, ["no bound on its regret is proved for these numbers"]
    answers["learning_rate_scale"] = best.learning_rate_scale
    least = rounded_up(best.bound, ",.0f")
    why = f"{rule.why}; of such policies its proved regret is the least, {least}"
    empty = "that is no less than the horizon: raise horizon or epsilon, or have fewer experts"
    return best.policy, why, [empty] if ranking.empty else []


def fitted(name: str, parameters: dict[str, Any]) -> Policy:
    """The policy, given as much of what is offered as it takes."""
    cls = REGISTRY.get(name)
    return cls.create({key: value for key, value in parameters.items() if key in cls.annotations})


def settings_of(policy: Policy) -> dict[str, Any]:
    """The parameters that are not left at their defaults, as they were given."""
    defaults = {field.name: field.default for field in fields(policy)}
    return {
        name: policy.parameters[name] if name == "arms" else getattr(policy, name)
        for name in policy.annotations
        if getattr(policy, name) != defaults[name]
    }


def code_of(policy: Policy) -> str:
    """The line of Python that makes a policy."""
    arguments = [f"{name}={value!r}" for name, value in settings_of(policy).items()]
    return f"bl.policy({', '.join([repr(policy.name), *arguments])})"
