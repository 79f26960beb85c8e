"""When a trial may stop: the best arm is known, one arm will do, or no answer is in reach.

"equivalent" says that choosing one named arm costs less than the smallest difference: no arm is
better than it by so much. It may be better than the others by any difference, so this does not show
that arms are equally good.

The advice reads the released means, the number of rewards and draws of noise in each, the number of
decisions, and what the caller gives: the confidence, the smallest difference and the horizon. It
reads no reward, and no count of rewards that are not in a release. So it costs no epsilon.
"""

from typing import Annotated, Any, Literal, NamedTuple

from balaclava._core.declared import Range, check
from balaclava.agents.estimates import EstimateReader, Estimates
from balaclava.errors import ParameterError
from balaclava.policies.base import BEST_ARM

StopReason = Literal["winner", "equivalent", "futile"]
Participants = Annotated[int, Range(1, meaning="decisions that the trial can make")]
Difference = Annotated[float, Range(0, meaning="smallest difference that matters", open_low=True)]


class StopAdvice(NamedTuple):
    """Whether the trial may stop, and why; true if it may."""

    reason: StopReason | None
    sentence: str

    def __bool__(self) -> bool:
        return self.reason is not None

    def __str__(self) -> str:
        return self.sentence


def stop_advice(
    reading: EstimateReader,
    width: float,
    smallest_difference: Any,
    horizon: Any,
    estimates: Estimates | None = None,
) -> StopAdvice:
    """Say whether the trial may stop; `width` is that of the rewards' range."""
    if smallest_difference is not None:
        smallest_difference = check("smallest_difference", smallest_difference, Difference)
        if smallest_difference >= width:
            raise ParameterError(
                f"smallest_difference = {smallest_difference:g} is not below the width of the "
                f"rewards' range, {width:g}: no two means differ by so much; give a smaller one"
            )
    if horizon is not None:
        horizon = check("horizon", horizon, Participants)
    estimates = reading.estimates() if estimates is None else estimates
    sure = f"at {estimates.confidence:.6g} confidence"
    if estimates.condition is not None:
        sure += f", if {estimates.condition}"
    if reading.claim != BEST_ARM:
        return _set_advice(reading, estimates, sure, horizon)
    if estimates.winner is not None:
        label = estimates[estimates.winner].label
        return StopAdvice("winner", f"Stop: {label} is the best arm{estimates.among}, {sure}.")
    if smallest_difference is not None:
        best, most = largest_loss(estimates)
        if most < smallest_difference:
            return StopAdvice(
                "equivalent",
                f"Stop: no arm is better than {estimates[best].label} by {smallest_difference:g} "
                f"or more, {sure}; {estimates[best].label} itself may be better than the others.",
            )
    if horizon is None:
        return StopAdvice(None, "Continue: the best arm is not yet known.")
    return _futility(reading, estimates, horizon)


def _set_advice(
    reading: EstimateReader, estimates: Estimates, sure: str, horizon: int | None
) -> StopAdvice:
    """For a policy that looks for a set of arms; there is no forecast for it."""
    if estimates.answer is not None:
        return StopAdvice("winner", f"Stop: {estimates.answer}; {sure}.")
    if horizon is not None and sum(entry.decisions for entry in estimates) >= horizon:
        return StopAdvice("futile", f"Stop: all {horizon:,} decisions are made without an answer.")
    return StopAdvice(None, f"Continue: {reading.claim} are not yet known.")


def largest_loss(estimates: Estimates) -> tuple[int, float]:
    """The arm that can be worse than the best by the least, and by how much at most."""
    arms = [entry for entry in estimates if not entry.retired]
    highs = sorted((entry.interval[1] for entry in arms), reverse=True)
    losses = [
        (highs[1] if entry.interval[1] == highs[0] else highs[0]) - entry.interval[0]
        for entry in arms
    ]
    best = min(range(len(losses)), key=losses.__getitem__)
    return arms[best].arm, losses[best]


def _futility(reading: EstimateReader, estimates: Estimates, horizon: int) -> StopAdvice:
    """Compare the forecast with the decisions that are left."""
    left = horizon - sum(entry.decisions for entry in estimates)
    if not reading.all_released():
        do = "Continue" if left > 0 else "Wait for the last rewards"
        return StopAdvice(None, f"{do}: not every arm has a release yet.")
    if left <= 0:
        return StopAdvice(
            "futile",
            f"Stop: all {horizon:,} decisions are made, and no arm is named. Only rewards that are "
            "not released yet can change that.",
        )
    soonest, more = reading.soonest(), reading.remaining()
    if soonest is None or soonest > left:
        needed = "never" if soonest is None else f"only after about {soonest:,} more decisions"
        return StopAdvice(
            "futile",
            f"Stop, or extend the trial: at the largest likely difference of means it names an arm "
            f"{needed}, and {left:,} are left.",
        )
    forecast = f"about {more:,} more decisions may decide it" if more else "it is too early to tell"
    return StopAdvice(None, f"Continue: {forecast}; {left:,} are left.")
