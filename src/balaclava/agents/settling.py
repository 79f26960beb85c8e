"""When a reward is handed to the policy, and what counts where none came."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal, NamedTuple

from balaclava._core.declared import Range, brief, check
from balaclava.errors import ParameterError
from balaclava.policies.base import Policy
from balaclava.privacy.guarantee import NEIGHBOURS_IN_TIME, Guarantee

Settle = Literal["arrival", "window"]
MostPatience = 10**12
PatienceRange = Annotated[int, Range(1, MostPatience, "further decisions that one waits for")]


class Settling(NamedTuple):
    """How long a decision is waited for, and when its reward counts.

    `settle="arrival"`: when it comes. `settle="window"`: once `patience` further decisions were
    made, whether it came or not; `missing` counts where it did not.
    """

    patience: int | None = None
    settle: Settle = "arrival"
    missing: float | None = None


def checked_settling(patience: Any, settle: Any, missing: Any) -> Settling:
    """What was asked for, or an error that says what does not go together."""
    if patience is not None:
        patience = check("patience", patience, PatienceRange)
    settle = check("settle", settle, Settle)
    if settle == "arrival":
        if missing is not None:
            raise ParameterError(
                f"missing = {brief(missing)} goes with settle = 'window'; with settle = 'arrival' "
                "a reward that does not come counts nothing: leave missing out"
            )
        return Settling(patience)
    if patience is None:
        raise ParameterError(
            "settle = 'window' needs patience: the number of further decisions after which a "
            "reward, or `missing`, is handed to the policy"
        )
    if missing is None:
        raise ParameterError(
            "settle = 'window' needs missing: what counts where no reward came, such as 0.0"
        )
    return Settling(patience, settle, check("missing", missing, float))


GOES_ON_ONCE = (
    "of an agent and its copies (restored from a save, or left by a fork) only one went on: every "
    "copy that goes on releases the same rewards again and costs epsilon again"
)
ARRIVES_REGARDLESS = (
    "when and whether a reward comes, or is cancelled, does not depend on what it is; if it does, "
    "make the agent with settle='window'"
)


def guarantee_when_settled(guarantee: Guarantee, *, window: bool, copied: bool) -> Guarantee:
    """A policy's guarantee with what settling, and copies of the state, make of it."""
    if not guarantee.private:
        return guarantee
    added = (GOES_ON_ONCE,) if copied else ()
    if window and guarantee.model == "central":
        return dataclasses.replace(
            guarantee,
            neighbours=NEIGHBOURS_IN_TIME,
            assumptions=(*guarantee.assumptions, *added),
        )
    return dataclasses.replace(
        guarantee, assumptions=(*guarantee.assumptions, ARRIVES_REGARDLESS, *added)
    )


def require_missing(policy: Policy, settling: Settling) -> None:
    """Refuse a stand-in that the policy would not take as a reward."""
    low, high = policy.accepts
    missing = settling.missing
    if missing is not None and not policy.clips and not low <= missing <= high:
        raise ParameterError(
            f"missing = {missing:g} is not allowed; {policy.name} takes rewards in "
            f"[{low:g}, {high:g}]"
        )
