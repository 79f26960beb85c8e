"""The questions of NIST SP 800-226, level by level of its pyramid: the top rests on what is below.

What the software can answer stands here; what only the owner can is a question with a blank.
"""

from __future__ import annotations

from typing import NamedTuple

from balaclava._core.number_format import rounded_up
from balaclava.policies.base import Policy
from balaclava.privacy.guarantee import NEIGHBOURS_IN_TIME, NOTIONS, Guarantee
from balaclava.reporting.quick_audits import AuditSummary


class NistLevel(NamedTuple):
    """One level of the pyramid."""

    key: str
    title: str
    statement: str
    check: str
    questions: dict[str, str]  # that only the owner can answer, by the key of the answer


def nist_levels(
    policy: Policy,
    rewards_per_person: int | None,
    audit: AuditSummary | None,
    promise: Guarantee | None = None,
) -> list[NistLevel]:
    """From epsilon down to how data are collected.

    `rewards_per_person` is None where nobody counts them; `promise` is what is promised where the
    policy runs, if that is not what the policy promises by itself.
    """
    promise = promise or policy.guarantee
    return [
        _epsilon(promise),
        _unit(promise, rewards_per_person),
        _algorithm(policy, audit),
        _accuracy(policy),
        _trust(promise),
        _side_channels(promise),
        _storage(promise),
        _collection(),
    ]


def _epsilon(promise: Guarantee) -> NistLevel:
    return NistLevel(
        "epsilon",
        "Epsilon and delta",
        f"{promise}. {_odds(promise.epsilon)} "
        + (
            "This is pure differential privacy: delta is 0, and the limit always holds."
            if promise.delta == 0
            else "This is approximate differential privacy: with probability "
            f"{rounded_up(promise.delta)}, delta, the limit may fail. Delta should be far below 1 "
            "/ the number of people."
        ),
        "By the proof that the policy cites: "
        + (promise.reference or "see the policy's documentation")
        + ". Noise is drawn exactly, on a grid of whole steps, by OpenDP's samplers; noise in "
        "floating point would give its input away.",
        {
            "why_epsilon": "Why is this epsilon acceptable for these rewards, and who decided it?",
            "other_releases": "What else is released about the same people? Losses add up.",
            "tuned": "Was anything (the policy, a range, a scale) chosen by looking at such "
            "rewards? That is outside epsilon.",
        },
    )


def _odds(epsilon: float) -> str:
    from math import exp

    factor = rounded_up(exp(epsilon), ".3g") if epsilon < 20 else "more than 10^8"
    return (
        "Whoever sees what is protected can raise or lower the odds of a guess about one reward "
        f"by a factor of at most {factor}."
    )


def _unit(promise: Guarantee, count: int | None) -> NistLevel:
    if count is None:
        return _uncounted(promise)
    person = promise.for_rewards(count)
    same = "One person gives one reward, so that the guarantee for a reward is one for a person."
    more = (
        f"One person gives at most {count} rewards. For all of them together the guarantee is "
        f"{person}: {count} times less protected than someone who gives one."
    )
    return NistLevel(
        "unit",
        "Unit of privacy",
        "The unit is one reward, an event, not all that a person ever does. What looks alike: "
        f"{promise.neighbours}. {same if count == 1 else more}",
        "Group privacy: epsilon is multiplied by the number of rewards, delta by a little more. "
        "The software counts rewards, not people: it cannot see who gives them.",
        {
            "cap": f"How is it made sure that nobody gives more than {count}?",
            "linked": "Could one person's reward change another's? Then both count.",
        },
    )


def _uncounted(promise: Guarantee) -> NistLevel:
    return NistLevel(
        "unit",
        "Unit of privacy",
        f"What looks alike: {promise.neighbours}. Nothing is promised to a person: rewards came "
        "without one, so that any number of them may be one person's.",
        "The software counted rewards, not people: it was not told who gives them.",
        {
            "cap": "How many rewards may one person give, and who counts them?",
            "linked": "Could one person's reward change another's? Then both count.",
        },
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


def _accuracy(policy: Policy) -> NistLevel:
    return NistLevel(
        "accuracy",
        "Accuracy and bias",
        "Privacy never changes who may be given an arm; it slows down learning. Regret and risk "
        "are "
        "below. The policy finds the arm that is best on average over all people: it knows no "
        "groups, and an arm that is best on average may be worse for some.",
        "By simulation on the problem below, which is an assumption. Estimates of the arms come "
        "with intervals that hold in every round; if rewards that never come differ from those "
        "that do, they are estimates of the latter.",
        {
            "groups": "Which groups may be served worse by the arm that wins, and how is that "
            "seen?",
            "missing": "Which rewards never come, and do they differ from those that do?",
            "readers": "Who acts on the result, and do they see how uncertain it is?",
        },
    )


def _trust(promise: Guarantee) -> NistLevel:
    trusted = (
        "Nobody need be trusted with rewards: each is randomised on its owner's device before "
        "anything leaves it. The device's software is trusted."
        if promise.model == "local"
        else "The operator, who sees the rewards, is trusted with them, and so is every machine "
        "that they pass. What is protected is what others see: the decisions, and estimates made "
        "from releases."
    )
    return NistLevel(
        "trust",
        "Who is trusted",
        f"{trusted} {NOTIONS[promise.scope] if promise.private else ''}",
        "By the model of the proof; an audit plays the observer, with every decision and all other "
        "rewards known.",
        {"operator": "Who operates it, under which rules, and who audits them?"},
    )


def _side_channels(promise: Guarantee) -> NistLevel:
    timed = promise.neighbours == NEIGHBOURS_IN_TIME
    covered = "are covered" if timed else "are not covered"
    return NistLevel(
        "side_channels",
        "Side channels",
        f"When a reward came and whether it came {covered} by the guarantee. Not covered: when a "
        "decision was made and how long it took, who took part, memory, caches, power, and "
        "whatever is written to other logs.",
        "The software writes no reward into logs, errors, metrics or plots. Time to answer was not "
        "measured for this page.",
        {"timing": "Can anyone outside see when people take part, or how long an answer takes?"},
    )


def _storage(promise: Guarantee) -> NistLevel:
    kept = (
        "What is stored holds reports, which are already randomised."
        if promise.model == "local"
        else "What is stored to go on later (a save, the service's database) holds sums of raw "
        "rewards, and is as confidential as they are. A fork, two copies that go on from one save, "
        "would spend epsilon twice; the software notices and refuses."
    )
    return NistLevel(
        "storage",
        "Security of what is stored",
        kept,
        "Saves carry a digest, and every part is checked when they are restored. Who can read the "
        "disk is outside the software.",
        {
            "access": "Who can read what is stored, and how is it encrypted and backed up?",
            "keys": "Who may ask for decisions, estimates and pages, and how is that taken back?",
            "deletion": "When are rewards and saves deleted?",
        },
    )


def _collection() -> NistLevel:
    return NistLevel(
        "collection",
        "How data are collected",
        "The software needs one number for each decision, and no name, no contact, no feature.",
        "It refuses rewards outside the declared range, or clips them, as the policy is set. What "
        "is collected beside them is outside the software.",
        {
            "consent": "How are people told, can they decline, and what happens if they do?",
            "minimum": "What else is collected, and why?",
        },
    )
