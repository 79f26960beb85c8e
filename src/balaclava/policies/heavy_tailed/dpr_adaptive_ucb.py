"""DPR-Adaptive-UCB: private UCB for unknown tails, which Tao, Wu, Zhao, Wang (2022) leave open."""

import math
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import numpy as np

from balaclava._core.declared import Epsilon, RadiusScale, Range
from balaclava._core.kernels import kernel
from balaclava._core.states import MOST_PLANNED, range_faults, stored_as
from balaclava.estimators.dyadic_histogram import (
    BINS,
    bin_index,
    bin_limit,
    clipped_mean,
    clipped_variance,
    cut_level,
    denoise,
)
from balaclava.frames import pools as frame
from balaclava.policies.base import Kernels, PrivateRealPolicy, register
from balaclava.policies.bounded.batched import FirstBatch
from balaclava.policies.pooled_policies import PooledPolicy
from balaclava.privacy.exact_noise import to_grid
from balaclava.privacy.mechanisms.laplace import laplace_release

LevelShare = Annotated[
    float, Range(0, 1, "share of epsilon for the histograms", open_low=True, open_high=True)
]

# Open batches of an arm, a power of two. Batches double, so 16 of them outlast long delays.
OPEN_BATCHES = 16
MOST_STAGES = 128  # batches double at most stages, so runs end far below it
# The next four were found by experiment; `python benchmarks/adaptive_constants.py --quick` has the
# percentages, of regret in 100,000 rounds.
# Share of the mean on a side of the centre that stage 0 may cut off; 0.15: +15 to +21 %; 0.6: +1 %
# on easy arms, -21 % on hard ones.
BIAS_SHARE = 0.3
BIAS_DECAY = 0.95  # factor of that share from stage to stage; flat from 0.9 to 0.98 (5 %)
# Times a rival's precision that the leader needs for the next stage; flat on easy arms, on hard
# ones 1.5: +8 %; 6: -20 %.
LEADER_PRECISION = 3.0
FIRST_BATCH_EPSILON = 80.0  # pulls in the first batch, times epsilon; 40: +8 %; 160: +15 to +60 %


@stored_as(stage="grade", newest_stage="newest", top_stage="top", has_histogram="known")
class State(NamedTuple):
    """Batches, released histograms of the rewards, and released means by stage."""

    pools: frame.Pools  # its `means` are the latest of each arm
    # By arm and row: fixed when the batch opens, but for the counts
    counts: np.ndarray  # raw: the rewards of the batch, less its centre, in each bin
    centre: np.ndarray
    stage: np.ndarray  # -1: a histogram only
    # By stage: pulls in a batch, 0 before the first; its rewards are clipped to [low, high]
    sizes: np.ndarray
    low: np.ndarray
    high: np.ndarray
    latest: np.ndarray  # released: the share of the last batch in each bin
    # By arm
    next_size: np.ndarray  # of a batch that does not start a stage
    newest_stage: np.ndarray  # of the newest batch
    top_stage: np.ndarray  # the highest with a mean, or -1
    has_histogram: np.ndarray  # whether a histogram exceeded its noise
    shares: np.ndarray  # the last histogram that did
    origins: np.ndarray  # the centre of that histogram
    # By arm and stage
    means: np.ndarray
    variances: np.ndarray  # of the mean of rewards
    noises: np.ndarray  # the scale of the noise in it
    precisions: np.ndarray  # the weight of the mean in averages; 0 without a mean

    def faults(self, decisions: int) -> Iterator[str]:
        last_stage = self.sizes.size - 1
        yield from range_faults(0, decisions, counts=self.counts)
        yield from range_faults(
            -1,
            last_stage,
            stage=self.stage,
            newest_stage=self.newest_stage,
            top_stage=self.top_stage,
        )
        yield from range_faults(0, MOST_PLANNED, sizes=self.sizes, next_size=self.next_size)
        if (self.low > self.high).any():
            yield "a lower level is above the upper level"
        yield from range_faults(0.0, math.inf, variances=self.variances, noises=self.noises)


@kernel(borrows=True)
def capped_epsilon(epsilon: float) -> float:
    """Epsilon for sizes and radii, not for noise: beyond 1 sampling error dominates."""
    return min(max(epsilon, 1e-6), 1.0)


@kernel
def begin(params: Any) -> State:
    arms = params.arms
    return State(
        pools=frame.begin_pools(arms, OPEN_BATCHES),
        counts=np.zeros((arms, OPEN_BATCHES, BINS), np.int64),
        centre=np.zeros((arms, OPEN_BATCHES)),
        stage=np.zeros((arms, OPEN_BATCHES), np.int64),
        sizes=np.zeros(MOST_STAGES, np.int64),
        low=np.zeros(MOST_STAGES),
        high=np.zeros(MOST_STAGES),
        latest=np.zeros(BINS),
        next_size=np.full(arms, math.ceil(params.first_batch)),
        newest_stage=np.full(arms, -1),
        top_stage=np.full(arms, -1),
        has_histogram=np.zeros(arms, np.bool_),
        shares=np.zeros((arms, BINS)),
        origins=np.zeros(arms),
        means=np.zeros((arms, MOST_STAGES)),
        variances=np.zeros((arms, MOST_STAGES)),
        noises=np.zeros((arms, MOST_STAGES)),
        precisions=np.zeros((arms, MOST_STAGES)),
    )


@kernel(borrows=True)
def leading_arm(state: State) -> int:
    """The arm with the highest mean among those at the highest stage, or -1."""
    lead, highest = -1, -1
    for arm in range(state.top_stage.size):
        g = state.top_stage[arm]
        if g > highest or (g >= 0 and g == highest and state.means[arm, g] > state.means[lead, g]):
            lead, highest = arm, g
    return lead


@kernel(borrows=True)
def advantage(params: Any, state: State, arm: int, lead: int, t: int) -> float:
    """Upper bound on the arm's advantage over the leader, by means of the arm's stage."""
    g, log_t = state.top_stage[arm], math.log(t)
    if g < 0:
        return math.inf
    variance = state.variances[arm, g] + state.variances[lead, g]
    noise = math.hypot(state.noises[arm, g], state.noises[lead, g])
    radius = math.sqrt(log_t * variance) + 0.5 * log_t * noise
    return float(state.means[arm, g] - state.means[lead, g] + params.radius_scale * radius)


@kernel(borrows=True)
def can_start_batch(state: State, arm: int) -> bool:
    """Whether the arm may start a batch: it waits for none, or for histograms alone."""
    return bool(
        state.pools.ready[arm] or (state.has_histogram[arm] and state.newest_stage[arm] < 0)
    )


@kernel(borrows=True)
def nearest_rival(params: Any, state: State, lead: int, t: int, now: bool) -> int:
    """The arm with the largest advantage, of all or of those that can start a batch; or -1."""
    rival, most = -1, -math.inf
    for arm in range(params.arms):
        if arm != lead and (can_start_batch(state, arm) or not now):
            value = advantage(params, state, arm, lead, t)
            # Among arms without a mean, prefer the highest first estimate.
            tie = value == most and state.pools.means[arm] > state.pools.means[rival]
            if rival < 0 or value > most or tie:
                rival, most = arm, value
    return rival


@kernel(borrows=True)
def likely_arm(params: Any, state: State) -> int:
    """The arm with the highest first estimate; without histograms, the least pulled."""
    likely = -1
    for arm in range(params.arms):
        ahead = likely < 0 or state.pools.means[arm] > state.pools.means[likely]
        if ahead and state.has_histogram[arm]:
            likely = arm
    if likely < 0:
        likely = int(np.argmin(state.pools.planned))
    return likely


@kernel(borrows=True)
def arm_to_play(params: Any, state: State, t: int) -> int:
    """A rival below the leader's stage, or the leader."""
    lead = leading_arm(state)
    rival = nearest_rival(params, state, lead, t, True)
    below = rival >= 0 and (lead < 0 or state.top_stage[rival] < state.top_stage[lead])
    if below and advantage(params, state, rival, lead, t) > 0.0:
        return rival
    for arm in range(params.arms):
        if state.top_stage[arm] < 0 <= state.newest_stage[arm]:  # no leader before its first mean
            return likely_arm(params, state)
    return lead if lead >= 0 else likely_arm(params, state)


@kernel(borrows=True)
def prepare_batch(params: Any, state: State, arm: int, t: int) -> None:
    """Open the arm's next batch, or cut short a histogram that is no longer needed."""
    pools = state.pools
    if frame.needs_batch(pools, arm):
        g = next_stage(params, state, arm, t)
        new = g > state.top_stage[arm]
        size = state.sizes[g] if new else state.next_size[arm]
        if g >= 0 and not new:
            size = max(size, 2 * state.sizes[g])
        row = frame.open_batch(pools, arm, size)
        if row != frame.NO_ROW:
            state.newest_stage[arm] = g
            state.stage[arm, row] = g
            state.centre[arm, row] = pools.means[arm]
            # Histograms alone are kept short: the arm must fill one before it has levels.
            if not new and (g >= 0 or pools.number[arm] % 4 == 0):
                state.next_size[arm] = min(2 * size, 2**53)
    elif (
        state.has_histogram[arm]
        and state.newest_stage[arm] < 0
        and not (pools.held_out[0] or pools.first_pulls[0])
    ):
        frame.cut_short(pools, arm)  # one histogram is enough


decide = frame.batch_driver(arm_to_play, prepare_batch)


@kernel(borrows=True)
def choose(params: Any, state: State, t: int, context: Any, rng: Any) -> tuple[int, int]:
    return decide(params, state, state.pools, t, rng)


@kernel(borrows=True)
def next_stage(params: Any, state: State, arm: int, t: int) -> int:
    """The stage of the arm's next batch; the leader's is that of its nearest rival."""
    top, lead = state.top_stage[arm], leading_arm(state)
    if top < 0:
        return 0 if state.has_histogram[arm] and open_stage(params, state, 0, lead, t) else -1
    if state.pools.waiting[arm] > 0:
        return int(top)
    if arm != lead:
        return int(min(top + 1, state.top_stage[lead]))
    rival = nearest_rival(params, state, lead, t, False)
    if rival < 0 or state.top_stage[rival] < 0:
        return int(top)
    if advantage(params, state, rival, lead, t) <= 0.0:
        return int(state.top_stage[rival])
    even = state.top_stage[rival] == top
    sure = state.precisions[lead, top] >= LEADER_PRECISION * state.precisions[rival, top]
    climbs = even and sure and open_stage(params, state, top + 1, lead, t)
    return int(top + 1 if climbs else top)


@kernel(borrows=True)
def levels(state: State, arm: int, g: int) -> tuple[float, float]:
    """The distances below and above its origin that an arm needs at a stage."""
    shares, part = state.shares[arm], BIAS_SHARE * BIAS_DECAY**g
    return cut_level(shares, -1, part), cut_level(shares, 1, part)


@kernel(borrows=True)
def open_stage(params: Any, state: State, g: int, lead: int, t: int) -> bool:
    """Fix a stage's size and levels, once, by the histograms of the arms that may be best."""
    if g == MOST_STAGES or state.sizes[g] > 0:
        return bool(g < MOST_STAGES)
    low, high = math.inf, -math.inf
    for arm in range(params.arms):
        alive = g == 0 or arm == lead or advantage(params, state, arm, lead, t) > 0.0
        if state.has_histogram[arm] and alive:
            below, above = levels(state, arm, g)
            low = min(low, state.origins[arm] - below)
            high = max(high, state.origins[arm] + above)
    if high - low < bin_limit(0):
        return False
    state.low[g], state.high[g] = low, high
    if g == 0:
        state.sizes[g] = math.ceil(params.first_batch)
    elif high - low < 0.5 * (state.high[g - 1] - state.low[g - 1]):
        # Longer batches do not pay while levels still narrow quickly.
        state.sizes[g] = state.sizes[g - 1]
    else:
        state.sizes[g] = min(2 * state.sizes[g - 1], 2**53)
    return True


@kernel(borrows=True)
def learn(params: Any, state: State, t: int, arm: int, reward: float, phase: int, rng: Any) -> None:
    row = frame.find_row(state.pools, arm, phase)
    if row == frame.NO_ROW:
        return
    g, value = state.stage[arm, row], 0.0
    state.counts[arm, row, bin_index(reward - state.centre[arm, row])] += 1
    if g >= 0:
        width = state.high[g] - state.low[g]
        value = to_grid(min(max(reward - state.low[g], 0.0), width), width)
    settle(params, state, arm, frame.add_reward(state.pools, arm, row, value), rng)


@kernel(borrows=True)
def forget(params: Any, state: State, t: int, arm: int, phase: int, rng: Any) -> None:
    row = frame.find_row(state.pools, arm, phase)
    settle(params, state, arm, frame.give_up(state.pools, arm, row), rng)


@kernel(borrows=True)
def settle(params: Any, state: State, arm: int, row: int, rng: Any) -> None:
    """Release a settled batch, once: its histogram and, at a stage, its clipped sum."""
    if row == frame.NO_ROW:
        return
    pools, g, n = state.pools, state.stage[arm, row], frame.rewards_in_batch(state.pools, arm, row)
    share = params.level_share if g >= 0 else 1.0
    release_histogram(state, arm, row, n, share * params.epsilon, rng)
    if g >= 0:
        epsilon, width = (1.0 - share) * params.epsilon, state.high[g] - state.low[g]
        mean = state.low[g] + laplace_release(rng, pools.sums[arm, row], width, epsilon) / n
        frame.close_batch(pools, arm, row, n * mean)
        average_in(state, arm, g, n, mean, width / (n * capped_epsilon(epsilon)))
        state.top_stage[arm] = max(state.top_stage[arm], g)
        frame.use_mean(pools, arm, state.means[arm, state.top_stage[arm]], n)
        return
    if not state.has_histogram[arm]:
        longer = min(2 * pools.sizes[arm, row], 2**53)
        state.next_size[arm] = max(state.next_size[arm], longer)
    pools.settled[arm] += 1
    frame.drop_batch(pools, arm, row)
    if state.top_stage[arm] < 0:
        n += pools.weights[arm]
        mean = pools.means[arm]
        if state.has_histogram[arm]:
            low, high = levels(state, arm, 0)
            new = (n - pools.weights[arm]) / n
            mean += new * (state.origins[arm] + clipped_mean(state.shares[arm], low, high) - mean)
        frame.use_mean(pools, arm, mean, n)


@kernel(borrows=True)
def release_histogram(state: State, arm: int, row: int, n: int, epsilon: float, rng: Any) -> None:
    for i in range(BINS):
        # A changed reward leaves one bin and enters another: two counts move, each by 1.
        count = laplace_release(rng, float(state.counts[arm, row, i]), 1.0, 0.5 * epsilon)
        state.latest[i] = count / n
        state.counts[arm, row, i] = 0
    if denoise(state.latest, 2.0 / (n * capped_epsilon(epsilon)), state.top_stage[arm] >= 0):
        state.has_histogram[arm] = True
        state.origins[arm] = state.centre[arm, row]
        for i in range(BINS):
            state.shares[arm, i] = state.latest[i]


@kernel(borrows=True)
def average_in(state: State, arm: int, g: int, n: int, mean: float, noise: float) -> None:
    """Average a batch's mean with earlier ones of its stage, by inverse variance."""
    origin = state.origins[arm]
    below, above = max(origin - state.low[g], 0.0), max(state.high[g] - origin, 0.0)
    variance = clipped_variance(state.shares[arm], below, above) / n
    precision = 1.0 / (variance + 2.0 * noise * noise)
    state.precisions[arm, g] += precision
    new = precision / state.precisions[arm, g]
    old = 1.0 - new
    state.means[arm, g] += new * (mean - state.means[arm, g])
    state.variances[arm, g] = old * old * state.variances[arm, g] + new * new * variance
    state.noises[arm, g] = math.sqrt((old * state.noises[arm, g]) ** 2 + (new * noise) ** 2)


@register
class DPRAdaptiveUCB(PooledPolicy, PrivateRealPolicy):
    r"""UCB in doubling batches that learns privately how large rewards are.

    For rewards of any tail and location with no known moment, bound or scale. With a known moment
    and a bound on it, dpr-batch-ucb has a proof of its regret; with a known range, dp-imed has
    lower regret.

    An arm's batches have stages 0, 1, 2, ... All batches of a stage have the same size, twice that
    of the stage before, and the same levels [low, high] for every arm. Rewards beyond the levels
    are clipped to them. A batch releases the sum of its clipped rewards, and a histogram of its
    rewards less the arm's latest mean. The histogram's grid is the signed powers of two from 2^-64
    to 2^64. The levels of a stage are fixed when its first batch opens: the widest that any arm
    needs that may be best. By its released histogram an arm needs the lowest levels that cut off at
    most `0.3 * 0.95^stage` of the mean beyond the centre. While levels shrink to less than half
    their width, batches do not grow.

    The leader is the arm with the highest mean among those at the highest stage. An arm at stage g
    is compared with the leader by means of stage g alone, so both are clipped alike. It is a rival
    while

    .. math:: m - m' + c (\sqrt{s \log t} + b \log(t) / 2) > 0,

    with m its mean, m' the leader's and c the `radius_scale`. s is the sum of the variances of both
    means, from the histograms, and b^2 the sum of the squared scales of their noise.

    A rival below the leader's stage gets a batch of its next stage. At the same stage the leader
    first makes its mean three times as precise, then moves to the next stage. Without a rival the
    leader plays at the stage of the nearest arm, so that the policy detects a lucky leader. Means
    of a stage are averaged by inverse variance. The first batches of an arm release a histogram
    only, until a bin exceeds the noise. A batch that is then still open, because rewards are late,
    ends with its next pull.

    Scaling all rewards by a power of two does not change the law of the decisions, up to the ends
    of the grid: above 2^64 a number counts as 2^64, below 2^-64 as 0.

    Warning:
        The privacy is proved, for all rewards. The regret is not: the rule was found by experiment.
        It assumes that the arm with the best mean is also best within the levels, as with tails
        that are alike. Every policy without prior knowledge needs such an assumption. Suppose one
        has regret R if arm 1 always pays 0.7 and arm 2 always 0: it pulls arm 2 about R/0.7 times.
        Now let arm 2 pay 1.4/p with a small probability p instead: its mean is better by 0.7. The
        two problems look the same before the first such reward, which most runs do not see within
        0.35/p pulls. With p = 0.35/R half of the runs continue as before: their regret is linear. A
        private policy overlooks about 1/epsilon more such rewards, since k of them change the
        chances of its decisions by at most exp(k epsilon). This policy overlooks rewards far from
        all others if fewer than two in five pulls of the first batch bring them and another arm has
        none (docs/figures.md, Heavy tails).

    Privacy:
        epsilon-differential privacy of the whole trajectory, for all rewards. Each reward is in one
        batch. It enters one bin of the histogram: a changed reward moves two counts by 1, and each
        count is released with level_share epsilon / 2. It enters the sum, which moves by at most
        high - low and is released with the rest of epsilon. A batch without levels has no sum and
        spends epsilon on its histogram. Centres, levels, radii and sizes follow from values
        released before the batch, its end from values released before its last pull. A batch that
        the horizon cuts off releases nothing.

    Parameters:
        first_batch: pulls in an arm's first batch, rounded up; 80/epsilon by default, and 80 from
            epsilon 1 on.
        radius_scale: multiplies the radius; privacy is unaffected.

    Example:
        >>> agent = bl.policy("dpr-adaptive-ucb", arms=2, epsilon=1.0).agent(seed=1)
        >>> pulls = [0, 0]
        >>> for _ in range(2000):
        ...     decision = agent.ask()
        ...     agent.tell(decision, reward=(-2e6, 3e6)[decision.arm])
        ...     pulls[decision.arm] += 1
        >>> pulls
        [160, 1840]
    """

    name = "dpr-adaptive-ucb"
    fixed_arms = ""
    reference = "after Tao, Wu, Zhao, Wang 2022"
    see_also = "dpr-batch-ucb, dpr-se, robust-ucb, dp-imed"
    assumptions = ("a reward beyond the level of its batch counts as the level",)
    kernels = Kernels(begin, choose, learn, forget)
    pools = "pools"
    estimates = "means"
    examples = (
        {"first_batch": 12, "epsilon": 3.0},
        {"level_share": 0.5, "first_batch": 5, "radius_scale": 0.3, "epsilon": 8.0},
    )

    epsilon: Epsilon
    level_share: LevelShare = 0.5
    first_batch: FirstBatch | None = None
    radius_scale: RadiusScale = 1.0

    def constants(self) -> Any:
        first = self.first_batch or FIRST_BATCH_EPSILON / capped_epsilon(self.epsilon)
        return super().constants()._replace(first_batch=first)
