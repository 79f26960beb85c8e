"""Who takes part, and who saw the arm: targeting by public attributes, and exposures.

A decision for someone whose attributes do not match the targeting gets the arm `otherwise` and does
not learn. Exposures are reports that a decision was displayed. If the share of displayed decisions
differs between arms, the experiment is broken: means by arm are then of different participants.
Both must not depend on rewards: no noise hides them.

A share of the participants may be held out: they get a fixed arm, before and after the end, and
nothing is learned from them. A keyed digest of the person decides; without a person, a draw.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from balaclava.service.problems import Problem
from balaclava.theory.confidence_sequences import mean_interval

EXPOSED_REGARDLESS = (
    "whether and when an exposure is reported does not depend on any reward, except through "
    "released values"
)
ATTRIBUTES_REGARDLESS = (
    "the attributes of targeting do not depend on any reward, except through released values"
)
# Probability that the check of exposures ever alarms although all arms have the same share.
RATIO_ERROR = 0.01
Attributes = Mapping[str, Any]
_exposure_interval = functools.lru_cache(maxsize=4_096)(mean_interval)  # it takes milliseconds


def check_targeting(targeting: Mapping[str, Any], arms: Sequence[str]) -> None:
    """Check the targeting of a new experiment; raises a `Problem`."""
    if targeting["otherwise"] not in arms:
        raise Problem(422, f"targeting: there is no arm {targeting['otherwise']!r} for the others")


def takes_part(targeting: Mapping[str, Any] | None, attributes: Attributes | None) -> bool:
    """Whether every attribute of the targeting has one of its values: 1 is 1.0, not true."""
    if targeting is None:
        return True
    known = attributes or {}
    return all(
        any(
            known.get(name) == value and isinstance(known[name], bool) is isinstance(value, bool)
            for value in allowed
        )
        for name, allowed in targeting["attributes"].items()
    )


def check_held_out(held_out: Mapping[str, Any], arms: Sequence[str]) -> None:
    """Check the held-out share of a new experiment; raises a `Problem`."""
    if held_out["arm"] not in arms:
        raise Problem(422, f"held_out: there is no arm {held_out['arm']!r} to serve")


def is_held_out(held_out: Mapping[str, Any], digest: str) -> bool:
    """Whether the person of a digest, in hexadecimal digits, is held out."""
    return bool(int(digest[:12], 16) / 16**12 < held_out["share"])


def ratio_document(counts: Sequence[Sequence[int]], labels: Sequence[str]) -> dict[str, Any]:
    """Shares of displayed decisions by arm, of ended windows, and whether they differ.

    The intervals hold for all arms and at all times, but for RATIO_ERROR: an arm is counted in the
    order of decisions; each is displayed or not. If two are disjoint, the shares differ: by arm, or
    by time, since a policy decides other arms at other times.
    """
    arms: list[dict[str, Any]] = []
    failure = RATIO_ERROR / max(len(labels), 1)
    for arm, label in enumerate(labels):
        ended, displayed = counts[arm] if arm < len(counts) else (0, 0)
        share = displayed / ended if ended else 0.0
        low, high = _exposure_interval(share, ended, 0, 0.0, failure)
        arms.append(
            {"label": label, "ended": ended, "displayed": displayed, "low": low, "high": high}
        )
    differ = max(each["low"] for each in arms) > min(each["high"] for each in arms)
    sentence = "No difference between arms is proved."
    if differ:
        sentence = (
            "Decisions of some arms are displayed more often than those of others: means by arm "
            "are of different participants. Look for errors in pages, logs and filters, and for a "
            "time in which reports of exposures were lost: arms have other shares at other times."
        )
    return {"arms": arms, "alarm": differ, "sentence": sentence}
