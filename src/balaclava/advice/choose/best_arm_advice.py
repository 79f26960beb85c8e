"""Which policy names the best arm, and how often it does with the participants that there are."""

from typing import Any, Literal, NamedTuple

from balaclava._core.number_format import percent
from balaclava.advice.choose.plausible_problems import Around
from balaclava.advice.choose.rules import RecommendationRule
from balaclava.advice.plan import trial_plan
from balaclava.simulation.feedback import Feedback

Goal = Literal["regret", "best"]
# Policies for rewards in a known range whose goal is the answer, by trust.
NAMING_POLICIES = {"central": "dp-top-two", "split": "dp-top-two", "local": "ldp-top-two"}
TAILS_POLICY = "dpr-top-two"  # the same for heavy tails and outliers, on a trusted server
USUAL_AROUND = Around(0.5, 0.2)  # of rewards in [0, 1], if the user gives none
EXPLORED_SHARE = 0.2  # of the rounds, spread evenly over the arms, for policies of low regret


class NamingAdvice(NamedTuple):
    """A policy that names the best arm, parameters to change, the reason, and remarks."""

    name: str
    changes: dict[str, Any]
    why: str
    notes: tuple[str, ...]


def plan_around(
    parameters: dict[str, Any],
    trust: str,
    around: Around | None,
    feedback: Feedback,
    seed: int,
) -> trial_plan.TrialPlan:
    """Plan for bounded rewards, in shares of their range.

    Rewards at the ends of the range have the largest variance.
    """
    low, high = parameters["reward_range"]
    average, difference = USUAL_AROUND
    if around is not None:
        average = (around.average - low) / (high - low)
        difference = around.difference / (high - low)
    feedback = feedback.in_units((low, high))
    return trial_plan.plan(
        parameters["arms"],
        parameters["epsilon"],
        base_rate=average,
        smallest_difference=difference,
        confidence=parameters["confidence"],
        policy=NAMING_POLICIES[trust],
        delay=feedback.delay,
        **feedback.settling._asdict(),
        participants=int(min(parameters["horizon"], trial_plan.MOST_PARTICIPANTS)),
        seed=seed,
    )


def naming_row(planned: trial_plan.TrialPlan) -> trial_plan.PlanRow:
    """The row of the policy to use: one that may stop early, if it names the best arm often.

    Otherwise the one that names it more often with the participants that there are.
    """
    rows = [
        row for row in planned if row.label in (*NAMING_POLICIES.values(), trial_plan.EVEN_POLICY)
    ]
    return rows[0] if rows[0].named >= trial_plan.POWER else max(rows, key=lambda row: row.named)


def naming_advice(rule: RecommendationRule, planned: trial_plan.TrialPlan | None) -> NamingAdvice:
    """The policy that names the best arm of such rewards."""
    if rule.rewards != "bounded":
        return _for_other_rewards(rule)
    name = NAMING_POLICIES[rule.trust]
    why = "it plays the arms that are hardest to tell apart until the best is known, and you may "
    why += "look and stop at any time"
    if planned is None:
        return NamingAdvice(name, {}, why, ())
    row = naming_row(planned)
    if row.label == trial_plan.EVEN_POLICY:
        name = trial_plan.EVEN_POLICY
        why = (
            "the number of participants is known and small: with even shares and one test at the "
            f"end, one-sided, {percent(row.named, '.0f')} of such trials name the best arm, "
            f"{percent(planned[0].named, '.0f')} with {planned[0].label}"
        )
    notes: tuple[str, ...] = ()
    if row.named < trial_plan.POWER:
        notes = (
            f"only {percent(row.named, '.0f')} of trials with so many participants name the best "
            f"arm; {percent(trial_plan.POWER, '.0f')} take {row.high:,.0f} participants",
        )
    return NamingAdvice(name, {}, why, notes)


def _for_other_rewards(rule: RecommendationRule) -> NamingAdvice:
    """dpr-top-two with a known moment; else the policy of low regret, which may explore."""
    known_moment = rule.rewards in ("heavy-tailed", "outliers")
    if known_moment and rule.trust == "central":
        why = "it plays the arm or its rival until their proved intervals tell which is best"
        note = "there is no plan for such rewards; simulate with winners=True how long it takes"
        return NamingAdvice(TAILS_POLICY, {}, why, (note,))
    if known_moment:
        why = f"{rule.why}; explore gives every arm a share, so that its intervals tell arms apart"
        note = (
            "no policy for reports of such rewards is made to name the best arm; simulate with "
            "winners=True how often this one does, and keep radius_scale = 1: its intervals are "
            "then proved"
        )
        return NamingAdvice(rule.policy, {"explore": EXPLORED_SHARE}, why, (note,))
    note = "losses that follow no law have no best arm to name; the goal is ignored"
    if rule.rewards == "unknown-tails":
        note = (
            "it offers no intervals, so it cannot name the best arm; with a known moment "
            f"(rewards = 'heavy-tailed') {TAILS_POLICY} can"
        )
    return NamingAdvice(rule.policy, {}, rule.why, (note,))
