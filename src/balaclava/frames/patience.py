"""How long a decision is waited for: the rule that agents and the simulator share.

With a patience p that was set, a decision is given up once p further decisions were made. Otherwise
patience is found: nobody is given up before 30 rewards have come; from then on after four times the
longest wait so far, and never before 256 further decisions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from balaclava._core.kernels import kernel

FOUND = 0  # in place of a number of decisions: patience is found
ENDLESS = 2**62
LEAST_REWARDS = 30
LEAST_WAIT = 256
TIMES = 4


class Patience(NamedTuple):
    """What is known about waits. Scalars are arrays of one element."""

    limit: np.ndarray  # further decisions after which one is given up, or FOUND
    came: np.ndarray  # rewards so far
    longest: np.ndarray  # the longest wait of a reward, in further decisions


@kernel
def begin_patience(limit: int) -> Patience:
    """No reward so far."""
    return Patience(np.full(1, limit, np.int64), np.zeros(1, np.int64), np.zeros(1, np.int64))


@kernel(borrows=True)
def note_wait(patience: Patience, wait: int) -> None:
    """A reward came after `wait` further decisions."""
    patience.came[0] += 1
    patience.longest[0] = max(patience.longest[0], wait)


@kernel(borrows=True)
def longest_wait(patience: Patience) -> int:
    """After how many further decisions one is given up; ENDLESS while nobody is."""
    if patience.limit[0] != FOUND:
        return int(patience.limit[0])
    if patience.came[0] < LEAST_REWARDS:
        return ENDLESS
    return int(max(LEAST_WAIT, TIMES * patience.longest[0]))
