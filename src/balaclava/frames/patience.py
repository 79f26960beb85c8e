"""How long a decision is waited for: the rule that agents and the simulator share.

With a patience p that was set, a decision is given up once p further decisions were made. Otherwise
patience is found: nobody is given up before 30 rewards have come; from then on after 1.25 times the
wait that 3 rewards in 100 exceed, and never before 256 further decisions.

That wait is tracked: it is the longest of the first 30, then rises by 9 % with each reward that
took longer and falls by 0.26 % with each that did not, so that it stands still where 3 in 100 take
longer, and follows when delays change. Waits of rewards that came too late to count are among them,
up to 16,384 decisions: else nothing would show that too much is given up. Rewards are not looked
at, nor is what they are.

A longer patience loses fewer rewards, but a batch that misses one settles later. Of delays that are
all alike this loses none; of geometric ones, which have no largest, 2 in 100.
"""

from __future__ import annotations

from typing import NamedTuple

from balaclava._core.kernels import kernel

FOUND = 0  # in place of a number of decisions: patience is found
ENDLESS = 2**62
LEAST_REWARDS = 30
LEAST_WAIT = 256
TIMES = 1.25
MOST_TIMES = 1.4  # times the longest wait: patience is always less, where it is not LEAST_WAIT
LATE = 2**14  # the longest wait that counts though the reward does not
SHARE = 0.03  # of rewards that take longer than the reach
RISE = 2.0 ** ((1.0 - SHARE) / 8.0)
FALL = 2.0 ** (-SHARE / 8.0)
LEAST_REACH = LEAST_WAIT / TIMES


class Patience(NamedTuple):
    """What is known about waits: numbers, so that a compiled loop keeps them in registers."""

    limit: int  # further decisions after which one is given up, or FOUND
    came: int  # rewards so far
    reach: float  # the wait that 3 in 100 of them exceed


@kernel(borrows=True)
def begin_patience(limit: int) -> Patience:
    """No reward so far."""
    return Patience(limit, 0, LEAST_REACH)


@kernel(borrows=True)
def note_wait(patience: Patience, wait: int) -> Patience:
    """A reward came after `wait` further decisions."""
    limit, came, reach = patience.limit, patience.came + 1, patience.reach
    if wait <= reach:
        return Patience(limit, came, max(FALL * reach, LEAST_REACH))
    return Patience(limit, came, float(wait) if came <= LEAST_REWARDS else RISE * reach)


@kernel(borrows=True)
def longest_wait(patience: Patience) -> int:
    """After how many further decisions one is given up; ENDLESS while nobody is."""
    if patience.limit != FOUND:
        return patience.limit
    return int(TIMES * patience.reach) if patience.came >= LEAST_REWARDS else ENDLESS
