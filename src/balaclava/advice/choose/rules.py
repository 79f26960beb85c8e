"""Which policy fits which rewards, trust and scope: the table behind `bl.recommend`."""

from __future__ import annotations

from typing import Literal, NamedTuple

from balaclava.errors import ParameterError

Rewards = Literal["bounded", "heavy-tailed", "unknown-tails", "outliers", "adversarial", "experts"]
Trust = Literal["central", "local"]
WantedScope = Literal["trajectory", "decision"]


class Rule(NamedTuple):
    """For such rewards, such trust and such a scope: a policy, and the baseline beside it."""

    rewards: Rewards
    trust: Trust
    scope: WantedScope | None  # None: whatever is wanted, a report covers it
    policy: str
    baseline: str  # takes the same rewards, and promises nothing
    why: str


# The whole of the advice. The first line that fits holds; where no policy is made for single
# decisions, the line for trajectories does.
RECOMMENDATION_RULES = (
    Rule(
        *("bounded", "central", "trajectory", "dp-imed", "imed"),
        "it had the lowest regret of all policies with this scope on most problems that we tried",
    ),
    Rule(
        *("bounded", "central", "decision", "dp-ftpl-new", "imed"),
        "it spends the privacy loss on each decision by itself, with the exact noise for that",
    ),
    Rule(
        *("bounded", "local", None, "ldp-ucb-bernoulli", "imed"),
        "each person reports one random bit, which costs less than noise on a number",
    ),
    Rule(
        *("heavy-tailed", "central", "trajectory", "dpr-batch-ucb", "robust-ucb"),
        "it truncates rewards at a level that follows from the known moment, so that single large "
        "ones neither mislead it nor need much noise",
    ),
    Rule(
        *("unknown-tails", "central", "trajectory", "dpr-adaptive-ucb", "robust-ucb"),
        "it needs to be told nothing about the tails and finds a truncation level by itself",
    ),
    Rule(
        *("heavy-tailed", "local", None, "ldpr-batch-ucb", "robust-ucb"),
        "each person truncates and randomises a reward before it leaves them",
    ),
    Rule(
        *("outliers", "central", "trajectory", "dpr-batch-ucb", "robust-ucb"),
        "told a bound on the share of outliers, it widens its intervals by what they can do",
    ),
    Rule(
        *("outliers", "local", None, "ldpr-batch-ucb", "robust-ucb"),
        "each person truncates and randomises a reward before it leaves them; told a bound on the "
        "share of outliers, it widens its intervals by what they can do",
    ),
    Rule(
        *("adversarial", "central", "trajectory", "dp-htinf", "htinf"),
        "it assumes nothing about how losses are chosen",
    ),
    Rule(
        *("adversarial", "local", None, "ldp-exp3", "htinf"),
        "each person randomises a loss before it leaves them, and it assumes nothing about how "
        "losses are chosen",
    ),
    Rule(
        *("experts", "central", "trajectory", "dp-htinf-experts", "exp4"),
        "it follows the advice of the experts and assumes nothing about losses",
    ),
    Rule(
        *("experts", "local", None, "ldp-exp4", "exp4"),
        "each person randomises a loss before it leaves them",
    ),
)


def find_rule(rewards: str, trust: str, scope: str) -> Rule:
    """The line of the table that holds."""
    fitting = [
        rule for rule in RECOMMENDATION_RULES if (rule.rewards, rule.trust) == (rewards, trust)
    ]
    for wanted in (scope, None, "trajectory"):
        for rule in fitting:
            if rule.scope == wanted:
                return rule
    kinds = ", ".join(
        sorted({rule.rewards for rule in RECOMMENDATION_RULES if rule.trust == trust})
    )
    raise ParameterError(
        f"rewards = {rewards!r} with trust = {trust!r}: no policy here fits; with trust = "
        f"{trust!r} there are policies for {kinds}"
    )
