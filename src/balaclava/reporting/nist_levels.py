"""The levels of NIST SP 800-226's pyramid: each rests on the levels below it.

The software answers what it can. Questions that only the owner can answer get a blank. The texts
are in nist_levels.toml.
"""

import functools
import tomllib
from importlib import resources
from math import exp
from typing import Any, NamedTuple

from balaclava._core.number_format import rounded_up
from balaclava.policies.base import Policy
from balaclava.privacy.guarantee import NOTIONS, Guarantee
from balaclava.reporting.quick_audits import AuditSummary

_LARGEST_EXACT_EPSILON = 20.0  # beyond it the exact factor of the odds means nothing to a reader


class NistLevel(NamedTuple):
    """One level: the software's statement, its check, and questions to the owner."""

    title: str
    statement: str
    check: str
    questions: dict[str, str]  # by the key of the answer


def nist_levels(
    policy: Policy,
    rewards_per_person: int | None,
    audit: AuditSummary | None,
    guarantee: Guarantee | None = None,
    *,
    apart: bool = False,
) -> list[NistLevel]:
    """The eight levels, from epsilon down to how data are collected.

    `rewards_per_person` is None if they are not counted; `guarantee` is that of the deployment, if
    it differs from the policy's. `apart`: no two rewards of a person are in one release.
    """
    guarantee = guarantee or policy.guarantee
    values = _values(policy, rewards_per_person, audit, guarantee)
    chosen = _chosen_variants(rewards_per_person, guarantee)
    if apart and rewards_per_person is not None and rewards_per_person > 1:
        chosen |= {"unit": "apart", "counting": "apart"}
        values["person_guarantee"] = guarantee.for_rewards(rewards_per_person, apart=True)
    levels = []
    for level in _texts():
        variants = level.get("variants", {})
        filled = values | {
            key: texts[chosen[key]].format(**values) for key, texts in variants.items()
        }
        questions = {key: text.format(**filled) for key, text in level["questions"].items()}
        statement, check = (level[key].format(**filled) for key in ("statement", "check"))
        levels.append(NistLevel(level["title"], statement, check, questions))
    return levels


@functools.cache
def _texts() -> list[dict[str, Any]]:
    source = resources.files("balaclava.reporting") / "nist_levels.toml"
    return list(tomllib.loads(source.read_text(encoding="utf-8"))["levels"])


def _chosen_variants(count: int | None, guarantee: Guarantee) -> dict[str, str]:
    """Which of the texts in [levels.variants] applies."""
    counted = "uncounted" if count is None else "counted"
    model = guarantee.model if guarantee.model in ("local", "split") else "central"
    return {
        "kind": "pure" if guarantee.delta == 0 else "approximate",
        "unit": {None: "uncounted", 1: "one"}.get(count, "several"),
        "counting": counted,
        "cap": counted,
        "trusted": model,
        "stored": model,
    }


def _values(
    policy: Policy, count: int | None, audit: AuditSummary | None, guarantee: Guarantee
) -> dict[str, Any]:
    epsilon = guarantee.epsilon
    parameters = {key: value for key, value in policy.parameters.items() if value is not None}
    return {
        "guarantee": guarantee,
        "odds": rounded_up(exp(epsilon), ".3g")
        if epsilon < _LARGEST_EXACT_EPSILON
        else "more than 10^8",
        "delta": rounded_up(guarantee.delta),
        "reference": guarantee.reference or "see the documentation of the policy",
        "neighbours": guarantee.neighbours,
        "count": count,
        "person_guarantee": None if count is None else guarantee.for_rewards(count),
        "policy": policy.name,
        "policy_title": (type(policy).__doc__ or "").strip().split("\n")[0],
        "settings": ", ".join(f"{key} = {value}" for key, value in parameters.items()),
        "audit": "Not audited for this page."
        if audit is None
        else f"Audited for this page, verdict: {audit.verdict}. The software ran on pairs of "
        "reward streams that differ in one reward; every use of noise was recorded and compared "
        "with the proof, and an observer tried to tell the streams apart by the decisions. An "
        f"audit can refute; it cannot prove. `balaclava audit {policy.name}` prints each part.",
        "notion": NOTIONS[guarantee.scope] if guarantee.private else "",
        "covers": "covers" if guarantee.covers_arrival else "does not cover",
    }
