"""A record of a deployment for the OpenDP registry of differential privacy deployments.

It is made from the file behind a review board's page. What the file leaves blank is left out, so
that the record has the highest of the registry's three tiers whose fields are all there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import balaclava
from balaclava.advice.plan.trial_plan import EVEN_POLICY
from balaclava.auditing.proof_notes import proof_of, with_used
from balaclava.errors import ExperimentFileError
from balaclava.privacy.guarantee import NOTIONS
from balaclava.reporting.assessment_input import AssessmentInput

# Fields by tier; those of tier 1 are required.
TIERS: dict[int, dict[str, tuple[str, ...]]] = {
    1: {
        "basic": (
            *("name", "data_curators", "intended_use", "data_product_type"),
            *("data_product_region", "description", "publication_date"),
        )
    },
    2: {
        "dp_variant": ("variant_name",),
        "privacy_loss": ("privacy_unit", "privacy_parameters"),
        "deployment_model": ("model_name", "release_type", "data_source_type", "access_type"),
    },
    3: {
        "dp_variant": ("data_domain", "unprotected_quantities"),
        "privacy_loss": ("privacy_unit_details",),
        "deployment_model": ("actors",),
        "accounting": ("post_processing", "composition"),
        "implementation": (
            *("preprocessing_and_hyperparameter_tuning", "mechanisms", "justification"),
        ),
    },
}
# The registry has no name for two servers; of its five this is the nearest.
_MODELS = {"central": "Central", "local": "Local", "split": "Federated"}


def registry_record(assessment: AssessmentInput) -> tuple[dict[str, Any], list[str]]:
    """Make the record, and list what the owner has not answered.

    Args:
        assessment: The file behind the page for a review board.

    Returns:
        The record, and the names of missing fields, with the key of the file that fills each.

    Raises:
        ExperimentFileError: If a field is missing that every record must have.
    """
    guarantee = assessment.person_guarantee or assessment.reward_guarantee
    if not guarantee.private:
        raise ExperimentFileError(f"{assessment.policy.name} is not private; choose another policy")
    sections = dict(_sections(assessment))
    missing = {
        tier: [
            f"{section}.{name} ({_filled_by(name)})"
            for section, names in fields.items()
            for name in names
            if not sections[section].get(name)
        ]
        for tier, fields in TIERS.items()
    }
    if missing[1]:
        raise ExperimentFileError(f"a registry record needs {', '.join(missing[1])}")
    tier = 1 if missing[2] else 2 if missing[3] else 3
    deployment = {
        section: {name: value for name, value in values.items() if value}
        for section, values in sections.items()
    }
    record = {
        "url_slug": re.sub(r"[^a-z0-9]+", "_", assessment.title.lower()).strip("_"),
        "status": "Draft",
        "tier": tier,
        "deployment": {name: values for name, values in deployment.items() if values},
    }
    return record, [*missing[2], *missing[3]]


def _filled_by(name: str) -> str:
    keys = {
        "name": "title",
        "data_curators": "owner",
        "intended_use": "purpose",
        "description": "population",
        "data_product_region": "[registry] region",
        "preprocessing_and_hyperparameter_tuning": "[answers] tuned",
        "justification": "[answers] why_epsilon",
        "actors": "[answers] operator",
    }
    return keys.get(name, name)


def _sections(assessment: AssessmentInput) -> Iterator[tuple[str, dict[str, Any]]]:
    yield (
        "basic",
        {
            "name": assessment.title,
            "data_curators": [assessment.owner] if assessment.owner else [],
            "intended_use": assessment.purpose,
            "data_product_type": "Machine learning model",
            "data_product_region": assessment.registry.get("region", ""),
            "data_product_sector": assessment.registry.get("sector", ""),
            "description": _about(assessment),
            "publication_date": assessment.date,
        },
    )
    yield from _promise(assessment)
    yield from _practice(assessment)


def _promise(assessment: AssessmentInput) -> Iterator[tuple[str, dict[str, Any]]]:
    """What is protected, and how much."""
    guarantee = assessment.person_guarantee or assessment.reward_guarantee
    pure = guarantee.delta == 0.0
    yield (
        "dp_variant",
        {
            "variant_name": "Pure DP" if pure else "Approximate DP",
            "data_domain": f"Streams of rewards, one a decision: {_range_of(assessment)}.",
            "unprotected_quantities": (
                "The times of decisions, who took part, the names of arms"
                + (", each participant's own decision" if guarantee.scope == "joint" else "")
                + (", and whether a reward arrived." if not _in_window(assessment) else ".")
            ),
        },
    )
    loss: dict[str, float] = {"epsilon": guarantee.epsilon}
    yield (
        "privacy_loss",
        {
            "privacy_unit": f"All rewards of a participant, at most {guarantee.rewards}"
            if assessment.rewards_per_person is not None
            else "One reward",
            "privacy_unit_details": f"Adjacent: {guarantee.neighbours}.",
            "privacy_parameters": loss if pure else {**loss, "delta": guarantee.delta},
            "privacy_parameters_details": guarantee.explain(),
        },
    )


def _practice(assessment: AssessmentInput) -> Iterator[tuple[str, dict[str, Any]]]:
    """Who runs it, and how."""
    policy, answers = assessment.policy, assessment.answers
    guarantee = assessment.reward_guarantee
    yield (
        "deployment_model",
        {
            "model_name": _MODELS[guarantee.model],
            "model_name_details": NOTIONS["view"] if guarantee.model == "split" else "",
            "actors": answers.get("operator", ""),
            "release_type": "Many releases",
            "release_type_details": _releases(assessment),
            "data_source_type": "Dynamic",
            "access_type": "Non-interactive",
        },
    )
    yield (
        "accounting",
        {
            "post_processing": "Decisions and estimates are computed from noisy releases.",
            "composition": (proof.claim if (proof := proof_of(type(policy))) else ""),
        },
    )
    yield (
        "implementation",
        {
            "preprocessing_and_hyperparameter_tuning": answers.get("tuned", ""),
            "mechanisms": _mechanisms(assessment),
            "justification": answers.get("why_epsilon", ""),
        },
    )
    yield "administrative", {"registry_authors": [assessment.owner or "unknown"]}


def _releases(assessment: AssessmentInput) -> str:
    if assessment.policy.name == EVEN_POLICY:
        return (
            "A noisy sum of each arm at the end of each planned look; decisions before the end of "
            "the last look depend on no reward."
        )
    added = assessment.reward_guarantee.scope == "decision"
    return (
        f"Every decision is a release; {'losses add up' if added else 'all together are covered'}."
    )


def _about(assessment: AssessmentInput) -> str:
    if not assessment.population:
        return ""
    kind = (
        "A trial of fixed size"
        if assessment.policy.name == EVEN_POLICY
        else "An adaptive experiment"
    )
    return (
        f"{kind} with {assessment.policy.arms} arms, about "
        f"{assessment.horizon} decisions: {assessment.population}."
    )


def _range_of(assessment: AssessmentInput) -> str:
    low, high = assessment.policy.accepts
    return f"numbers in [{low:g}, {high:g}]"


def _in_window(assessment: AssessmentInput) -> bool:
    return assessment.feedback.settling.settle == "window"


def _mechanisms(assessment: AssessmentInput) -> str:
    proof = proof_of(type(assessment.policy))
    used = [note.title for note in with_used(proof)] if proof else []
    return (
        f"{assessment.policy!r} of balaclava {balaclava.__version__}. Proofs: {', '.join(used)}. "
        "Noise is drawn on an integer grid by OpenDP's samplers, from the operating system's "
        "randomness; there is no floating-point noise in a release."
    )


def as_yaml(value: Mapping[str, Any], indent: int = 0) -> str:
    """A record as YAML: strings are quoted as in JSON."""
    lines = []
    for key, each in value.items():
        if isinstance(each, Mapping):
            lines.append(f"{' ' * indent}{key}:\n{as_yaml(each, indent + 2)}")
        elif isinstance(each, list):
            items = "".join(f"{' ' * indent}  - {json.dumps(item)}\n" for item in each)
            lines.append(f"{' ' * indent}{key}:\n{items}")
        else:
            text = json.dumps(each, ensure_ascii=False)
            lines.append(f"{' ' * indent}{key}: {text}\n")
    return "".join(lines)
