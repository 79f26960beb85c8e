"""Which policy fits which rewards, trust and scope: the table behind `bl.recommend`."""

from typing import Literal, NamedTuple

from balaclava.errors import ParameterError

Rewards = Literal["bounded", "heavy-tailed", "unknown-tails", "outliers", "adversarial", "experts"]
Trust = Literal["central", "split", "local"]
WantedScope = Literal["trajectory", "decision"]


class RecommendationRule(NamedTuple):
    """The policy for a kind of rewards, a trust model and a scope, and its baseline."""

    rewards: Rewards
    trust: Trust
    scope: WantedScope | None  # None: any, because a report covers both
    policy: str
    baseline: str  # takes the same rewards, without privacy
    why: str


# The first rule that fits applies. If no policy is made for single decisions, the rule for
# trajectories applies. Which policies do best is measured by benchmarks/short_trials.py.
RECOMMENDATION_RULES = (
    RecommendationRule(
        *("bounded", "central", "trajectory", "dp-imed", "imed"),
        "it had the least regret of all policies with this scope on most problems that we tried",
    ),
    RecommendationRule(
        *("bounded", "central", "decision", "dp-ftpl-new", "imed"),
        "it spends the privacy loss on each decision separately, with noise that is exact for it",
    ),
    RecommendationRule(
        *("bounded", "local", None, "ldp-ucb-bernoulli", "imed"),
        "each participant reports one random bit, which costs less than noise on a number",
    ),
    RecommendationRule(
        *("heavy-tailed", "central", "trajectory", "dpr-batch-ucb", "robust-ucb"),
        "it truncates rewards at a level that follows from the known moment, so that large ones "
        "neither mislead it nor need much noise",
    ),
    RecommendationRule(
        *("unknown-tails", "central", "trajectory", "dpr-adaptive-ucb", "robust-ucb"),
        "it needs no knowledge of the tails: it finds a truncation level itself",
    ),
    RecommendationRule(
        *("heavy-tailed", "local", None, "ldpr-batch-ucb", "robust-ucb"),
        "each device truncates and randomises a reward before it reports it",
    ),
    RecommendationRule(
        *("outliers", "central", "trajectory", "dpr-batch-ucb", "robust-ucb"),
        "given a bound on the share of outliers, it widens its intervals by their largest effect",
    ),
    RecommendationRule(
        *("outliers", "local", None, "ldpr-batch-ucb", "robust-ucb"),
        "each device truncates and randomises a reward before it reports it; given a bound on the "
        "share of outliers, the policy widens its intervals by their largest effect",
    ),
    RecommendationRule(
        *("adversarial", "central", "trajectory", "dp-htinf", "htinf"),
        "it assumes nothing about how losses are chosen",
    ),
    RecommendationRule(
        *("adversarial", "local", None, "ldp-exp3", "htinf"),
        "each device randomises a loss before it reports it, and it assumes nothing about how "
        "losses are chosen",
    ),
    RecommendationRule(
        *("experts", "central", "trajectory", "dp-htinf-experts", "exp4"),
        "it follows the advice of the experts and assumes nothing about losses",
    ),
    RecommendationRule(
        *("experts", "local", None, "ldp-exp4", "exp4"),
        "each device randomises a loss before it reports it",
    ),
)


def find_rule(rewards: str, trust: str, scope: str) -> RecommendationRule:
    """The first rule that fits; that of a trusted server if two servers hold shares."""
    if trust == "split" and rewards == "bounded":
        rule = find_rule(rewards, "central", "trajectory")
        return rule._replace(
            trust="split",
            why=f"{rule.why}; two servers add up shares of rewards, and each adds the full noise",
        )
    rules = [rule for rule in RECOMMENDATION_RULES if rule.trust == trust]
    for wanted in (scope, None, "trajectory"):
        for rule in rules:
            if (rule.rewards, rule.scope) == (rewards, wanted):
                return rule
    kinds = ", ".join(sorted({rule.rewards for rule in rules})) or "bounded"
    raise ParameterError(
        f"no policy fits rewards = {rewards!r} with trust = {trust!r}; with trust = {trust!r} "
        f"rewards may be {kinds}"
    )
