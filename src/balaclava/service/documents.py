"""JSON documents about an experiment.

They contain released values and counts of decisions. Where batches settle by arrival, an admin also
gets counts of rewards that arrived: `for_readers` removes them.
"""

import datetime
import hashlib
from dataclasses import asdict
from typing import Any

from balaclava._core.number_format import rounded_down
from balaclava.agents.estimates import EstimateReader, Estimates
from balaclava.agents.settling import missing_rewards
from balaclava.agents.stopping import StopAdvice, stop_advice
from balaclava.errors import ParameterError
from balaclava.policies.base import Policy
from balaclava.policies.local_policies import LocalPolicy
from balaclava.privacy.guarantee import Guarantee
from balaclava.service.engine.contexts import (
    PUBLIC_FEATURES,
    are_public,
    features_document,
    takes_features,
)
from balaclava.service.engine.served_experiment import (
    FINISHED,
    RESULTS_CONFIDENCE,
    ServedExperiment,
    finite,
)
from balaclava.service.problems import Problem
from balaclava.service.share_messages import share_rule
from balaclava.service.store.ledger import Ledger
from balaclava.service.targeting import ratio_document


def guarantee_document(guarantee: Guarantee) -> dict[str, Any]:
    return {
        "epsilon": finite(guarantee.epsilon) if guarantee.private else None,
        "delta": guarantee.delta if guarantee.private else None,
        "model": guarantee.model,
        "scope": guarantee.scope,
        "neighbours": guarantee.neighbours,
        "assumptions": list(guarantee.assumptions),
        "sentence": str(guarantee),
    }


def experiment_document(experiment: ServedExperiment, restored: int) -> dict[str, Any]:
    definition, counters = experiment.definition, experiment.counters
    created = datetime.datetime.fromtimestamp(experiment.created, datetime.UTC)
    return {
        **asdict(definition),
        "parameters": _parameters(experiment.policy) | {"arms": len(experiment.arms)},
        "arms": experiment.arms,
        "retired_arms": [experiment.arms[arm] for arm in sorted(experiment.retired)],
        "shares": experiment.shares,
        "owner": experiment.owner,
        "purpose": experiment.purpose,
        "retention": experiment.retention,
        "archived": bool(experiment.settings.archived),
        "state": experiment.state,
        "served_arm": experiment.settings.served_arm,
        "created": created.isoformat(timespec="seconds"),
        "decisions": sum(counters.decisions),
        "learning_decisions": sum(counters.learning),
        "guarantee": guarantee_document(experiment.guarantee(restored)),
        "report": (
            share_rule(definition, experiment.policy)
            if definition.is_split
            else report_document(experiment.policy)
        ),
        "features": features_document(experiment.policy),
        "guardrails": _limited_guardrails(experiment),
    }


def _parameters(policy: Policy) -> dict[str, Any]:
    """The parameters, with the digest of a catalogue in place of its rows."""
    parameters, rows = policy.parameters, policy.catalogue
    if rows is not None:
        digest = {"shape": list(rows.shape), "sha256": hashlib.sha256(rows.tobytes()).hexdigest()}
        owner = parameters if "catalogue" in parameters else parameters["base"]
        owner["catalogue"] = digest
    return parameters


def _limited_guardrails(experiment: ServedExperiment) -> list[dict[str, Any]] | None:
    """The guardrails with their present limits; None without any."""
    rails = experiment.guardrails.limited(experiment.settings.guardrail_limits)
    return [rail._asdict() for rail in rails] or None


def report_document(policy: Policy) -> dict[str, Any] | None:
    """What report.js needs, for a local policy that it supports; otherwise None."""
    if not isinstance(policy, LocalPolicy):
        return None
    try:
        return policy.report_rule()
    except ParameterError:  # report.js does not know the rule
        return None


def results_document(
    experiment: ServedExperiment,
    confidence: float = RESULTS_CONFIDENCE,
    smallest_difference: float | None = None,
    participants: int | None = None,
) -> dict[str, Any]:
    """Released means with intervals, the winner if there is one, whether to stop, and a summary."""
    counters, labels = experiment.counters, experiment.arms
    total = sum(counters.decisions)
    arms: list[dict[str, Any]] = [
        {
            "arm": arm,
            "label": labels[arm],
            "decisions": count,
            "share": count / total if total else 0.0,
            "retired": arm in experiment.retired,
            **dict.fromkeys(("rewards", "mean", "low", "high")),
        }
        for arm, count in enumerate(counters.decisions)
    ]
    answer: dict[str, Any] = {
        "name": experiment.definition.name,
        "state": experiment.state,
        "decisions": total,
        "confidence": confidence,
        "arms": arms,
        **dict.fromkeys(("winner", "leader", "remaining", "may_stop", "note", "condition")),
        **dict.fromkeys(("releases", "missing", "differences")),
        "windows": windows_document(experiment),
        "drift": drift_document(experiment),
        **safeguards_document(experiment),
        "values": values_document(experiment, confidence),
    }
    reading = experiment.reading(confidence)
    if not isinstance(reading, EstimateReader):
        answer["note"] = str(reading)
        answer["sentence"] = _sentence_without_means(answer)
        return answer
    estimates = reading.estimates()
    answer["condition"] = estimates.condition
    answer["releases"] = estimates.releases and estimates.releases.document
    answer["missing"] = missing_rewards(experiment.definition.default_reward)
    for entry, each in zip(arms, estimates, strict=True):
        low, high = each.interval
        entry.update(
            rewards=each.rewards, mean=finite(each.mean), low=finite(low), high=finite(high)
        )
    answer |= _lead(experiment, estimates)
    if estimates.winner is not None:
        answer["winner"] = labels[estimates.winner]
    else:
        answer["remaining"] = reading.remaining()
    advice = _stop_advice(experiment, reading, estimates, smallest_difference, participants)
    answer["may_stop"] = advice._asdict()
    answer["sentence"] = _sentence(experiment, estimates, answer)
    if experiment.state != FINISHED and advice:
        more = "You may stop." if advice.reason == "winner" else advice.sentence
        answer["sentence"] += f" {more}"
    answer["sentence"] += _breaker_sentence(answer)
    return answer


def _lead(experiment: ServedExperiment, estimates: Estimates) -> dict[str, Any]:
    """The leader, and its released mean minus that of each other live arm, with intervals."""
    if not all(each.rewards or each.retired for each in estimates):
        return {"leader": None, "differences": None}
    leader = experiment.leader()
    others = [each for each in estimates if each.arm != leader and not each.retired]
    differences = [
        {
            "arm": each.arm,
            "label": each.label,
            "difference": (estimates[leader].mean or 0.0) - (each.mean or 0.0),
            "low": finite(low),
            "high": finite(high),
        }
        for each in others
        for low, high in [estimates.difference(leader, each.arm)]
    ]
    return {"leader": estimates[leader].label, "differences": differences}


def values_document(experiment: ServedExperiment, confidence: float) -> dict[str, Any] | None:
    """Estimated values of the rule, of fixed arms and of a target; None without any."""
    values = experiment.values(confidence)
    if values is None:
        return None
    policies = [
        {
            "policy": each.label,
            "kind": each.kind,
            "rewards": each.rewards,
            "value": each.value,
            "low": each.interval[0],
            "high": each.interval[1],
        }
        for each in values
    ]
    return {
        "policies": policies,
        "context_helps": values.context_helps,
        "gain": list(values.gain),
        "condition": values.condition,
        "sentence": values.sentence,
    }


def safeguards_document(experiment: ServedExperiment) -> dict[str, Any]:
    """Released means of guardrails, why the breaker tripped, if it did, and the sample ratio."""
    ratio = None
    if experiment.definition.exposures:
        ratio = ratio_document(experiment.counters.exposures, experiment.arms)
    rails, trip = experiment.guardrails, experiment.guardrails.trip
    limits = experiment.settings.guardrail_limits
    return {
        "guardrails": rails.document(limits, experiment.arms),
        "breaker": None if trip is None else trip._asdict(),
        "sample_ratio": ratio,
    }


def _sentence_without_means(answer: dict[str, Any]) -> str:
    values = answer["values"]
    known = f"{answer['note']}." if values is None else values["sentence"]
    return f"{answer['decisions']:,} decisions. {known}{_breaker_sentence(answer)}"


def _breaker_sentence(answer: dict[str, Any]) -> str:
    trip = answer["breaker"]
    if trip is None:
        return ""
    return (
        f" The guardrail {trip['metric']!r} crossed its limit with {trip['arm']!r}: every decision "
        f"gets {trip['serve']!r}, and nothing is learned until the limit is changed."
    )


def drift_document(experiment: ServedExperiment) -> dict[str, Any]:
    """The arms whose releases show a change of the mean, and restarts; null where unknown."""
    runner = experiment.runner
    changed = runner.changed_arms()
    return {
        "changed": None if changed is None else list(changed),
        "restarts": experiment.policy.restarts(runner.state),
    }


def _stop_advice(
    experiment: ServedExperiment,
    reading: EstimateReader,
    estimates: Estimates | None,
    smallest_difference: float | None,
    participants: int | None,
) -> StopAdvice:
    """Whether the experiment may stop, from released values and numbers of decisions.

    `participants` defaults to the horizon of a policy whose goal is to name the best arm.
    """
    policy, (low, high) = experiment.policy, experiment.policy.accepts
    if participants is None and policy.names_winners:
        participants = policy.horizon
    try:
        return stop_advice(reading, high - low, smallest_difference, participants, estimates)
    except ParameterError as error:
        raise Problem(422, str(error)) from None


def plan_document(
    experiment: ServedExperiment,
    confidence: float = RESULTS_CONFIDENCE,
    smallest_difference: float | None = None,
    participants: int | None = None,
) -> dict[str, Any]:
    """How many decisions it takes to name the best arm, and whether the experiment may stop.

    `needed` is at the released means, `soonest` if differences are larger by their errors: both in
    decisions that learn, from the first. They are null if a winner is named or none is in sight.
    """
    decisions, outlook = sum(experiment.counters.learning), experiment.policy.names_winners
    answer: dict[str, Any] = {
        "name": experiment.definition.name,
        "policy": experiment.policy.name,
        "confidence": confidence,
        "learning_decisions": decisions,
        "names_winners": outlook._asdict(),
        **dict.fromkeys(("winner", "leader", "differences", "needed", "soonest")),
        **dict.fromkeys(("may_stop", "note")),
    }
    reading = experiment.reading(confidence)
    if not isinstance(reading, EstimateReader):
        return {**answer, "note": str(reading)}
    estimates = reading.estimates()
    advice = _stop_advice(experiment, reading, estimates, smallest_difference, participants)
    forecasts = {"needed": reading.remaining(), "soonest": reading.soonest()}
    winner = reading.winner()
    return {
        **answer,
        "winner": None if winner is None else experiment.arms[winner],
        **_lead(experiment, estimates),
        **{name: more and decisions + more for name, more in forecasts.items()},
        "may_stop": advice._asdict(),
    }


def _sentence(experiment: ServedExperiment, estimates: Estimates, answer: dict[str, Any]) -> str:
    made = f"{answer['decisions']:,} decisions"
    sure = f"{100 * estimates.confidence:g} % sure"
    chosen = experiment.chosen_arm
    now_served = "it" if chosen is None else repr(experiment.arms[chosen])
    finished = experiment.state == FINISHED
    served = f" Every decision serves {now_served} now." if finished else ""
    if experiment.counters.closing:
        served += " What is not released yet is released when the last reward window is over."
    if answer["winner"] is not None:
        best = estimates[estimates.winner or 0]
        others = [each.arm for each in estimates if each.arm != best.arm and not each.retired]
        margin = min((estimates.difference(best.arm, arm)[0] for arm in others), default=0.0)
        by = f" by at least {rounded_down(margin, '.3g')}" if margin > 0.0 else ""
        condition = f", if {estimates.condition}" if estimates.condition else ""
        return (
            f"'{best.label}' is the best{estimates.among}{by}, {sure}{condition}; {made}.{served}"
        )
    if answer["leader"] is None and finished:
        arm = experiment.arms[experiment.served()]
        why = "" if chosen is not None else ", without evidence"
        served = served.replace(f"serves {now_served} now", f"serves {arm!r} now{why}")
        return f"No arm is named: not every arm has a release; {made}.{served}"
    if answer["leader"] is None:
        return f"Not every arm has a release yet; {made}."
    if finished:
        return (
            f"'{answer['leader']}' has the highest released mean, but no arm is the best at "
            f"{100 * estimates.confidence:g} % confidence; {made}.{served}"
        )
    more = answer["remaining"]
    forecast = (
        f"; about {more:,} more may decide it" if more else "; too early to say how many decide it"
    )
    return (
        f"'{answer['leader']}' leads, but is not yet the best at {100 * estimates.confidence:g} % "
        f"confidence; {made}{forecast}.{served}"
    )


def windows_document(experiment: ServedExperiment) -> dict[str, Any]:
    """Open and ended windows; decisions by state only where batches settle by arrival.

    By arrival every number here counts rewards that arrived: for admins only.
    """
    counters = experiment.counters
    learning = sum(counters.learning)
    over = counters.closed - (counters.rounds - (counters.leased or 0) - learning)
    answer: dict[str, Any] = {"open": learning - over, "over": over}
    if not experiment.settles_by_window:
        answer["states"] = {
            "open": learning - over,
            "rewarded": counters.rewarded,
            "defaulted": counters.defaulted,
            "given_up": counters.given_up,
        }
        median, late = experiment.wait_quantile(0.5), experiment.wait_quantile(0.9)
        answer["waits"] = None if median is None else {"median": median, "p90": late}
    return answer


def for_readers(results: dict[str, Any]) -> dict[str, Any]:
    """The results without counts of arrived rewards.

    If only purchases are reported, such a count is the number of buyers, without noise.
    """
    return {**results, "windows": None} if "states" in results["windows"] else results


def privacy_document(experiment: ServedExperiment, ledger: Ledger) -> dict[str, Any]:
    """The guarantee, whom it protects, its charge, and what it does not cover."""
    definition = experiment.definition
    epsilon, delta, restored = ledger.charged(definition.uid)
    guarantee = experiment.guarantee(restored)
    person = guarantee.for_rewards(definition.rewards_per_person, apart=definition.rewards_apart)
    named = experiment.counters.anonymous == 0
    population = None
    if definition.population is not None:
        population = ledger.budgets()[definition.population].document()
    return {
        "guarantee": guarantee_document(guarantee),
        "per_person": guarantee_document(person) if named and guarantee.private else None,
        "population": population,
        "charged": {"epsilon": epsilon, "delta": delta} if population else None,
        "restored": restored,
        "not_covered": _not_covered(
            experiment, restored, bool(population and population["overspent"])
        ),
        "explanation": guarantee.explain(),
    }


def _not_covered(experiment: ServedExperiment, restored: int, overspent: bool) -> list[str]:
    lines = [
        "Decisions and their times are not hidden: they reveal who took part, and when.",
        "Data that the operator stores elsewhere, and access to the database or its backups.",
    ]
    if not experiment.settles_by_window and experiment.policy.model == "central":
        lines.append(
            "When and whether a reward arrived: this is assumed not to depend on its value."
        )
    if takes_features(experiment.policy) and are_public(experiment.policy):
        lines.append(PUBLIC_FEATURES)
    if experiment.counters.anonymous:
        lines.append(
            "Several rewards of one person together: "
            f"{experiment.counters.anonymous:,} decisions did not name a person."
        )
    if overspent:
        lines.append(
            "The population has spent more than its total, after a restore: until the total is "
            "raised, decisions are answered but learn nothing."
        )
    if restored:
        lines.append(
            f"The database was restored from a backup {restored} time(s). Rewards in batches that "
            f"were unfinished then may have been released {1 + restored} times, so epsilon and "
            f"delta count {1 + restored} times."
        )
    return lines
