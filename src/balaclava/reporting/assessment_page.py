"""The page for a review board: the guarantee, how it was checked, questions for the owner."""

from typing import Any

import numpy as np

import balaclava
from balaclava._core.html_templates import render_template
from balaclava._core.number_format import percent, rounded_up, significant
from balaclava.advice.plan.trial_plan import EVEN_POLICY, TrialPlan
from balaclava.reporting.assessment_input import AT_RANDOM, AssessmentInput
from balaclava.reporting.deployments.trial_outcome import TrialOutcome
from balaclava.reporting.nist_levels import nist_levels
from balaclava.reporting.quick_audits import AuditSummary
from balaclava.reporting.report_charts import LineLook, curve_views
from balaclava.reporting.report_data import CURVE_QUANTILES
from balaclava.reporting.report_page import LOG_NOTICE, REPORTING
from balaclava.reporting.report_sections import regret_curve, spaced_places
from balaclava.simulation.analysis.winners import has_releases
from balaclava.simulation.results import Results

_FAILED_VERDICTS = ("violated", "unproved", "not examined")
# Share of the regret of playing at random: above it the policy hardly learns. A guess.
_HARDLY_LEARNS = 0.9
_CHART_POINTS = 100  # on each curve: smooth at the width of a printed page
GLOSSARY = {
    "arm": "one of the options; each decision takes one: a text, a price, a treatment.",
    "reward": "the number that says how well a decision went. It is the protected value.",
    "epsilon": "how much an observer can learn: if delta is 0, the odds of any guess about a "
    "reward change by a factor of at most e to the power of epsilon. Smaller is stricter.",
    "delta": "added to the limit of epsilon: changing a reward makes no event more likely than the "
    "factor of epsilon times its probability before, plus delta.",
    "trajectory": "all decisions of a run, seen together.",
    "regret": "the loss against always taking the best arm, in units of reward.",
    "policy": "the rule that chooses the next arm from earlier decisions and rewards.",
    "audit": "an attempt to refute a guarantee: it replays the software, computes probabilities "
    "exactly, and plays games against the policy. It can refute, not prove.",
    "95 %": "an interval or a limit that holds in 95 of 100 such trials.",
}


def assessment_page(
    assessment: AssessmentInput,
    *,
    results: Results | None = None,
    audit: AuditSummary | None = None,
    plan: TrialPlan | None = None,
    outcome: TrialOutcome | None = None,
) -> str:
    """Render the page for a review board as one HTML document that loads nothing.

    Args:
        assessment: the owner's statements, and the policy.
        results: the answer of `assessment.simulate()`; if None, the page says "Not simulated".
        audit: the audit of the policy; if None, the page says "Not audited".
        plan: the answer of `assessment.plan()`.
        outcome: what happened, if the trial has begun: it then stands beside what was planned.

    Returns:
        The HTML document.

    Example:
        >>> import balaclava as bl
        >>> from balaclava.reporting.assessment_input import AssessmentInput
        >>> world = bl.environment("bernoulli", means=[0.3, 0.5, 0.7])
        >>> policy = bl.policy("dp-imed", arms=3, epsilon=1.0)
        >>> page = assessment_page(AssessmentInput(policy, world, horizon=1_000, title="A trial"))
        >>> page.count('class="level"')
        8
    """
    sentence, good = conclusion(assessment, results, audit, plan)
    stated = assessment.person_guarantee or assessment.reward_guarantee
    return render_template(
        REPORTING,
        "assessment.html",
        title=assessment.title or "Assessment of a private bandit",
        assessment=assessment,
        conclusion=sentence,
        good=good,
        **_outcome(assessment, plan, outcome),
        facts=_facts(assessment),
        explanation=stated.explain(),
        epsilon=rounded_up(stated.epsilon),
        levels=nist_levels(
            assessment.policy,
            assessment.rewards_per_person,
            audit,
            assessment.reward_guarantee,
            apart=assessment.rewards_apart,
        ),
        results=results,
        plan=plan,
        participants=assessment.policy.horizon if assessment.policy.names_winners else None,
        worse=_worse_in_even_shares(assessment),
        **_stopping(assessment),
        foresight=_foresight(assessment),
        costs=[]
        if plan is None
        else [
            (f"{row.epsilon:g}", f"{row.high:,.0f}", percent(row.named, ".0f"))
            for row in assessment.epsilon_costs()
        ],
        log_notice=LOG_NOTICE,
        glossary=GLOSSARY,
        curve_quantiles=CURVE_QUANTILES,
        version=balaclava.__version__,
        **({} if results is None else _regret(assessment, results)),
    )


def _outcome(
    assessment: AssessmentInput, plan: TrialPlan | None, outcome: TrialOutcome | None
) -> dict[str, Any]:
    """What was planned beside what happened, and the released values."""
    if outcome is None:
        return {"outcome": None}
    sentence, as_planned = outcome.conclusion(assessment)
    return {
        "outcome": outcome,
        "ending": sentence,
        "as_planned": as_planned,
        "comparison": outcome.comparison(assessment, plan),
        "outcome_confidence": percent(outcome.confidence, "g"),
    }


def conclusion(
    assessment: AssessmentInput,
    results: Results | None,
    audit: AuditSummary | None,
    plan: TrialPlan | None = None,
) -> tuple[str, bool]:
    """The conclusion in one sentence, and whether it is favourable."""
    stated = assessment.person_guarantee or assessment.reward_guarantee
    name = assessment.policy.name
    if not stated.private:
        return f"{name} guarantees a person nothing here: do not run it on personal data.", False
    if audit is not None and audit.verdict in _FAILED_VERDICTS:
        return f"The audit of {name} did not pass ({audit.verdict}): do not run it.", False
    checked = "not audited" if audit is None else "an audit found nothing against it"
    unit = "reward" if assessment.person_guarantee is None else "person"
    words, checks = f"{name} gives each {unit} {stated}; {checked}", audit is not None
    if results is None:
        return f"{words}; its regret was not simulated.", checks
    share, winner = _share_of_random(results, name), _winner_shares(assessment, results)
    named = "" if winner is None else f", and {winner}"
    decisions = f"over {results.horizon:,} decisions it"
    if name == EVEN_POLICY:
        if winner is None and plan is not None:
            power = percent(plan.of(EVEN_POLICY).named, ".0f")
            looks = assessment.policy.parameters["looks"]
            within = f" at one of {looks} looks" if looks > 1 else ""
            named = f"; planned trials of this size name the best arm in {power}{within}"
        return f"{words}; {decisions} gives all arms even shares, by design{named}.", checks
    if share > _HARDLY_LEARNS:
        lost = f"{decisions} hardly learns: {share:.0%} of the regret at random"
        return f"{words}; {lost}{named}.", False
    lost = f"{decisions} loses {share:.0%} of what playing at random loses"
    return f"{words}; {lost}{named}.", checks


def _share_of_random(results: Results, label: str) -> float:
    unit = float(results.final_regret(AT_RANDOM).mean())
    return float(results.final_regret(label).mean()) / unit if unit > 0 else float("inf")


def _facts(assessment: AssessmentInput) -> dict[str, str]:
    person, count = assessment.person_guarantee, assessment.rewards_per_person
    return {
        "Owner": assessment.owner,
        "Purpose": assessment.purpose,
        "Population": assessment.population,
        "Date": assessment.date,
        "Rewards a person gives": "not counted" if count is None else f"at most {count}",
        "Guarantee of one reward": str(assessment.reward_guarantee),
        "Guarantee of one person": str(person) if person else "none: rewards are not counted",
    }


def _stopping(assessment: AssessmentInput) -> dict[str, Any]:
    """How an arm is named, and the chance of naming a wrong one."""
    policy, estimation = assessment.policy, assessment.policy.estimation
    if estimation is None:
        rule = "none"
    elif policy.name == EVEN_POLICY:
        rule = "exact"
    else:
        rule = "intervals" if estimation.law is None else "pairs"
    return {
        "rule": rule,
        "looks": policy.parameters.get("looks", 1),
        "expected": policy.names_winners,
        "error": percent(1.0 - assessment.confidence, ".3g"),
    }


def _foresight(assessment: AssessmentInput) -> str | None:
    """Who can foresee the next arm; None for a policy that names no arm.

    Of a block with each arm once, n arms are left with the same chance for each n up to K.
    """
    policy = assessment.policy
    if policy.estimation is None:
        return None
    advice = (
        "Staff who can foresee it can choose whom to enrol next: hand out arms after enrolment, "
        "and keep propensities from staff."
    )
    if policy.name != EVEN_POLICY:
        return (
            f"{policy.name} may play one arm for many participants in a row: staff who see the "
            f"last arm often know the next. {advice}"
        )
    longest, arms = policy.parameters["longest_block"], policy.arms
    if longest == 1:
        right = sum(1.0 / left for left in range(1, arms + 1)) / arms
        return (
            "Arms are dealt in permuted blocks with each arm once (longest_block = 1). Staff who "
            f"see all earlier arms know {percent(1.0 / arms, '.0f')} of the next arms for sure, "
            f"and guess {percent(right, '.0f')} right. {advice} If they see the arms, set "
            "longest_block = 3: the last arm of a block is then seldom known."
        )
    return (
        f"Arms are dealt in permuted blocks with each arm 1 to {longest} times, drawn at random "
        f"(longest_block = {longest}). Staff who see all earlier arms seldom know the next for "
        f"sure, but guess it more often than at random. {advice}"
    )


def _worse_in_even_shares(assessment: AssessmentInput) -> int | None:
    """Participants of a trial of even shares who get an arm that is not the best, if one is."""
    policy = assessment.policy
    if policy.name != EVEN_POLICY or policy.horizon is None:
        return None
    return round(policy.horizon * (policy.arms - 1) / policy.arms)


def _regret(assessment: AssessmentInput, results: Results) -> dict[str, Any]:
    world = results.environment
    places = spaced_places(results.checkpoints.size, _CHART_POINTS)
    curves = [
        regret_curve(results, label, results.guarantee(label), LineLook(i), places)
        for i, label in enumerate(results.labels)
    ]
    listed = [
        f"{key} = {value}" for key, value in world.public_parameters.items() if value is not None
    ]
    return {
        "repetitions": len(results.final_regret(assessment.policy.name)),
        "settings": ", ".join(listed),
        "risk_rows": [_risk_row(results, label) for label in results.labels],
        "arrivals": _arrivals(results),
        "winner": _winner_shares(assessment, results),
        "curves": curves,
        "views": curve_views(curves, []),
    }


def _arrivals(results: Results) -> str:
    """How late the simulated rewards arrived, and when they counted."""
    if results.feedback.prompt:
        return "Every reward arrives at once and is learned from at once; late rewards cost regret."
    return (
        f"Rewards: {results.feedback}. Delays and losses are drawn independently of the rewards, "
        "in further decisions."
    )


def _risk_row(results: Results, label: str) -> tuple[str, ...]:
    regret = results.final_regret(label)
    numbers = np.median(regret), np.quantile(regret, 0.95), regret.max()
    return label, *map(significant, numbers), f"{_share_of_random(results, label):.0%}"


def _winner_shares(assessment: AssessmentInput, results: Results) -> str | None:
    """How often the policy names the right arm, as a clause; None if that was not recorded.

    A trial of fixed size is read once its last rewards are in. A simulation ends with the last
    decision: with late rewards it says nothing about the answer, and the plan does.
    """
    if assessment.policy.name == EVEN_POLICY and not assessment.feedback.prompt:
        return None
    if assessment.policy.estimation is None:
        return "cannot name a winner, because it releases no averages"
    if not has_releases(results):
        return None
    winners = results.winners(assessment.confidence)
    row = next(row for row in winners if row.label == assessment.policy.name)
    if np.isnan(row.right):
        return "cannot name a winner, because no interval is proved"
    others = f", a wrong one in {row.wrong:.0%}" if row.wrong else ""
    return (
        f"names the best arm in {row.right:.0%} of the runs{others}, at "
        f"{winners.confidence:.0%} confidence"
    )
