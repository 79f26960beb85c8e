"""Private UCB for unknown tails: the problem that Tao, Wu, Zhao, Wang 2022 leave open."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from balaclava._core.declared import Epsilon, RadiusScale, Range
from balaclava._core.kernels import kernel
from balaclava.frames.pools import (
    NOTHING,
    Pools,
    begin_pools,
    came,
    close_batch,
    drop,
    empty_row,
    go_by,
    hand_out,
    must_choose,
    needs_batch,
    next_arm,
    open_batch,
    row_of,
    silent_arm,
    take,
)
from balaclava.policies.base import Kernels, PrivateRealPolicy, register
from balaclava.policies.pooled import PooledPolicy
from balaclava.privacy.laplace import laplace_release
from balaclava.privacy.secure import to_grid

FirstBatch = Annotated[float, Range(1, 2.0**53, "pulls in an arm's first batch, rounded up")]
LevelShare = Annotated[
    float,
    Range(0, 1, "part of epsilon for the size of rewards", open_low=True, open_high=True),
]

# Bins on each side of 0: the k-th has 2^(k-1-64) < |x| <= 2^(k-64), the middle one what is less.
SIDE = 128
ROWS = 16  # batches of an arm under way at once
BINS = 2 * SIDE + 1
# In scales of its noise, what a bin has if it is not empty: FAR of all others, which noise does
# less than once in a thousand histograms; next to a bin that is not empty NEAR, and AWAY more for
# every bin between.
FAR = math.log(BINS) + 6.0
NEAR = 4.0
AWAY = 0.5
BEYOND = 10.0  # over epsilon: rewards of a batch that are expected beyond its level
SLOWEST = 0.6  # fall of the shares from a bin to the next
HIDDEN = 3.0  # scales of noise that the bin after the last one seen may hold unseen
FIRST_BATCH = 60.0  # over epsilon
BIN_MEAN = 3.0 / 4.0  # mean of x for x uniform on (1/2, 1]
BIN_SQUARE = 7.0 / 12.0  # and of x^2
BIN_VARIANCE = 1.0 / 28.0  # its variance over BIN_SQUARE


class Levels(NamedTuple):
    """Batches, what was released of the sizes of rewards, and how sure the means are."""

    pools: Pools
    # By arm and row: what was fixed when the batch was opened
    counts: np.ndarray  # raw: the rewards of the batch, less its centre, in each bin
    centre: np.ndarray
    origin: np.ndarray
    under: np.ndarray  # low and high, below,
    over: np.ndarray
    # By arm
    sizes: np.ndarray  # of the next batch
    centres: np.ndarray
    shares: np.ndarray  # released: the part of the last batch in each bin
    grains: np.ndarray  # the scale of the noise in a share
    origins: np.ndarray  # the centre of the shares; a reward less the origin counts as
    low: np.ndarray  # the nearest number in [-low, high],
    high: np.ndarray  # both 0 as long as the arm has no level
    averages: np.ndarray  # of what is counted, and
    squares: np.ndarray  # of its squares, from the shares
    variances: np.ndarray  # of the mean of rewards
    noises: np.ndarray  # the scale of the noise in it
    precisions: np.ndarray  # the mean's weight against that of a further batch; 0 without a mean


@kernel(borrows=True)
def moderate(epsilon: float) -> float:
    """Epsilon in formulas that have nothing to do with privacy: chance outlasts the noise."""
    return min(max(epsilon, 1e-6), 1.0)


@kernel
def begin(params: Any) -> Levels:
    arms = params.arms
    return Levels(
        begin_pools(arms, ROWS),
        np.zeros((arms, ROWS, BINS), np.int64),
        np.zeros((arms, ROWS)),
        np.zeros((arms, ROWS)),
        np.zeros((arms, ROWS)),
        np.zeros((arms, ROWS)),
        np.full(arms, math.ceil(params.first_batch)),
        np.zeros(arms),
        np.zeros((arms, BINS)),
        np.zeros(arms),
        np.zeros(arms),
        np.zeros(arms),
        np.zeros(arms),
        np.zeros(arms),
        np.zeros(arms),
        np.zeros(arms),
        np.zeros(arms),
        np.zeros(arms),
    )


@kernel(borrows=True)
def bin_of(x: float) -> int:
    """The bin of a number: 0 in the middle, the largest at the ends."""
    fraction, exponent = math.frexp(abs(x))
    if fraction == 0.5:  # a power of two is the largest of its bin
        exponent -= 1
    size = min(max(exponent + SIDE // 2, 0), SIDE) if x != 0.0 else 0
    return SIDE + size if x > 0.0 else SIDE - size


@kernel(borrows=True)
def size_of(k: int) -> float:
    """The largest |x| of the k-th bin from the middle."""
    return math.ldexp(1.0, k - SIDE // 2)


@kernel(borrows=True)
def fullest(state: Levels, arm: int) -> int:
    """How far from the middle the fullest bin is, or -1 where none stands out of the noise."""
    best = 0
    for i in range(BINS):
        if state.shares[arm, i] > state.shares[arm, best]:
            best = i
    return abs(best - SIDE) if state.shares[arm, best] > FAR * state.grains[arm] else -1


@kernel(borrows=True)
def last_seen(state: Levels, arm: int, side: int, start: int) -> int:
    """The furthest bin on a side (1 or -1) that is not empty, or 0; the fullest is at `start`."""
    near, last = start, 0
    for k in range(1, SIDE + 1):
        needed = min(NEAR + AWAY * max(k - near - 1, 0), FAR)
        if state.shares[arm, SIDE + side * k] > needed * state.grains[arm]:
            near, last = max(near, k), k
    return last


@kernel(borrows=True)
def level_on(params: Any, state: Levels, arm: int, side: int, last: int, n: int) -> float:
    """The level beyond which about BEYOND/epsilon of n rewards are expected; and their moments.

    Beyond the last bin that was seen the shares are taken to go on falling as they fall from it
    to the next: at once where there is no tail, geometrically where it is that of a power law.
    What noise may hide in the next bin counts as being there.
    """
    if last == 0:
        return 0.0
    grain, beyond = state.grains[arm], 0.0
    if last < SIDE:
        share = max(state.shares[arm, SIDE + side * last], NEAR * grain)
        following = max(state.shares[arm, SIDE + side * (last + 1)], 0.0) + HIDDEN * grain
        ratio = min(following / share, SLOWEST)
        beyond = share * ratio / (1.0 - ratio)
        while n * beyond > BEYOND / moderate(params.epsilon) and last < SIDE:
            beyond *= ratio
            last += 1
    level = size_of(last)
    for k in range(1, last + 1):
        size, share = size_of(k), state.shares[arm, SIDE + side * k]
        state.averages[arm] += side * BIN_MEAN * size * share
        state.squares[arm] += BIN_SQUARE * size * size * max(share, 0.0)
    state.squares[arm] += level * level * beyond
    return level


@kernel(borrows=True)
def set_levels(params: Any, state: Levels, arm: int, centre: float, n: int) -> bool:
    """The levels of the arm's next batch, from the histogram just released; False: it says none."""
    start = fullest(state, arm)
    if start < 0:
        return False
    up, down = last_seen(state, arm, 1, start), last_seen(state, arm, -1, start)
    if state.precisions[arm] > 0.0:  # the centre is about the mean: there is something below it
        down = max(down, start)
    state.origins[arm] = centre
    state.averages[arm] = 0.0
    state.squares[arm] = 0.0
    # Cutting off unseen gains would hide a good arm for good.
    state.high[arm] = level_on(params, state, arm, 1, max(up, start), n)
    state.low[arm] = level_on(params, state, arm, -1, down, n)
    if start == 0 and up == 0:  # nothing but the centre was seen: any other arm's level will do
        for other in range(params.arms):
            state.high[arm] = max(state.high[arm], state.high[other])
    return state.high[arm] > 0.0


@kernel(borrows=True)
def variance_of(state: Levels, arm: int) -> float:
    """Of what is counted of a reward."""
    square, average = state.squares[arm], state.averages[arm]
    return max(square - average * average, BIN_VARIANCE * square)


@kernel(borrows=True)
def leading_arm(params: Any, state: Levels) -> int:
    """The arm with the highest mean, or -1."""
    leader = -1
    for arm in range(params.arms):
        ahead = leader < 0 or state.pools.means[arm] > state.pools.means[leader]
        if ahead and state.precisions[arm] > 0.0:
            leader = arm
    return leader


@kernel(borrows=True)
def likely_arm(params: Any, state: Levels) -> int:
    """The arm whose histogram has the highest mean; where none stands out, the least pulled."""
    likely = -1
    for arm in range(params.arms):
        ahead = likely < 0 or state.centres[arm] > state.centres[likely]
        if ahead and state.high[arm] > 0.0:
            likely = arm
    if likely < 0:
        likely = int(np.argmin(state.pools.planned))
    return likely


@kernel(borrows=True)
def index(params: Any, state: Levels, arm: int, log_t: float) -> float:
    """The mean and its radius; infinite as long as there is no mean."""
    if state.precisions[arm] == 0.0:
        return math.inf
    radius = math.sqrt(log_t * state.variances[arm]) + 0.5 * log_t * state.noises[arm]
    return float(state.pools.means[arm] + params.radius_scale * radius)


@kernel(borrows=True)
def choose(params: Any, state: Levels, t: int, context: Any, rng: Any) -> tuple[int, int]:
    pools = state.pools
    if must_choose(pools):
        best, lead = silent_arm(pools), leading_arm(params, state)
        if best < 0:
            log_t, highest = math.log(t), -math.inf
            for arm in range(params.arms):
                upper = index(params, state, arm, log_t)
                if (pools.ready[arm] or arm == lead) and (best < 0 or upper > highest):
                    best, highest = arm, upper
            if best < 0:  # all are waiting, and none has a mean
                best = likely_arm(params, state)
        pools.current[0] = best
    arm = next_arm(params, pools, rng)
    if needs_batch(pools, arm):
        raise_level(params, state, arm)
        row = open_batch(pools, arm, state.sizes[arm])
        if row != NOTHING:
            state.centre[arm, row] = state.centres[arm]
            state.origin[arm, row] = state.origins[arm]
            state.under[arm, row] = state.low[arm]
            state.over[arm, row] = state.high[arm]
            state.sizes[arm] = min(2 * state.sizes[arm], 2**53)
    return hand_out(pools, arm)


@kernel(borrows=True)
def raise_level(params: Any, state: Levels, arm: int) -> None:
    """An arm that is cut off below the leading mean could not take the lead."""
    lead = leading_arm(params, state)
    if lead >= 0 and state.high[arm] > 0.0:
        reach = min(state.pools.means[lead] - state.origins[arm], size_of(SIDE))
        if reach > state.high[arm]:
            state.high[arm] = to_grid(reach, max(reach, state.low[arm]))


@kernel(borrows=True)
def learn(
    params: Any, state: Levels, t: int, arm: int, reward: float, phase: int, rng: Any
) -> None:
    row = row_of(state.pools, arm, phase)
    if row == NOTHING:
        return
    low, high, value = state.under[arm, row], state.over[arm, row], 0.0
    state.counts[arm, row, bin_of(reward - state.centre[arm, row])] += 1
    if low + high > 0.0:
        offset = reward - state.origin[arm, row]
        value = to_grid(min(max(offset, -low), high), max(low, high))
    settle(params, state, arm, take(state.pools, arm, row, value), rng)


@kernel(borrows=True)
def forget(params: Any, state: Levels, t: int, arm: int, phase: int, rng: Any) -> None:
    row = row_of(state.pools, arm, phase)
    settle(params, state, arm, drop(state.pools, arm, row), rng)


@kernel(borrows=True)
def settle(params: Any, state: Levels, arm: int, row: int, rng: Any) -> None:
    """Release a settled batch, once, and set the levels of those to come."""
    if row == NOTHING:
        return
    pools = state.pools
    n, size = came(pools, arm, row), pools.sizes[arm, row]
    width, total = state.under[arm, row] + state.over[arm, row], 0.0
    if width > 0.0:
        epsilon = (1.0 - params.level_share) * params.epsilon
        origin = state.origin[arm, row]
        released = laplace_release(rng, pools.sums[arm, row], width, epsilon)
        total = released + n * origin
        pool(state, arm, n, origin + released / n, width / (n * moderate(epsilon)))
        release_histogram(state, arm, row, n, params.level_share * params.epsilon, rng)
        close_batch(pools, arm, row, total)
    else:
        release_histogram(state, arm, row, n, params.epsilon, rng)
        pools.settled[arm] += 1
        empty_row(pools, arm, row)
    extent = set_levels(params, state, arm, state.centre[arm, row], n)
    # While levels still become much narrower, longer batches are not worth it.
    narrower = width == 0.0 or state.low[arm] + state.high[arm] < 0.5 * width
    state.centres[arm] = pools.means[arm]
    if state.precisions[arm] == 0.0:
        state.centres[arm] = state.origins[arm] + state.averages[arm]
    state.sizes[arm] = size if extent and narrower else 2 * size
    go_by(pools, arm, pools.means[arm], n)


@kernel(borrows=True)
def release_histogram(state: Levels, arm: int, row: int, n: int, epsilon: float, rng: Any) -> None:
    """The counts of the batch, with noise; they start anew."""
    for i in range(BINS):
        # A changed reward leaves one bin and enters another: two counts move, each by 1.
        count = laplace_release(rng, float(state.counts[arm, row, i]), 1.0, 0.5 * epsilon)
        state.shares[arm, i] = count / n
        state.counts[arm, row, i] = 0
    state.grains[arm] = 2.0 / (n * moderate(epsilon))


@kernel(borrows=True)
def pool(state: Levels, arm: int, n: int, mean: float, noise: float) -> None:
    """Average the batch's mean with the earlier ones, each with the inverse of its variance."""
    variance = variance_of(state, arm) / n
    precision = 1.0 / (variance + 2.0 * noise * noise)
    state.precisions[arm] += precision
    new = precision / state.precisions[arm]
    old = 1.0 - new
    state.pools.means[arm] += new * (mean - state.pools.means[arm])
    state.variances[arm] = old * old * state.variances[arm] + new * new * variance
    state.noises[arm] = math.sqrt((old * state.noises[arm]) ** 2 + (new * noise) ** 2)


@register
class DPRAdaptiveUCB(PooledPolicy, PrivateRealPolicy):
    """UCB in doubling batches that learns privately how large rewards are.

    For rewards of any tail and any location when nothing is known of them: no moment, no bound, no
    scale. Who knows a moment and a bound on it has a proof of the regret in dpr-batch-ucb; who
    knows a range does better with dp-imed.

    An arm is played for a whole batch of n pulls, twice as many as in its last. Of a batch two
    things are released: a histogram of the rewards, less a centre c, on the grid of signed powers
    of two from 2^-64 to 2^64; and the sum of the rewards, each moved into [o - low, o + high]. The
    centre is the arm's latest estimate, or the mean of its first histogram. Origin and levels come
    from the arm's last histogram that stood out of the noise: o is its centre, and the levels are
    such that about 10/epsilon rewards of the batch are expected beyond each. The noise in the mean
    is of order level / (n epsilon), the part cut off of order level w / n, with w the rewards
    beyond the level; so the best level leaves w of order 1/epsilon beyond it, whatever the tail is.
    Beyond the last bin that was seen the shares go on falling as they do there, or as they may,
    for all that the noise hides. No arm is cut off below the leading mean. As long as levels become
    less than half as wide, batches do not grow.

    The first batches of an arm release a histogram only, until a bin stands out. Then, with s the
    variance within the levels (from the histogram), the next batch goes to the highest

        mean + radius_scale (sqrt(s log t / n) + log(t) (low + high) / (2 n epsilon')),

    where epsilon' is the part of epsilon that the sum has, or 1 if that is less. The means of an
    arm's batches are averaged with the inverses of their variances.

    Late rewards cost it more than others, as an arm's first batch shows no mean yet: on two arms
    with means 0.3 and 0.7, a fixed delay of 2,000 rounds brought regret from 82 to 1,130 in 20,000
    rounds, 2.6 times what 2,000 rounds at random cost (`benchmarks/delays.py --table shape`).

    Multiplied by a power of two, rewards lead to decisions of the same law, up to the ends of the
    grid. Beyond 2^64 a number counts as 2^64, and below 2^-64 as 0.

    The privacy is proved, for all rewards. The regret is not: it was found by experiment. The more
    an arm is played the higher are its levels, and the less of its mean is cut off. So where means
    have their main part from rare large rewards (lognormal with sigma = 2), or tails are heavy and
    the second arm is close (Pareto of shape 1.55, means 0.9 and 0.85), a quarter of the runs still
    prefer a wrong arm after 200,000 rounds, and some for good. A value of 10 with probability 0.09
    is never seen in time.

    Privacy:
        epsilon-differential privacy of the whole trajectory, whatever the rewards are. Each reward
        is in one batch. It is in one bin of its histogram, of which the counts are released with
        level_share epsilon / 2 each, and two move when a reward changes; and in the sum, which
        moves by low + high at most, released with the rest of epsilon. A batch without levels has
        no sum and spends epsilon on the histogram. Centres, levels, radii and sizes
        follow from what was released before the batch. A batch that the horizon cuts off releases
        nothing.

    Parameters:
        epsilon: privacy loss.
        level_share: the part of epsilon that goes to the histograms, in (0, 1).
        first_batch: pulls in an arm's first batch, rounded up; 60/epsilon by default, and 60 from
            epsilon 1 on.
        radius_scale: multiplies the radius.

    Example:
        >>> import balaclava as bl
        >>> agent = bl.policy("dpr-adaptive-ucb", arms=2, epsilon=1.0).agent(seed=1)
        >>> pulls = [0, 0]
        >>> for _ in range(2000):
        ...     decision = agent.ask()
        ...     agent.tell(decision, reward=(-2e6, 3e6)[decision.arm])
        ...     pulls[decision.arm] += 1
        >>> pulls
        [120, 1880]

    References:
        Tao, Wu, Zhao, Wang: Optimal rates of (locally) differentially private heavy-tailed
        multi-armed bandits, AISTATS 2022, which leaves unknown moments as an open problem.

    See Also:
        dpr-batch-ucb, dpr-se, robust-ucb, dp-imed
    """

    name = "dpr-adaptive-ucb"
    reference = "after Tao, Wu, Zhao, Wang 2022"
    assumptions = ("a reward beyond the level of its batch counts as the level",)
    kernels: ClassVar[Kernels] = Kernels(begin, choose, learn, forget)
    pools: ClassVar[str] = "pools"
    estimates: ClassVar[str] = "means"
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {"first_batch": 12, "epsilon": 3.0},
        {"level_share": 0.5, "first_batch": 5, "radius_scale": 0.3, "epsilon": 8.0},
    )

    epsilon: Epsilon
    level_share: LevelShare = 0.5
    first_batch: FirstBatch | None = None
    radius_scale: RadiusScale = 1.0

    def constants(self) -> Any:
        first = self.first_batch or FIRST_BATCH / moderate(self.epsilon)
        return super().constants()._replace(first_batch=first)
