"""DP top two: name the best arm, with private sums and a proved stopping rule."""

import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from balaclava._core.declared import Range, check
from balaclava._core.kernels import kernel
from balaclava._core.states import holds_slots, range_faults
from balaclava.errors import nearest
from balaclava.frames import pools as frame
from balaclava.policies.base import Kernels, WinnerOutlook, register
from balaclava.policies.bounded.batched import GrowingBatchPolicy, release_growing
from balaclava.policies.bounded.top_two_goals import NO_CONTROL, SET_KERNELS, grow_batch
from balaclava.policies.intervals import FROM_NOISY_SUMS, NO_WINNER
from balaclava.theory.confidence_sequences import laplace_scale, largest_radius, pair_evidence

AnswerConfidence = Annotated[
    float, Range(0.5, 1, "chance that the named arm is the best", open_low=True, open_high=True)
]
SEARCH_STEP = 1.01  # growth of n in the search for a bound, which is larger by as much
Goal = Literal["best", "top", "above"]
Top = Annotated[int, Range(1, meaning="number of best arms to find, with goal = 'top'")]
Threshold = Annotated[float, Range(meaning="mean that an arm must exceed, with goal = 'above'")]
Control = Annotated[int, Range(0, meaning="arm to exceed, or its name, with goal = 'above'")]


@holds_slots("leader", "named")
class State(NamedTuple):
    pools: frame.Pools
    evidence: np.ndarray  # [arm]: nats that the leader is better than it
    compared: np.ndarray  # [arm]: its rewards in the evidence
    leader: np.ndarray  # the arm that was compared with the others; NO_WINNER before
    named: np.ndarray  # the best arm; NO_WINNER before it is known

    def faults(self, decisions: int) -> Iterator[str]:
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
def needed_of_pair(params: Any, arm: int, other: int) -> float:
    """Evidence in nats that shows which of two arms is better."""
    return max(params.needed[arm], params.needed[other])


@kernel(borrows=True)
def is_offered(params: Any, arm: int) -> bool:
    """Whether the arm was not retired."""
    return bool(params.needed[arm] < math.inf)


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
    if rival < 0:
        return lead
    # While the leader waits, a rival with twice its pulls can add little evidence: the leader is an
    # arm that came late.
    times = 1 if pools.ready[lead] else 2
    return lead if times * pools.planned[lead] <= pools.planned[rival] else rival


@kernel(borrows=True)
def closest(params: Any, state: State, arm: int) -> int:
    """The arm in a pair with this one whose evidence a batch should raise.

    The leader; for the leader the arm that is hardest to tell from it, or itself if it is alone.
    """
    lead = state.pools.lead[0]
    if arm != lead:
        return int(lead)
    rival, least = arm, math.inf
    for other in range(params.arms):
        if other != arm and state.evidence[other] < least:
            rival, least = other, state.evidence[other]
    return rival


@kernel(borrows=True)
def prepare_batch(params: Any, state: State, arm: int, t: int) -> None:
    """Open a batch with which the evidence would pass the threshold, if means do not change."""
    if frame.needs_batch(state.pools, arm):
        other, answered = closest(params, state, arm), state.named[0] != NO_WINNER
        worse = other if arm == state.pools.lead[0] else arm
        evidence = math.inf if other == arm else state.evidence[worse]
        needed = needed_of_pair(params, arm, other)
        grow_batch(params, state.pools, arm, needed, evidence, answered)


@kernel(borrows=True)
def offered_leader(params: Any, pools: frame.Pools) -> int:
    """The arm with the highest released mean of those not retired; NO_WINNER without a release."""
    lead, highest = NO_WINNER, -math.inf
    for arm in range(params.arms):
        if is_offered(params, arm) and pools.weights[arm] > 0 and pools.means[arm] > highest:
            lead, highest = arm, pools.means[arm]
    return lead


@kernel(borrows=True)
def compare(params: Any, state: State, scale: float) -> None:
    """Compare the leader with the others after a release; name it if it beats all.

    The evidence is that of the releases in order (`theory.confidence_sequences`). `scale` is that
    of the noise of a release.
    """
    pools, beaten, rivals = state.pools, 0, 0
    lead, counted = offered_leader(params, pools), pools.rewards_in_order
    if lead == NO_WINNER:
        return
    changed = lead != state.leader[0] or counted[lead] != state.compared[lead]
    better = pools.in_order[lead], counted[lead], params.noises * pools.draws_in_order[lead]
    for other in range(params.arms):
        if other != lead and is_offered(params, other):
            rivals += 1
            if changed or counted[other] != state.compared[other]:
                draws = params.noises * pools.draws_in_order[other]
                worse = pools.in_order[other], counted[other], draws
                state.evidence[other] = pair_evidence(worse, better, scale, 1.0)
            if state.evidence[other] >= needed_of_pair(params, lead, other):
                beaten += 1
        state.compared[other] = counted[other]
    state.leader[0] = lead
    if beaten == rivals and state.named[0] == NO_WINNER:
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


decide = frame.batch_driver(top_two, prepare_batch)


@kernel(borrows=True)
def choose(params: Any, state: State, t: int, context: Any, rng: Any) -> tuple[int, int]:
    return decide(params, state, state.pools, t, rng)


BEST_KERNELS = Kernels(begin, choose, learn, forget)


class TopTwoPolicy(GrowingBatchPolicy):
    """Parameters and the answer of policies that name the best arm by top two.

    Once arms come or leave, the answer is about those that were not retired, and a pair of arms
    needs evidence of log(1/(w (1 - confidence))): w is its weight among all pairs that will ever be
    compared (`Policy.with_arms`). All answers after the first change are wrong together with
    probability at most 1 - confidence.
    """

    derived_constants = ("noises", "needed")
    may_lock = False
    pools = "pools"
    winner_reason = "it plays the arms that are hardest to tell apart until the best is known"
    confidence: AnswerConfidence = 0.95

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.arms < 2:
            raise self.refuse("arms", "leaves nothing to compare; give at least 2")

    @property
    def noise_scale(self) -> float:
        """The scale of the noise of a release; 0 without noise."""
        return laplace_scale(self.epsilon)

    @property
    def needed(self) -> np.ndarray:
        """Evidence in nats that each arm's pairs need."""
        return np.full(int(self.arms), math.log((self.arms - 1.0) / (1.0 - self.confidence)))

    def with_arms(self, params: Any, claims: Sequence[float], added_after: Sequence[int]) -> Any:
        needed = np.log(np.array(claims) / (1.0 - self.confidence))
        return params._replace(arms=len(claims), needed=needed)

    def renew_answer(self, params: Any, state: Any) -> None:
        state.leader[0] = state.named[0] = NO_WINNER
        compare(params, state, self.noise_scale)

    def named_arm(self, state: Any, confidence: float) -> int | None:
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
    the answer stays unless arms come or leave. Otherwise the rival is the arm with the least

    .. math:: E_a + \log n_a.

    The next batch goes to the leader or the rival, whichever has fewer pulls; while the leader
    waits for late rewards, to the rival unless it has twice as many. It is long enough for
    E_a to pass the threshold if the means do not change, and multiplies the pulls by batch_ratio to
    2. A wrong arm is ever named with probability at most 1 - confidence. That allows for late
    rewards whose arrival depends on their values, for lost ones if their loss does not, and for
    rewards in [0, 1] of any distribution. If several arms are best, it may never stop, and to name
    any of them is right.

    With goal = "top" it finds the `top` best arms, with "above" the arms whose mean is above
    `threshold`, or above that of the arm `control`. The evidence is that of each pair on which the
    set depends, or of each arm and the threshold; the next batch goes to the pair with the least.
    `agent.estimates().answer` is then the set, wrong with probability at most 1 - confidence. An
    arm exactly at the threshold or as good as the control keeps it open.

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
        goal: "best", "top" or "above".

    Example:
        >>> agent = bl.policy("dp-top-two", arms=3, epsilon=1.0).agent(seed=1)
        >>> while agent.winner() is None:
        ...     decision = agent.ask()
        ...     agent.tell(decision, reward=(0.1, 0.3, 0.9)[decision.arm])
        >>> agent.winner(), agent.status().decisions
        (2, 90)
    """

    name = "dp-top-two"
    reference = (
        "top two (Jourdan et al. 2022) with the stopping rule of theory.confidence_sequences"
    )
    cites = (
        "Jourdan, Degenne, Baudry, de Heide, Kaufmann 2022; Azize, Jourdan, Al Marjani, Basu 2024"
    )
    see_also = "ldp-top-two, dp-imed, dp-se"
    estimation = FROM_NOISY_SUMS._replace(joint=1.0)
    goal: Goal = "best"
    top: Top | None = None
    threshold: Threshold | None = None
    control: Control | None = None
    examples = (
        {},
        {"first_batch": 4, "confidence": 0.8},
        {"first_batch": 4, "confidence": 0.8, "goal": "top", "top": 1},
        {"first_batch": 4, "confidence": 0.8, "goal": "above", "threshold": 0.5},
        {"first_batch": 4, "confidence": 0.8, "goal": "above", "control": 0},
        {"first_batch": 4, "confidence": 0.8, "trust": "split"},
    )

    def __post_init__(self) -> None:
        names: Any = getattr(self.arms, "labels", self.arms)
        if isinstance(self.control, str) and isinstance(names, list | tuple):
            if self.control not in names:
                raise self.refuse("control", f"is not an arm; {nearest(self.control, names)}")
            object.__setattr__(self, "control", names.index(self.control))
        super().__post_init__()
        wanted = {"best": (), "top": ("top",), "above": ("threshold", "control")}[self.goal]
        options = [
            name for name in ("top", "threshold", "control") if getattr(self, name) is not None
        ]
        for name in options:
            if name not in wanted:
                raise self.refuse(name, f"is not for goal = {self.goal!r}; leave it out")
        if wanted and len(options) != 1:
            raise self.refuse("goal", f"needs {' or '.join(wanted)}; give one")
        if self.top is not None and self.top >= self.arms:
            raise self.refuse("top", f"is not below the number of arms, {self.arms}; give less")
        if self.control is not None and self.control >= self.arms:
            raise self.refuse("control", f"is not an arm; arms are 0 to {self.arms - 1}")
        low, high = self.reward_range
        if self.threshold is not None and not low < self.threshold < high:
            raise self.refuse("threshold", f"must be inside reward_range, ({low:g}, {high:g})")

    @property
    def fixed_arms(self) -> str:  # type: ignore[override]
        return "" if self.goal == "best" else "its set of arms is proved for those at the start"

    @property
    def kernels(self) -> Kernels:  # type: ignore[override]
        return BEST_KERNELS if self.goal == "best" else SET_KERNELS

    def constants(self) -> Any:
        low, high = self.reward_range
        unit = math.nan if self.threshold is None else (self.threshold - low) / (high - low)
        control = NO_CONTROL if self.control is None else self.control
        return super().constants()._replace(top=self.top or 0, threshold=unit, control=control)

    def equivalence_bound(self, smallest_difference: float) -> int | None:
        """Rounds after which `agent.may_stop` says "winner" or "equivalent", for all rewards.

        For a confidence of at most the policy's, if rewards come at once and `may_stop` is asked
        after each release. From n pulls on, every interval is within half the difference of its
        mean (`theory.confidence_sequences.largest_radius`).

        Two arms: the one with fewer pulls gets the next batch, which at most doubles its pulls. So
        when both have n pulls for the first time, neither has more than 2n, and no arm is better by
        the difference than the one with the higher mean.

        More arms: let f = (1 - confidence)/arms and N = 2n/f. After 2 arms N rounds some arm has 2N
        pulls, so a batch was opened for an arm with N or more. The first time, that arm was the
        leader or its rival, whichever had fewer pulls: both had N. So every other arm had E + log n
        of at least log N. One with n pulls or more had a short interval. One with fewer had E of at
        least log(2/f). At y = the leader's mean, log B(y) <= 0, since e^(xy) <= 1 - y + y e^x. So
        log A(y) was at least log(2/f), and the interval lay below the leader's mean. The bound is
        large; runs with clear differences stop far earlier.

        Args:
            smallest_difference: The smallest difference that matters, in the unit of the rewards.

        Returns:
            The number. None for other goals, and with even draws.

        Raises:
            ParameterError: If the difference is not between 0 and the width of the range.
        """
        low, high = self.reward_range
        limits = Range(0, high - low, open_low=True, open_high=True)
        difference = check("smallest_difference", smallest_difference, Annotated[float, limits])
        if self.draws_evenly or self.goal != "best":
            return None
        failure = (1.0 - self.confidence) / self.arms
        more = 0.5 if self.arms == 2 else 2.0 / failure
        n = self._pulls_of_radius(0.5 * difference / (high - low), failure, more)
        return 4 * n if self.arms == 2 else math.ceil(2 * self.arms * more * n)

    def _pulls_of_radius(self, radius: float, failure: float, more: float) -> int:
        """Pulls n such that an arm's interval is within a radius from n to 2 n `more` pulls."""
        params, scale = self.constants(), laplace_scale(self.epsilon)
        first, growth = params.first_batch, math.log(params.batch_ratio)
        n = pulls = math.ceil(first)
        while pulls <= 2.0 * more * n:
            draws = 1 + math.ceil(math.log(max(2.0 * pulls / first, 1.0)) / growth)
            following = math.ceil(SEARCH_STEP * pulls)
            if largest_radius(pulls, self.noises * draws, scale, failure) >= radius:
                n = following
            pulls = following
        return n

    def named_arm(self, state: Any, confidence: float) -> int | None:
        return super().named_arm(state, confidence) if self.goal == "best" else None

    def named_set(self, state: Any, confidence: float) -> tuple[int, ...] | None:
        known = self.goal != "best" and super().named_arm(state, confidence) is not None
        return tuple(map(int, np.flatnonzero(state.chosen))) if known else None

    @property
    def answer_claim(self) -> str:
        if self.top is not None:
            return f"the best {self.top} arms" if self.top > 1 else super().answer_claim
        if self.threshold is not None:
            return f"the arms above {self.threshold:g}"
        if self.control is not None:
            return f"the arms better than {self.arm_label(self.control)}"
        return super().answer_claim

    @property
    def names_winners(self) -> WinnerOutlook:
        if self.goal == "best":
            return super().names_winners
        return WinnerOutlook(False, f"it looks for {self.answer_claim}; see estimates().answer")
