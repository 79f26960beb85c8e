"""Parameters from answers: moments from typical rewards, and which answers matter."""

import math
from typing import Annotated, Any, NamedTuple

from balaclava._core.declared import Range, check
from balaclava.advice.choose.best_arm_advice import NAMING_POLICIES
from balaclava.advice.choose.plausible_problems import (
    CalibrationProblems,
    plausible_problems,
    problems_around,
)
from balaclava.advice.choose.recommend import Recommendation, policy_taking, recommend
from balaclava.advice.choose.rules import RECOMMENDATION_RULES, find_rule
from balaclava.advice.log import tail_index
from balaclava.errors import ParameterError
from balaclava.policies.base import Policy

_WHEN_REWARDS = {  # when another kind of rewards would apply
    "bounded": "no reward can leave a range that you know",
    "heavy-tailed": "rewards are now and then very large",
    "outliers": "some rewards are wrong",
    "adversarial": "rewards follow no law, or an adversary chooses them",
}


class DerivedMoment(NamedTuple):
    """A moment bound that follows from a typical reward and a rare large one."""

    order: float
    bound: float
    tail_index: float
    average: float  # of |reward|
    derivation: str


def derive_moment(typical: float, largest: float, one_in: float) -> DerivedMoment:
    """A moment bound for a policy for heavy tails, from three answers.

    Half of the sizes |X| are above `typical` = m, and one in n above `largest` = L. A power law
    through both, P(|X| > x) = (s / x)^a, has index a = ln(n / 2) / ln(L / m) and scale
    s = m / 2^(1/a); its moment of order k < a is a s^k / (a - k). The order taken is 0.95 a, at
    most 2; the bound is rounded up to two digits.

    >>> moment = derive_moment(typical=20, largest=500, one_in=10_000)
    >>> moment.order, moment.bound
    (2.0, 980.0)
    """
    typical = check("typical", typical, Annotated[float, Range(0, open_low=True)])
    largest = check("largest", largest, Annotated[float, Range(0, open_low=True)])
    one_in = check("one_in", one_in, Annotated[float, Range(2, open_low=True)])
    if largest <= typical:
        raise ParameterError(
            f"largest = {largest:g} is not above typical = {typical:g}; give a rare, larger reward"
        )
    index = math.log(one_in / 2) / math.log(largest / typical)
    low, high = tail_index.MOMENT_ORDERS
    order = float(f"{min(tail_index.MOMENT_ORDER_PER_INDEX * index, high):.3g}")
    if order < low:
        raise ParameterError(
            f"one in {one_in:g} above {largest:g} beside a typical {typical:g} is a tail of index "
            f"{index:.2f}, whose average is infinite or nearly so; clip rewards (bounded, with "
            "a range), or choose unknown-tails"
        )
    scale = typical / 2 ** (1 / index)
    moment = index * scale**order / (index - order)
    bound = tail_index.round_up_two_digits(moment)
    derivation = (
        f"half of the rewards above {typical:g} and one in {one_in:,g} above {largest:g} make a "
        f"power law of index ln({one_in:g}/2) / ln({largest:g}/{typical:g}) = {index:.3g}. Its "
        f"moment of order {order:g} is {moment:.3g}, so E|reward|^{order:g} is at most {bound:g}. "
        "Signs do not matter. Regret depends on this bound; privacy does not"
    )
    return DerivedMoment(order, bound, index, index * scale / (index - 1), derivation)


def what_would_change(advice: Recommendation, *, trust: str, scope: str) -> list[str]:
    """Which other answers lead to another policy, in sentences."""
    rewards, name = advice.rewards, advice.policy.name
    sentences = []
    if rewards == "bounded" and advice.goal != "best":
        sentences.append(f"{NAMING_POLICIES[trust]}, if you want to know which arm is best")
    elif rewards == "bounded":
        other = find_rule(rewards, trust, scope)
        sentences.append(f"{other.policy}, if as few as possible shall get a worse arm")
    flipped = "local" if trust == "central" else "central"
    if any((rule.rewards, rule.trust) == (rewards, flipped) for rule in RECOMMENDATION_RULES):
        other = find_rule(rewards, flipped, scope)
        who = "the operator is not trusted" if flipped == "local" else "the operator is trusted"
        sentences.append(f"{other.policy}, if {who}")
    if trust != "split" and rewards == "bounded":
        other = find_rule(rewards, "split", scope)
        sentences.append(f"{other.policy} with trust='split', if one of two servers is trusted")
    if trust == "central":
        flipped = "decision" if scope == "trajectory" else "trajectory"
        other = find_rule(rewards, trust, flipped)
        if other.scope == flipped and other.policy != name:
            what = "one decision only" if flipped == "decision" else "all decisions"
            sentences.append(f"{other.policy}, if an observer sees {what}")
    for kind, when in _WHEN_REWARDS.items():
        fits = any((rule.rewards, rule.trust) == (kind, trust) for rule in RECOMMENDATION_RULES)
        if kind != rewards and fits:
            sentences.append(f"{find_rule(kind, trust, scope).policy}, if {when}")
    if advice.contest is not None and len(advice.contest.standings) > 1:
        first, second = advice.contest.standings[:2]
        if advice.policy is advice.learner and first.share > 0:
            sentences.append(
                f"{second.label}, at another horizon or epsilon: here it has "
                f"{second.share / first.share:.2g} times the regret"
            )
    return sentences


def policy_for(answers: dict[str, Any], name: str) -> Policy:
    """The policy of that name for such answers; the recommended one if it has that name."""
    advised = recommend(**answers, simulate=False).policy
    return advised if advised.name == name else policy_taking(name, answers)


def problems_for(
    policy: Policy,
    answers: dict[str, Any],
    rounds: int,
    *,
    average: float | None = None,
    difference: float | None = None,
    index: float | None = None,
) -> CalibrationProblems:
    """Environments to calibrate on: around an average, or those that `choose` plays."""
    if average is not None and difference is not None:
        limits = answers.get("reward_range", (0.0, 1.0))
        return problems_around(policy.arms, average, difference, reward_range=limits, index=index)
    kinds = plausible_problems(answers["rewards"], policy, rounds)
    words = "; ".join(text for _, text in kinds)
    worlds = {f"problem {i}": world for i, (world, _) in enumerate(kinds, start=1)}
    return CalibrationProblems(worlds, {}, words)
