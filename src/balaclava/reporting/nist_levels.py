"""The levels of NIST SP 800-226's pyramid: each rests on the levels below it.

The software answers what it can. Questions that only the owner can answer get a blank.
"""

from __future__ import annotations

from math import exp
from typing import NamedTuple

from balaclava._core.number_format import rounded_up
from balaclava.policies.base import Policy
from balaclava.privacy.guarantee import NEIGHBOURS_IN_TIME, NOTIONS, Guarantee
from balaclava.reporting.quick_audits import AuditSummary


class NistLevel(NamedTuple):
    """One level: the software's statement, its check, and questions to the owner."""

    key: str
    title: str
    statement: str
    check: str
    questions: dict[str, str]  # by the key of the answer


def nist_levels(
    policy: Policy,
    rewards_per_person: int | None,
    audit: AuditSummary | None,
    guarantee: Guarantee | None = None,
) -> list[NistLevel]:
    """The eight levels, from epsilon down to how data are collected.

    Args:
        policy: the policy under assessment.
        rewards_per_person: at most; None if they are not counted.
        audit: its audit, if there was one.
        guarantee: that of the deployment, if it differs from the policy's.
    """
    guarantee = guarantee or policy.guarantee
    return [
        _epsilon(guarantee),
        _unit(guarantee, rewards_per_person),
        _algorithm(policy, audit),
        _accuracy(),
        _trust(guarantee),
        _side_channels(guarantee),
        _storage(guarantee),
        _collection(),
    ]


def _epsilon(guarantee: Guarantee) -> NistLevel:
    kind = (
        "This is pure differential privacy: delta is 0, and the limit always holds."
        if guarantee.delta == 0
        else "This is approximate differential privacy: with probability delta, "
        f"{rounded_up(guarantee.delta)}, the limit may fail. Delta should be far below 1 divided "
        "by the number of people."
    )
    return NistLevel(
        "epsilon",
        "Epsilon and delta",
        f"{guarantee}. {_odds(guarantee.epsilon)} {kind}",
        "By the proof that the policy cites: "
        f"{guarantee.reference or 'see the documentation of the policy'}. OpenDP's samplers draw "
        "the noise exactly, on a grid of whole steps. Noise in floating point would reveal its "
        "input.",
        {
            "why_epsilon": "Why is this epsilon acceptable for these rewards, and who decided it?",
            "other_releases": "What else is released about the same people? Losses add up.",
            "tuned": "Was anything (the policy, a range, a scale) chosen by looking at such "
            "rewards? That is outside epsilon.",
        },
    )


def _odds(epsilon: float) -> str:
    # Beyond 20 the exact factor means nothing to a reader.
    factor = rounded_up(exp(epsilon), ".3g") if epsilon < 20 else "more than 10^8"
    return (
        "An observer of the protected output can raise or lower the odds of a guess about one "
        f"reward by a factor of at most {factor}."
    )


def _unit(guarantee: Guarantee, count: int | None) -> NistLevel:
    linked = {"linked": "Could one person's reward change another's? Then both count."}
    if count is None:
        return NistLevel(
            "unit",
            "Unit of privacy",
            f"These look alike to an observer: {guarantee.neighbours}. No guarantee covers a "
            "person: rewards came without one, so any number may belong to the same person.",
            "The software counted rewards, not people: it does not know who gives them.",
            {"cap": "How many rewards may one person give, and who counts them?", **linked},
        )
    person = (
        "One person gives one reward, so the guarantee of a reward is the guarantee of a person."
        if count == 1
        else f"One person gives at most {count} rewards. All of them together have the guarantee "
        f"{guarantee.for_rewards(count)}: {count} times less protected than a person who gives one."
    )
    return NistLevel(
        "unit",
        "Unit of privacy",
        "The unit is one reward, an event, not a person's whole history. These look alike to an "
        f"observer: {guarantee.neighbours}. {person}",
        "Group privacy: epsilon is multiplied by the number of rewards, delta by a little more. "
        "The software counts rewards, not people: it cannot see who gives them.",
        {"cap": f"How do you ensure that no person gives more than {count}?", **linked},
    )


def _algorithm(policy: Policy, audit: AuditSummary | None) -> NistLevel:
    if audit is None:
        check = "Not audited for this page."
    else:
        check = (
            f"Audited for this page, verdict: {audit.verdict}. Replay: {audit.replay}. "
            f"Laws: {audit.laws}. Exact: {audit.exact}. Statistical: {audit.statistical}. An "
            "audit can refute; it cannot prove."
        )
    settings = ", ".join(f"{k} = {v}" for k, v in policy.parameters.items() if v is not None)
    title = (type(policy).__doc__ or "").strip().split("\n")[0]
    return NistLevel(
        "algorithm",
        "Algorithm and its correctness",
        f"{policy.name}: {title} Parameters: {settings}.",
        check,
        {"changes": "Who decides on updates of the software, and is it audited again then?"},
    )


def _accuracy() -> NistLevel:
    return NistLevel(
        "accuracy",
        "Accuracy and bias",
        "Privacy never changes who may be given an arm; it slows down learning. Regret and risk "
        "are below. The policy finds the arm that is best on average over all people. It does not "
        "know groups: the best arm on average may be worse for some of them.",
        "By simulation on the problem below, which is an assumption. Estimates of the arms have "
        "intervals that hold in every round. If missing rewards differ from the others, the "
        "estimates describe only the others.",
        {
            "groups": "Which groups may be served worse by the arm that wins, and how is that "
            "detected?",
            "missing": "Which rewards never arrive, and do they differ from the others?",
            "readers": "Who acts on the result, and do they see how uncertain it is?",
        },
    )


def _trust(guarantee: Guarantee) -> NistLevel:
    trusted = (
        "No one needs to be trusted with rewards: the owner's device randomises each reward before "
        "anything leaves it. The software of the device is trusted."
        if guarantee.model == "local"
        else "The operator sees the rewards and is trusted with them, and so is every machine that "
        "handles them. The guarantee covers what others see: the decisions, and estimates made "
        "from releases."
    )
    return NistLevel(
        "trust",
        "Who is trusted",
        f"{trusted} {NOTIONS[guarantee.scope] if guarantee.private else ''}",
        "By the model of the proof. An audit plays an observer who knows every decision and all "
        "other rewards.",
        {"operator": "Who operates it, under which rules, and who audits them?"},
    )


def _side_channels(guarantee: Guarantee) -> NistLevel:
    covers = "covers" if guarantee.neighbours == NEIGHBOURS_IN_TIME else "does not cover"
    return NistLevel(
        "side_channels",
        "Side channels",
        f"The guarantee {covers} when a reward arrived and whether it arrived. It does not cover "
        "when a decision was made and how long it took, who took part, memory, caches, power, and "
        "other logs.",
        "The software writes no reward into logs, errors, metrics or plots. Response times were "
        "not measured for this page.",
        {"timing": "Can an outsider see when people take part, or how long a response takes?"},
    )


def _storage(guarantee: Guarantee) -> NistLevel:
    stored = (
        "Stored data contain reports, which are already randomised."
        if guarantee.model == "local"
        else "Saves and the service's database contain sums of raw rewards, and are as "
        "confidential as the rewards. Two copies that continue from one save would spend epsilon "
        "twice; the software detects and refuses that."
    )
    return NistLevel(
        "storage",
        "Security of stored data",
        stored,
        "Saves carry a digest, and restoring one checks every part. Access to the disk is outside "
        "the software.",
        {
            "access": "Who can read stored data, and how are they encrypted and backed up?",
            "keys": "Who may request decisions, estimates and pages, and how is that revoked?",
            "deletion": "When are rewards and saves deleted?",
        },
    )


def _collection() -> NistLevel:
    return NistLevel(
        "collection",
        "How data are collected",
        "The software needs one number for each decision: no name, no contact, no feature.",
        "It refuses rewards outside the declared range, or clips them, as the policy is set. Other "
        "data that you collect are outside the software.",
        {
            "consent": "How are people informed, can they decline, and what happens if they do?",
            "minimum": "What else is collected, and why?",
        },
    )
