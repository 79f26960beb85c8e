"""Kernels of dp-top-two for sets of arms: the best k, or those above a threshold or a control."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.kernels import kernel
from balaclava._core.states import range_faults
from balaclava.frames import pools as frame
from balaclava.policies.base import Kernels
from balaclava.policies.bounded.batched import MOST_GROWTH, release_growing
from balaclava.policies.intervals import NO_WINNER
from balaclava.theory.confidence_sequences import laplace_scale, pair_evidence, side_evidence

NO_CONTROL = -1  # in place of an arm
ANSWER_MARGIN = 1.0  # nats by which a batch is planned to pass the threshold: a guess
LEAST_EVIDENCE = 0.5  # nats: below it evidence is chance, and predicts no length; a guess


@kernel(borrows=True)
def grow_batch(
    params: Any, pools: frame.Pools, arm: int, needed: float, evidence: float, answered: bool
) -> None:
    """Open a batch that would raise the evidence as needed; after the answer, double the pulls."""
    before, first = pools.planned[arm], math.ceil(params.first_batch)
    if pools.weights[arm] == 0:
        # With late rewards batches double: otherwise rows for open batches run out.
        frame.open_batch(pools, arm, max(first, before))
        return
    growth = (needed + ANSWER_MARGIN) / max(evidence, LEAST_EVIDENCE)
    growth = min(max(growth, params.batch_ratio), MOST_GROWTH)
    if answered:
        growth = MOST_GROWTH
    frame.open_batch(pools, arm, max(math.ceil(min(growth * before, 2.0**53)) - before, 1))


class SetState(NamedTuple):
    pools: frame.Pools
    # [arm, other]: nats that their means have this order; on the diagonal an arm and the threshold
    evidence: np.ndarray
    compared: np.ndarray  # [arm]: its rewards in the evidence
    chosen: np.ndarray  # [arm]: whether it is in the set, by the means so far
    named: np.ndarray  # the arm to play once the set is known; NO_WINNER before

    def faults(self, decisions: int) -> Iterator[str]:
        yield from range_faults(NO_WINNER, self.chosen.size - 1, named=self.named)
        yield from range_faults(0, decisions, compared=self.compared)
        yield from range_faults(0.0, math.inf, evidence=self.evidence)


@kernel
def begin(params: Any) -> SetState:
    return SetState(
        pools=frame.begin_pools(params.arms, frame.OPEN_BATCHES_PER_ARM),
        evidence=np.zeros((params.arms, params.arms)),
        compared=np.zeros(params.arms, np.int64),
        chosen=np.zeros(params.arms, np.bool_),
        named=np.full(1, NO_WINNER),
    )


@kernel(borrows=True)
def claims(params: Any) -> float:
    """How many claims may be wrong at once: see `theory.confidence_sequences`, Sets of arms."""
    if params.control != NO_CONTROL:
        return params.arms - 1.0
    return params.top * (params.arms - params.top) if params.top > 0 else float(params.arms)


@kernel(borrows=True)
def needed_evidence(params: Any) -> float:
    return math.log(claims(params) / (1.0 - params.confidence))


@kernel(borrows=True)
def may_matter(params: Any, arm: int, other: int) -> bool:
    """Whether the set may depend on the order of two arms, or of an arm and the threshold."""
    if params.control != NO_CONTROL:
        return arm != other and (arm == params.control or other == params.control)
    return (arm != other) == (params.top > 0)


@kernel(borrows=True)
def is_open(params: Any, state: SetState, arm: int, other: int) -> bool:
    """Whether the set depends on an order that is not known yet."""
    if params.top > 0 and state.chosen[arm] == state.chosen[other]:
        return False
    return may_matter(params, arm, other) and state.evidence[arm, other] < needed_evidence(params)


@kernel(borrows=True)
def is_chosen(params: Any, pools: frame.Pools, arm: int) -> bool:
    """Whether the arm is in the set, by the means so far. Of equal arms the first is better."""
    mean = pools.in_order[arm]
    if params.control != NO_CONTROL:
        return bool(arm != params.control and mean > pools.in_order[params.control])
    if params.top == 0:
        return bool(mean > params.threshold)
    better = 0
    for other in range(params.arms):
        if pools.in_order[other] > mean or (pools.in_order[other] == mean and other < arm):
            better += 1
    return better < params.top


@kernel(borrows=True)
def evidence_of(params: Any, pools: frame.Pools, arm: int, other: int, scale: float) -> float:
    means, counted, draws = pools.in_order, pools.rewards_in_order, pools.draws_in_order
    low, high = (arm, other) if means[arm] < means[other] else (other, arm)
    worse = means[low], counted[low], params.noises * draws[low]
    if arm == other:
        return side_evidence(worse, params.threshold, scale)
    better = means[high], counted[high], params.noises * draws[high]
    return pair_evidence(worse, better, scale, 1.0)


@kernel(borrows=True)
def compare(params: Any, state: SetState, scale: float) -> None:
    """Compare the arms whose releases in order changed; name the set once nothing is open."""
    pools, counted, left = state.pools, state.pools.rewards_in_order, 0
    if state.named[0] != NO_WINNER:
        return
    for arm in range(params.arms):
        state.chosen[arm] = is_chosen(params, pools, arm)
        for other in range(arm, params.arms):
            changed = counted[arm] != state.compared[arm] or counted[other] != state.compared[other]
            if changed and may_matter(params, arm, other):
                nats = evidence_of(params, pools, arm, other, scale)
                state.evidence[arm, other], state.evidence[other, arm] = nats, nats
    for arm in range(params.arms):
        state.compared[arm] = counted[arm]
        for other in range(arm, params.arms):
            if is_open(params, state, arm, other):
                left += 1
    if left == 0:
        state.named[0] = pools.lead[0]


@kernel(borrows=True)
def closest_pair(params: Any, state: SetState, t: int) -> int:
    """Of the pair of arms that is hardest to tell apart, the one with fewer pulls.

    Arms that wait are left out; without any other, and once the set is known, play the leader.
    """
    pools, best, lowest = state.pools, state.pools.lead[0], math.inf
    if state.named[0] != NO_WINNER:
        return state.named[0]
    for a in range(params.arms):
        for b in range(a, params.arms):
            if is_open(params, state, a, b) and (pools.ready[a] or pools.ready[b]):
                fewer = b if pools.planned[b] < pools.planned[a] else a
                arm = fewer if pools.ready[fewer] else a + b - fewer
                weight = max(min(pools.weights[a], pools.weights[b]), 1)
                index = state.evidence[a, b] + math.log(weight)
                if index < lowest:
                    best, lowest = arm, index
    return best


@kernel(borrows=True)
def prepare_batch(params: Any, state: SetState, arm: int, t: int) -> None:
    """Open a batch with which the arm's least evidence would suffice, if means do not change."""
    needed, least = needed_evidence(params), math.inf
    for other in range(params.arms):
        if is_open(params, state, arm, other):
            least = min(least, state.evidence[arm, other])
    if frame.needs_batch(state.pools, arm):
        grow_batch(params, state.pools, arm, needed, least, state.named[0] != NO_WINNER)


@kernel(borrows=True)
def release(params: Any, state: SetState, arm: int, row: int, rng: Any) -> None:
    if row != frame.NO_ROW:
        release_growing(params, state.pools, arm, row, rng)
        compare(params, state, laplace_scale(params.epsilon))


@kernel(borrows=True)
def learn(
    params: Any, state: SetState, t: int, arm: int, reward: float, phase: int, rng: Any
) -> None:
    row = frame.add_reward(state.pools, arm, frame.find_row(state.pools, arm, phase), reward)
    release(params, state, arm, row, rng)


@kernel(borrows=True)
def forget(params: Any, state: SetState, t: int, arm: int, phase: int, rng: Any) -> None:
    row = frame.give_up(state.pools, arm, frame.find_row(state.pools, arm, phase))
    release(params, state, arm, row, rng)


decide = frame.batch_driver(closest_pair, prepare_batch)


@kernel(borrows=True)
def choose(params: Any, state: SetState, t: int, context: Any, rng: Any) -> tuple[int, int]:
    return decide(params, state, state.pools, t, rng)


SET_KERNELS = Kernels(begin, choose, learn, forget)
