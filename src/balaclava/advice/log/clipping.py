"""Limits for clipping rewards: where they come from, and how they bias the averages."""

import math
import os
from collections.abc import Callable

import numpy as np

from balaclava.errors import ParameterError
from balaclava.logs.cells import PIPE, ReadOptions, read_columns
from balaclava.logs.reader import read_rewards
from balaclava.simulation.analysis.statistics import plus_minus

CLIP_QUANTILES = (0.001, 0.999)  # of a public file; a convention: `compare` shows their bias
_MIN_REWARDS_BEYOND_QUANTILE = 10  # for a relative error of about 30 % of its probability
_ARMS_LISTED = 5  # most biased arms named in a sentence, for readability


def public_limits(
    path: str | os.PathLike[str],
    *,
    reward: str,
    quantiles: tuple[float, float],
    read_options: ReadOptions,
) -> tuple[tuple[float, float], str]:
    """Quantiles of a public file's rewards, rounded outwards, and a sentence on their source.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile() as file:
        ...     _ = file.write(b"paid\\n" + b"".join(b"%d\\n" % i for i in range(1001)))
        ...     file.flush()
        ...     limits, _ = public_limits(
        ...         file.name, reward="paid", quantiles=(0.1, 0.9), read_options=ReadOptions())
        >>> limits
        (100.0, 900.0)
    """
    source, (low, high) = os.fspath(path), quantiles
    if not 0 <= low < high <= 1:
        raise ParameterError(
            f"clip-quantiles = ({low:g}, {high:g}) are not allowed; give two shares between 0 and "
            "1, the smaller first, such as 0.001 0.999"
        )
    if source == PIPE:
        raise ParameterError("clip-from cannot be a pipe; give the path of a file")
    columns = read_columns(source, {"reward": reward}, read_options.checked())
    rewards, _ = read_rewards(source, columns, reward, read_options)
    if rewards.size == 0:
        raise ParameterError(f"{source} has no rows to take quantiles of; give another file")
    bottom, top = (float(each) for each in np.quantile(rewards, (low, high)))
    limits = (_round_outwards(bottom, math.floor), _round_outwards(top, math.ceil))
    if limits[0] >= limits[1]:
        raise ParameterError(
            f"the quantiles {low:g} and {high:g} of {source} are one number; give others with "
            "--clip-quantiles, or limits with --clip"
        )
    few = rewards.size * min(low or 1, 1 - high or 1) < _MIN_REWARDS_BEYOND_QUANTILE
    return limits, (
        f"The limits of clipping are the {100 * low:g} % and {100 * high:g} % quantiles of "
        f"{rewards.size:,} rewards in {source}. That file must be public: its rewards are not "
        "protected." + (" They are few for such quantiles." if few else "")
    )


def _round_outwards(value: float, outwards: Callable[[float], int]) -> float:
    """Round to three significant digits."""
    if value == 0:
        return 0.0
    step = 10.0 ** (math.floor(math.log10(abs(value))) - 2)
    return float(f"{outwards(round(value / step, 6)) * step:.3g}")


def clipping_findings(
    labels: list[str], samples: list[np.ndarray], limits: tuple[float, float]
) -> list[str]:
    """How clipping changes the averages of the arms, in sentences.

    >>> clipping_findings(["a", "b"], [np.array([1.0, 9, 1, 9]), np.array([4.0, 4, 6, 6])], (0, 5))
    ["Clipping to [0, 5] touches 50 % of the rewards. It moves the averages of 'a' by -2 ± 3.7 \
(95 %), 'b' by -0.5 ± 0.92. The highest average moves from 'a' to 'b': it hides the best arm."]
    """
    low, high = limits
    shifts = [np.clip(rewards, low, high) - rewards for rewards in samples]
    touched = sum(int((shift != 0).sum()) for shift in shifts) / sum(map(len, samples))
    if touched == 0:
        return [f"Clipping to [{low:g}, {high:g}] touches none of the rewards here."]
    means = np.array([rewards.mean() for rewards in samples])
    biases = np.array([shift.mean() for shift in shifts])
    most = np.argsort(-np.abs(biases), kind="stable")[:_ARMS_LISTED]
    moves = ", ".join(
        f"{labels[i]!r} by {biases[i]:+.2g} ± {plus_minus(shifts[i]):.2g}"
        + (" (95 %)" if i == most[0] else "")
        for i in most
    )
    which = "the averages of" if len(samples) <= _ARMS_LISTED else "averages, most those of"
    best, after = labels[int(np.argmax(means))], labels[int(np.argmax(means + biases))]
    order = "The arm with the highest average stays the same."
    if best != after:
        order = f"The highest average moves from {best!r} to {after!r}: it hides the best arm."
    return [
        f"Clipping to [{low:g}, {high:g}] touches {100 * touched:.2g} % of the rewards. "
        f"It moves {which} {moves}. {order}"
    ]
