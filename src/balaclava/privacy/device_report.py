"""A report: what leaves the owner of a reward in its place. All that a user's device needs.

The device truncates the reward at a level that the server names, adds exact Laplace noise, and
sends the sum. The server sees reports only.

>>> from balaclava.privacy.device_report import truncated_report
>>> report = truncated_report(3.7, level=10.0, epsilon=1.0)

Proof.
    Truncated rewards lie in [-level, level], at most 2 level apart, and the noise is made for
    that: the Laplace mechanism is epsilon-private between any two rewards. This holds for every
    level above 0. A server that sends another level than it should changes how useful the report
    is, not how private. Each reward is reported once: every further report of it costs epsilon
    again.
"""

from __future__ import annotations

import contextlib
import math
import numbers
from typing import Any

import numpy as np

from balaclava._core.declared import Epsilon, check
from balaclava.errors import ParameterError, RewardError
from balaclava.privacy.mechanisms.laplace import laplace_report
from balaclava.privacy.mechanisms.truncation import truncated
from balaclava.privacy.randomness import SystemRandomness

_SMALLEST, _LARGEST = 1e-250, 1e250  # whose grid and noise 64-bit floats hold


def truncated_report(reward: float, *, level: float, epsilon: float) -> float:
    """A report of one reward: epsilon-locally private, whatever the level.

    Args:
        reward: any finite number.
        level: beyond it the reward counts as 0; public, sent by the server with the decision.
        epsilon: privacy loss of the report, above 0.
    """
    level = checked_level(level)
    value = truncated(checked_number("a report", "reward", reward), level)
    loss = check("epsilon", epsilon, Epsilon)
    return laplace_report(SystemRandomness(), value, 2.0 * level, loss)


def checked_level(level: Any) -> float:
    """The level as a float, or an error; it does not repeat what may be a reward, given here."""
    value = math.nan
    if isinstance(level, int | float | np.integer | np.floating) and not isinstance(level, bool):
        with contextlib.suppress(OverflowError):
            value = float(level)
    if not _SMALLEST < value < _LARGEST:
        raise ParameterError(
            f"the level (a {type(level).__name__}) is not allowed; give the finite number above 0 "
            "that came with the decision (agent.report_level), after the reward"
        )
    return value


def checked_number(
    who: str, what: str, value: Any, low: float = -math.inf, high: float = math.inf
) -> float:
    """A reward or a report as a finite float in [low, high]; an error does not repeat it."""
    allowed = f"{who} takes finite numbers"
    if math.isfinite(low) or math.isfinite(high):
        allowed = f"{who} takes numbers from {low:g} to {high:g}"
    if not isinstance(value, numbers.Real | np.bool_):
        raise RewardError(f"the {what} is not a number but a {type(value).__name__}; {allowed}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise RewardError(f"the {what} is not finite; {allowed}")
    if not low <= number <= high:
        raise RewardError(  # not even on which side it lies
            f"the {what} is outside what is allowed (its value is withheld); {allowed}: rescale "
            'it, choose another policy or reward_range, or set outside="clip"'
        )
    return number
