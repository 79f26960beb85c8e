"""The timeout of a reward, in further decisions: one rule for agents and the simulator.

A given patience p is the timeout. Otherwise the timeout is estimated: none before 30 rewards have
come; then 1.25 times the 97 % quantile of the waits, and at least 256 decisions.

The quantile is tracked: it is the longest of the first 30 waits, then rises by 9 % with each longer
wait and falls by 0.26 % with each shorter one. So it settles where 3 in 100 waits are longer, and
follows when delays change. Waits of rewards that came after their timeout count too, up to 16,384
decisions; otherwise a timeout that is too short would never grow. Values of rewards are not used.

A longer timeout loses fewer rewards, but a batch that misses one settles later. Constant delays
lose none; geometric delays, which have no largest, lose 2 in 100.
"""

from typing import NamedTuple

from balaclava._core.kernels import kernel

# Units are further decisions. The rule was chosen by experiment; its constants are flat.
ESTIMATED = 0  # in place of a patience: the timeout is estimated
ENDLESS = 2**62  # no timeout
LEAST_REWARDS = 30  # rewards before the first timeout: about one exceeds the 97 % quantile
LEAST_WAIT = 256  # the shortest estimated timeout
TIMEOUT_FACTOR = 1.25  # times the tracked quantile
MOST_TIMEOUT_FACTOR = 1.4  # times the longest wait: bounds every timeout above LEAST_WAIT
LONGEST_LATE_WAIT = 2**14  # a later reward does not change the quantile
SLOW_SHARE = 0.03  # share of waits above the tracked quantile
RISE = 2.0 ** ((1.0 - SLOW_SHARE) / 8.0)  # step up; with FALL the quantile is the fixed point
FALL = 2.0 ** (-SLOW_SHARE / 8.0)
LEAST_REACH = LEAST_WAIT / TIMEOUT_FACTOR


class Patience(NamedTuple):
    """The tracked waits: plain numbers, which a compiled loop keeps in registers."""

    limit: int  # the given timeout, or ESTIMATED
    rewards: int  # so far
    reach: float  # the tracked 97 % quantile of their waits


@kernel(borrows=True)
def begin_patience(limit: int) -> Patience:
    return Patience(limit, 0, LEAST_REACH)


@kernel(borrows=True)
def note_wait(patience: Patience, wait: int) -> Patience:
    """Count a reward that came after `wait` further decisions."""
    limit, rewards, reach = patience.limit, patience.rewards + 1, patience.reach
    if wait <= reach:
        return Patience(limit, rewards, max(FALL * reach, LEAST_REACH))
    return Patience(limit, rewards, float(wait) if rewards <= LEAST_REWARDS else RISE * reach)


@kernel(borrows=True)
def longest_wait(patience: Patience) -> int:
    """The timeout in further decisions; ENDLESS if there is none yet."""
    if patience.limit != ESTIMATED:
        return patience.limit
    known = patience.rewards >= LEAST_REWARDS
    return int(TIMEOUT_FACTOR * patience.reach) if known else ENDLESS
