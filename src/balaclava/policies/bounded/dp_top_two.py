"""DP top two: name the best arm, with private sums and a proved stopping rule."""

import math
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import numpy as np

from balaclava._core.declared import Range
from balaclava._core.kernels import kernel
from balaclava._core.states import range_faults
from balaclava.frames import pools as frame
from balaclava.policies.base import Kernels, register
from balaclava.policies.bounded.batched import MOST_GROWTH, GrowingBatchPolicy, release_growing
from balaclava.policies.intervals import FROM_BATCHES, NO_WINNER, read_batches
from balaclava.theory.confidence_sequences import laplace_scale, pair_evidence

AnswerConfidence = Annotated[
    float, Range(0.5, 1, "chance that the named arm is the best", open_low=True, open_high=True)
]
ANSWER_MARGIN = 1.0  # nats by which a batch is planned to pass the threshold: a guess
LEAST_EVIDENCE = 0.5  # nats: below it evidence is chance, and predicts no length; a guess


class State(NamedTuple):
    pools: frame.Pools
    evidence: np.ndarray  # [arm]: nats that the leader is better than it
    compared: np.ndarray  # [arm]: its rewards in the evidence
    leader: np.ndarray  # the arm that was compared with the others; NO_WINNER before
    named: np.ndarray  # the best arm; NO_WINNER before it is known

    def faults(self, decisions: int) -> Iterator[str]:
        yield from self.pools.faults(decisions)
        yield from range_faults(
            NO_WINNER, self.evidence.size - 1, named=self.named, leader=self.leader
        )
        yield from range_faults(0, decisions, compared=self.compared)
        yield from range_faults(0.0, math.inf, evidence=self.evidence)


@kernel
def begin(params: Any) -> State:
    return State(
        pools=frame.begin_pools(params.arms, frame.OPEN_BATCHES_PER_ARM),
        evidence=np.zeros(params.arms),
        compared=np.zeros(params.arms, np.int64),
        leader=np.full(1, NO_WINNER),
        named=np.full(1, NO_WINNER),
    )


@kernel(borrows=True)
def threshold(params: Any) -> float:
    """Evidence in nats that names the best arm."""
    return math.log((params.arms - 1.0) / (1.0 - params.confidence))


@kernel(borrows=True)
def top_two(params: Any, state: State, t: int) -> int:
    """The leader or its closest rival, whichever has fewer pulls; later the named arm."""
    pools = state.pools
    if state.named[0] != NO_WINNER:
        return state.named[0]
    lead, rival, lowest = pools.lead[0], -1, math.inf
    for arm in range(params.arms):
        if pools.ready[arm] and arm != lead:
            index = state.evidence[arm] + math.log(pools.weights[arm])
            if index < lowest:
                rival, lowest = arm, index
    if rival < 0 or (pools.ready[lead] and pools.planned[lead] <= pools.planned[rival]):
        return lead
    return rival


@kernel(borrows=True)
def closest(params: Any, state: State, arm: int) -> float:
    """The evidence that a batch of the arm should raise: its own, or the leader's least."""
    if arm != state.pools.lead[0]:
        return state.evidence[arm]
    least = math.inf
    for other in range(params.arms):
        if other != arm:
            least = min(least, state.evidence[other])
    return least


@kernel(borrows=True)
def prepare_batch(params: Any, state: State, arm: int, t: int) -> None:
    """Open a batch with which the evidence would pass the threshold, if means do not change."""
    pools = state.pools
    if not frame.needs_batch(pools, arm):
        return
    before, first = pools.planned[arm], math.ceil(params.first_batch)
    if pools.weights[arm] == 0:
        # With late rewards batches double: otherwise rows for open batches run out.
        frame.open_batch(pools, arm, max(first, before))
        return
    growth = (threshold(params) + ANSWER_MARGIN) / max(closest(params, state, arm), LEAST_EVIDENCE)
    growth = min(max(growth, params.batch_ratio), MOST_GROWTH)
    if state.named[0] != NO_WINNER:
        growth = MOST_GROWTH
    frame.open_batch(pools, arm, max(math.ceil(min(growth * before, 2.0**53)) - before, 1))


@kernel(borrows=True)
def compare(params: Any, state: State, scale: float) -> None:
    """Compare the leader with the others after a release; name it if it beats all.

    The evidence is that of the releases in order (`theory.confidence_sequences`). `scale` is that
    of the noise of a release.
    """
    pools, beaten = state.pools, 0
    lead, counted = pools.lead[0], pools.rewards_in_order
    changed = lead != state.leader[0] or counted[lead] != state.compared[lead]
    better = pools.in_order[lead], counted[lead], pools.draws_in_order[lead]
    for other in range(params.arms):
        if other != lead:
            if changed or counted[other] != state.compared[other]:
                worse = pools.in_order[other], counted[other], pools.draws_in_order[other]
                state.evidence[other] = pair_evidence(worse, better, scale, 1.0)
            if state.evidence[other] >= threshold(params):
                beaten += 1
        state.compared[other] = counted[other]
    state.leader[0] = lead
    if beaten == params.arms - 1 and state.named[0] == NO_WINNER:
        state.named[0] = lead


@kernel(borrows=True)
def release(params: Any, state: State, arm: int, row: int, rng: Any) -> None:
    if row != frame.NO_ROW:
        release_growing(params, state.pools, arm, row, rng)
        compare(params, state, laplace_scale(params.epsilon))


@kernel(borrows=True)
def learn(params: Any, state: State, t: int, arm: int, reward: float, phase: int, rng: Any) -> None:
    pools = state.pools
    row = frame.add_reward(pools, arm, frame.find_row(pools, arm, phase), reward)
    release(params, state, arm, row, rng)


@kernel(borrows=True)
def forget(params: Any, state: State, t: int, arm: int, phase: int, rng: Any) -> None:
    row = frame.give_up(state.pools, arm, frame.find_row(state.pools, arm, phase))
    release(params, state, arm, row, rng)


@kernel(borrows=True)
def read_mean(params: Any, state: State, arm: int) -> tuple[int, float, float]:
    return read_batches(params, state.pools, arm)


decide = frame.batch_driver(top_two, prepare_batch)


@kernel(borrows=True)
def choose(params: Any, state: State, t: int, context: Any, rng: Any) -> tuple[int, int]:
    return decide(params, state, state.pools, t, rng)


class TopTwoPolicy(GrowingBatchPolicy):
    """Parameters and the answer of policies that name the best arm by top two."""

    may_lock = False
    fixed_arms = "its answer is proved for the arms at the start"
    pools = "pools"
    winner_reason = "it plays the arms that are hardest to tell apart until the best is known"
    confidence: AnswerConfidence = 0.95

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.arms < 2:
            raise self.refuse("arms", "is 1: there is nothing to compare; give at least 2")

    def named_arm(self, state: State, confidence: float) -> int | None:
        named = int(state.named[0])
        return named if named != NO_WINNER and confidence <= self.confidence else None


@register
class DPTopTwo(TopTwoPolicy):
    r"""Name the best arm with a given confidence, in as few rounds as possible; then play it.

    For trials that need an answer. Until then about half of the rounds go to arms other than the
    leader: for few rounds with poor arms use dp-imed, which names a winner late or never.

    An arm is played for a whole batch. S_a grows by the sum of the batch + Lap(1/epsilon). The
    leader b has the highest released mean. For every other arm, E_a is the evidence that b is
    better than a, with all draws of noise (`theory.confidence_sequences`, Two arms):

    .. math:: E_a = \min_y \; \log A(y) + \log B(y).

    If every E_a is at least log((arms - 1)/(1 - confidence)), b is named, and played from then on;
    the answer stays. Otherwise the rival is the arm with the least

    .. math:: E_a + \log n_a.

    The next batch goes to the leader or the rival, whichever has fewer pulls. It is long enough for
    E_a to pass the threshold if the means do not change, and multiplies the pulls by batch_ratio to
    2. A wrong arm is ever named with probability at most 1 - confidence. That allows for late
    rewards whose arrival depends on their values, for lost ones if their loss does not, and for
    rewards in [0, 1] of any distribution. If several arms are best, it may never stop, and to name
    any of them is right.

    Privacy:
        epsilon-differential privacy of the whole trajectory. Each reward enters the sum of one
        batch, of sensitivity 1. The sum is released once, with noise of scale 1/epsilon, and kept.
        Everything else, the answer included, follows from released values. A batch that the horizon
        cuts off releases nothing.

    Parameters:
        epsilon: privacy loss.
        confidence: chance that the named arm is the best, above 0.5.
        batch_ratio: least growth of an arm's pulls from batch to batch, above 1.
        first_batch: pulls in an arm's first batch, rounded up; 30/epsilon by default.

    Example:
        >>> agent = bl.policy("dp-top-two", arms=3, epsilon=1.0).agent(seed=1)
        >>> while agent.winner() is None:
        ...     decision = agent.ask()
        ...     agent.tell(decision, reward=(0.1, 0.3, 0.9)[decision.arm])
        >>> agent.winner(), agent.status().decisions
        (2, 90)

    References:
        Jourdan, Degenne, Baudry, de Heide, Kaufmann. Top two algorithms revisited. NeurIPS 2022.
        Azize, Jourdan, Al Marjani, Basu. Differentially private best-arm identification. 2024.

    See Also:
        ldp-top-two, dp-imed, dp-se
    """

    name = "dp-top-two"
    reference = (
        "top two (Jourdan et al. 2022) with the stopping rule of theory.confidence_sequences"
    )
    kernels = Kernels(begin, choose, learn, forget)
    estimation = FROM_BATCHES._replace(read=read_mean, joint=1.0)
    examples = ({}, {"first_batch": 4, "confidence": 0.8})
