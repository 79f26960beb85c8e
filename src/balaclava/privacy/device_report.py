"""Private reports of rewards, made on a participant's device.

The device truncates the reward at a level that the server sends, adds exact Laplace noise, and
reports the result. The server sees reports only.

>>> from balaclava.privacy.device_report import truncated_report
>>> report = truncated_report(3.7, level=10.0, epsilon=1.0)

Proof.
    Truncated rewards lie in [-level, level], at most 2 level apart, and the noise is scaled to
    that: the Laplace mechanism is epsilon-private between any two rewards. This holds for every
    level above 0. A server that sends a wrong level makes the report less useful, not less
    private. Report each reward once: every further report of it costs epsilon again.
"""

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

# The range of levels whose grid and noise 64-bit floats hold, with a margin.
_LEAST_LEVEL, _LARGEST_LEVEL = 1e-250, 1e250


def truncated_report(reward: float, *, level: float, epsilon: float) -> float:
    """Report one reward with epsilon-local differential privacy, for every level.

    Args:
        reward: any finite number.
        level: public, sent by the server with the decision; a reward beyond it counts as 0.
        epsilon: privacy loss of the report, above 0.

    Returns:
        The report: the truncated reward with exact Laplace noise.

    Raises:
        RewardError: if the reward is not a finite number.
        ParameterError: if the level or epsilon is out of range.
    """
    level = checked_level(level)
    value = truncated(checked_number("a report", "reward", reward), level)
    loss = check("epsilon", epsilon, Epsilon)
    return laplace_report(SystemRandomness(), value, 2.0 * level, loss)


def checked_level(level: Any) -> float:
    """The level as a float. Errors omit its value: a caller may have passed a reward."""
    value = math.nan
    if isinstance(level, int | float | np.integer | np.floating) and not isinstance(level, bool):
        with contextlib.suppress(OverflowError):
            value = float(level)
    if not _LEAST_LEVEL < value < _LARGEST_LEVEL:
        raise ParameterError(
            f"the level (of type {type(level).__name__}) is not a positive finite number; pass the "
            "level of the decision (agent.report_level) after the reward"
        )
    return value


def checked_number(
    receiver: str, what: str, value: Any, low: float = -math.inf, high: float = math.inf
) -> float:
    """A reward or a report as a finite float in [low, high]. Errors omit its value."""
    allowed = f"{receiver} takes finite numbers"
    if math.isfinite(low) or math.isfinite(high):
        allowed = f"{receiver} takes numbers from {low:g} to {high:g}"
    if not isinstance(value, numbers.Real | np.bool_):
        raise RewardError(f"the {what} is a {type(value).__name__}, not a number; {allowed}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise RewardError(f"the {what} is not finite; {allowed}")
    if not low <= number <= high:
        raise RewardError(  # not even on which side it lies
            f"the {what} is out of range (its value is withheld); {allowed}: rescale it, choose "
            'another policy or reward_range, or set outside="clip"'
        )
    return number
