"""When a reward counts, and the value that counts if none came."""

import dataclasses
from typing import Annotated, Any, Literal, NamedTuple

from balaclava._core.declared import LARGEST_EPSILON, Range, brief, check
from balaclava.errors import ParameterError
from balaclava.policies.base import Policy
from balaclava.privacy.guarantee import IN_TIME, Guarantee, not_private

Settle = Literal["arrival", "window"]
MOST_PATIENCE = 10**12  # decisions; no run is longer, and 64-bit sums of rounds stay exact
PatienceRange = Annotated[int, Range(1, MOST_PATIENCE, "timeout of a reward, in further decisions")]


class Settling(NamedTuple):
    """The timeout of a reward, and when it counts.

    `settle="arrival"`: when it comes. `settle="window"`: after `patience` further decisions;
    `missing` counts if it did not come by then.
    """

    patience: int | None = None
    settle: Settle = "arrival"
    missing: float | None = None


def checked_settling(patience: Any, settle: Any, missing: Any) -> Settling:
    """Check patience, settle and missing, alone and together."""
    if patience is not None:
        patience = check("patience", patience, PatienceRange)
    settle = check("settle", settle, Settle)
    if settle == "arrival":
        if missing is not None:
            raise ParameterError(
                f"missing = {brief(missing)} needs settle = 'window'; with settle = 'arrival' a "
                "reward that does not come does not count: leave missing out"
            )
        return Settling(patience)
    if patience is None:
        raise ParameterError(
            "settle = 'window' needs patience: the length of the window, in further decisions"
        )
    if missing is None:
        raise ParameterError(
            "settle = 'window' needs missing: the value that counts if no reward came, such as 0.0"
        )
    return Settling(patience, settle, check("missing", missing, float))


ONE_COPY_CONTINUES = (
    "only one of an agent and its copies (restored from a save, or left by a fork) continued: each "
    "further copy releases the same rewards again and costs epsilon again"
)
ARRIVES_REGARDLESS = (
    "when and whether any reward comes, or is cancelled, does not depend on the value of any reward"
)
# Without it the decisions of others could repeat the reward: cancel them all iff it is 1.
OTHERS_REGARDLESS = (
    "values, arrivals and cancellations of other rewards, and requests for decisions, do not "
    "depend on this reward, except through released values"
)


def arrival_condition(*, window: bool, in_order: bool, lost: bool) -> str | None:
    """What intervals assume of arrivals; None if arrivals may depend on rewards.

    If rewards count in the order of decisions and none is lost, they may
    (`theory.confidence_sequences`).
    """
    return None if window or (in_order and not lost) else ARRIVES_REGARDLESS


def missing_rewards(missing: float | None) -> str | None:
    """What estimated means contain in place of rewards that did not come; None if nothing."""
    if missing is None:
        return None
    return (
        f"A reward that did not come in its window counts as {missing:g} in its arm's mean, also "
        "if it was lost on its way."
    )


def guarantee_when_settled(
    guarantee: Guarantee,
    *,
    window: bool,
    copied: bool,
    otherwise: str = "; if it does, make the agent with settle='window'",
) -> Guarantee:
    """A policy's guarantee with the assumptions of settling and of copies.

    `otherwise` says what to do if arrival depends on a reward's value.
    """
    if not guarantee.private:
        return guarantee
    added = (ONE_COPY_CONTINUES,) if copied else ()
    if window and guarantee.model == "central":
        return dataclasses.replace(
            guarantee,
            neighbours=IN_TIME[guarantee.scope == "joint"],
            assumptions=(*guarantee.assumptions, OTHERS_REGARDLESS, *added),
        )
    arrival = ARRIVES_REGARDLESS + otherwise
    return dataclasses.replace(guarantee, assumptions=(*guarantee.assumptions, arrival, *added))


def guarantee_after_restores(guarantee: Guarantee, restored: int, what: str) -> Guarantee:
    """The guarantee after `restored` restores of `what` that was continued already.

    Each may release unfinished batches again, so epsilon and delta add up.
    """
    if not restored or not guarantee.private:
        return guarantee
    times = 1 + restored
    epsilon, delta = times * guarantee.epsilon, times * guarantee.delta
    if epsilon > LARGEST_EPSILON or delta >= 1:
        return not_private(f"{what} was restored {restored} times", guarantee.reference)
    return dataclasses.replace(guarantee, epsilon=epsilon, delta=delta)


def require_missing(policy: Policy, settling: Settling) -> None:
    """Refuse a `missing` that the policy would not accept as a reward."""
    low, high = policy.accepts
    missing = settling.missing
    if missing is not None and not policy.clips and not low <= missing <= high:
        raise ParameterError(
            f"missing = {missing:g} is not allowed; {policy.name} takes rewards in "
            f"[{low:g}, {high:g}]"
        )
