"""Leases: several deciders make the decisions of one policy, from slots of the same batches.

The owner alone runs the policy. It leases slots to deciders. A slot is a decision that the policy
has made already: an arm and the number of its batch. A decider answers requests with the slots of
its lease, each at most once, and takes a new lease when it needs one. A lease starts with one slot
and grows with the batch: all deciders together hold at most a fraction of a batch. It ends with the
batch in play, so that the policy chooses again in time.

A lease has a term. When it is over, its unused slots expire; a decider may return them earlier.
Such a slot is a decision that is never made: the policy forgets it, and its batch is that much
smaller. Nothing waits for a decider that stopped, longer than a term.

Proof: `leases.proof.md` beside this file.

The same functions lease in simulations, in audits, and in tests of both.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.kernels import kernel
from balaclava._core.states import MOST_PLANNED, range_faults

# Deciders together hold at most one in so many slots of a batch, or one slot each: slots that wait
# for a request delay the batch's release.
BATCH_PER_LEASES = 8
LONGEST_LEASE = 1_024  # slots
# The default term of a lease, in times in which its decider is expected to use it.
TERM_FACTOR = 4
_NEVER = 2**62  # in place of a round


class Leases(NamedTuple):
    """The newest lease of each decider."""

    # [decider]
    granted: np.ndarray  # slots of its lease
    used: np.ndarray  # of these; an expired slot counts as used
    ends: np.ndarray  # the last round of its term
    # [decider, slot]
    arms: np.ndarray
    phases: np.ndarray
    chances: np.ndarray  # propensity with which the policy chose the arm
    # One element each
    opened: np.ndarray  # slots so far: rounds of the policy
    expired: np.ndarray  # of these, never used
    next_end: np.ndarray  # the earliest round in which a lease with unused slots ends
    chance: np.ndarray  # the propensity of the last decision

    def faults(self, decisions: int) -> Iterator[str]:
        yield from range_faults(0, LONGEST_LEASE, granted=self.granted, used=self.used)
        yield from range_faults(0, MOST_PLANNED, opened=self.opened, expired=self.expired)
        if (self.used > self.granted).any():
            yield "a decider used more slots than it leased"
        if self.opened[0] - self.expired[0] - (self.granted - self.used).sum() != decisions:
            yield "slots were lost"


@kernel
def begin_leases(deciders: int, longest: int) -> Leases:
    """No lease; none will have more than `longest` slots."""
    return Leases(
        granted=np.zeros(deciders, np.int64),
        used=np.zeros(deciders, np.int64),
        ends=np.zeros(deciders, np.int64),
        arms=np.zeros((deciders, longest), np.int64),
        phases=np.zeros((deciders, longest), np.int64),
        chances=np.ones((deciders, longest)),
        opened=np.zeros(1, np.int64),
        expired=np.zeros(1, np.int64),
        next_end=np.full(1, _NEVER),
        chance=np.ones(1),
    )


@kernel(borrows=True)
def lease_length(batch: int, deciders: int) -> int:
    """Slots of a lease of a batch of this size: one at first, growing with the batch."""
    return min(max(batch // (BATCH_PER_LEASES * deciders), 1), LONGEST_LEASE)


@kernel(borrows=True)
def has_slot(leases: Leases, decider: int) -> bool:
    """Whether the decider has an unused slot."""
    return bool(leases.used[decider] < leases.granted[decider])


@kernel(borrows=True)
def begin_lease(leases: Leases, decider: int) -> None:
    """Start a lease without slots; the decider's last one has no unused slot."""
    leases.granted[decider] = 0
    leases.used[decider] = 0


@kernel(borrows=True)
def add_slot(leases: Leases, decider: int, arm: int, phase: int, chance: float) -> int:
    """Add a decision of the policy to the decider's lease: the number of its slots."""
    place = leases.granted[decider]
    leases.arms[decider, place] = arm
    leases.phases[decider, place] = phase
    leases.chances[decider, place] = chance
    leases.granted[decider] = place + 1
    return int(place + 1)


@kernel(borrows=True)
def set_term(leases: Leases, decider: int, ends: int) -> None:
    """Let the lease end after this round."""
    leases.ends[decider] = ends
    leases.next_end[0] = min(leases.next_end[0], ends)


@kernel(borrows=True)
def take_slot(leases: Leases, decider: int) -> tuple[int, int]:
    """Use the decider's next slot: arm and phase."""
    place = leases.used[decider]
    leases.used[decider] = place + 1
    leases.chance[0] = leases.chances[decider, place]
    return leases.arms[decider, place], leases.phases[decider, place]


@kernel(borrows=True)
def expire_slot(leases: Leases, decider: int) -> tuple[int, int]:
    """Take the decider's next slot back unused: arm and phase, for the policy to forget."""
    place = leases.used[decider]
    leases.used[decider] = place + 1
    leases.expired[0] += 1
    return leases.arms[decider, place], leases.phases[decider, place]


@kernel(borrows=True)
def is_over(leases: Leases, decider: int, t: int) -> bool:
    """Whether the decider has unused slots whose term ended before round t."""
    return has_slot(leases, decider) and leases.ends[decider] < t


@kernel(borrows=True)
def find_next_end(leases: Leases) -> None:
    """Note the earliest round in which a lease with unused slots ends."""
    leases.next_end[0] = _NEVER
    for decider in range(leases.granted.size):
        if has_slot(leases, decider):
            leases.next_end[0] = min(leases.next_end[0], leases.ends[decider])


def unused_slots(leases: Leases) -> Iterator[tuple[int, int]]:
    """Take all unused slots back: arm and phase of each, for the policy to forget."""
    for decider in range(leases.granted.size):
        while has_slot(leases, decider):
            arm, phase = expire_slot(leases, decider)
            yield int(arm), int(phase)


class PoolReads(NamedTuple):
    """Kernels that read the pools of a policy's state."""

    batch_size: Callable[..., int]  # (state, arm): of the arm's newest batch
    continues: Callable[..., bool]  # (state): whether the next decision is of the batch in play
    draws: Callable[..., bool]  # (state): whether the last decision was drawn, not of a batch
    chance: Callable[..., float]  # (state): the propensity of the last decision


@kernel(borrows=True)
def _own_size(state: Any, arm: int) -> int:
    return int(state.size[arm])


@kernel(borrows=True)
def _own_continues(state: Any) -> bool:
    return bool(state.rest_of_batch[0] > 0)


@kernel(borrows=True)
def _own_draws(state: Any) -> bool:
    return not state.no_draw[0]


@kernel(borrows=True)
def _own_chance(state: Any) -> float:
    return float(state.chance[0])


@kernel(borrows=True)
def _inner_size(state: Any, arm: int) -> int:
    return int(state.pools.size[arm])


@kernel(borrows=True)
def _inner_continues(state: Any) -> bool:
    return bool(state.pools.rest_of_batch[0] > 0)


@kernel(borrows=True)
def _inner_draws(state: Any) -> bool:
    return not state.pools.no_draw[0]


@kernel(borrows=True)
def _inner_chance(state: Any) -> float:
    return float(state.pools.chance[0])


# By the path of the pools in the state.
POOL_READS = {
    "": PoolReads(_own_size, _own_continues, _own_draws, _own_chance),
    "pools": PoolReads(_inner_size, _inner_continues, _inner_draws, _inner_chance),
}
