"""Private UCB for unknown tails: the problem that Tao, Wu, Zhao, Wang 2022 leave open."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from balaclava._declared import Epsilon, RadiusScale, Range
from balaclava._kernel import kernel
from balaclava.estimation.batches import (
    Batches,
    arm_in_play,
    begin_batches,
    close_batch,
    hand_out,
    take_batch,
)
from balaclava.policies.base import Kernels, PrivateRealPolicy, register
from balaclava.privacy.laplace import laplace_release
from balaclava.privacy.secure import to_grid

FirstBatch = Annotated[float, Range(1, 2.0**53, "pulls in an arm's first batch, rounded up")]
LevelShare = Annotated[
    float,
    Range(0, 1, "part of epsilon for the size of rewards", open_low=True, open_high=True),
]

SIDE = 128  # sizes on each side of 0: bin k holds 2^(k-1-64) < |x| <= 2^(k-64), bin 0 what is less
BINS = 2 * SIDE + 1
# Noise takes an empty bin beyond this, over epsilon, less than once in a thousand histograms.
SEEN = 2.0 * (math.log(BINS) + 6.0)
BEYOND = 10.0  # over epsilon: rewards of a batch that are expected beyond its level
SLOWEST = 0.7  # fall of the shares from a bin to the next
FIRST_BATCH = 40.0  # over epsilon
BIN_SQUARE = 7.0 / 12.0  # mean of x^2 for x uniform on (1/2, 1]


class Levels(NamedTuple):
    """Batches, what is known of the size of each arm's rewards, and how sure their means are."""

    batches: Batches
    counts: np.ndarray  # raw: the rewards of the batch in each bin, by arm
    shares: np.ndarray  # released: the estimated part of an arm's rewards in each bin
    certainty: np.ndarray  # of the shares: the sum of (n epsilon)^2 over the histograms
    low: np.ndarray  # a reward of the batch counts as the nearest number in [low, high];
    high: np.ndarray  # both 0 as long as the arm has no level
    variances: np.ndarray  # of the mean of rewards
    noises: np.ndarray  # the scale of the noise in it
    precisions: np.ndarray  # the mean's weight against that of a further batch; 0 without a mean


@kernel
def moderate(epsilon: float) -> float:
    """Epsilon in formulas that have nothing to do with privacy: chance outlasts the noise."""
    return min(max(epsilon, 1e-6), 1.0)


@kernel
def begin(params: Any) -> Levels:
    arms = params.arms
    return Levels(
        begin_batches(arms, math.ceil(params.first_batch)),
        np.zeros((arms, BINS), np.int64),
        np.zeros((arms, BINS)),
        np.zeros(arms),
        np.zeros(arms),
        np.zeros(arms),
        np.zeros(arms),
        np.zeros(arms),
        np.zeros(arms),
    )


@kernel
def bin_of(x: float) -> int:
    """The bin of a reward: 0 in the middle, the largest at the ends."""
    fraction, exponent = math.frexp(abs(x))
    if fraction == 0.5:  # a power of two is the largest of its bin
        exponent -= 1
    size = min(max(exponent + SIDE // 2, 0), SIDE) if x != 0.0 else 0
    return SIDE + size if x > 0.0 else SIDE - size


@kernel
def size_of(bin_number: int) -> float:
    """The largest |x| of the k-th bin from the middle."""
    return math.ldexp(1.0, bin_number - SIDE // 2)


@kernel
def seen(state: Levels, arm: int, bin_number: int) -> bool:
    """Whether noise alone would not fill a bin so."""
    share = state.shares[arm, bin_number]
    return bool(share * math.sqrt(state.certainty[arm]) > SEEN)


@kernel
def last_seen(state: Levels, arm: int, side: int) -> int:
    """The furthest bin on a side (1 or -1) in which rewards were seen, or 0."""
    for k in range(SIDE, 0, -1):
        if seen(state, arm, SIDE + side * k):
            return k
    return 0


@kernel
def some_seen(state: Levels, arm: int) -> bool:
    """Whether any bin stands out of the noise."""
    found = seen(state, arm, SIDE) or last_seen(state, arm, 1) > 0
    return bool(found or last_seen(state, arm, -1) > 0)


@kernel
def level_on(params: Any, state: Levels, arm: int, side: int, n: int) -> float:
    """The level beyond which about BEYOND/epsilon of n rewards are expected; 0: none was seen.

    Beyond the last bin that was seen the shares are taken to go on falling as they fall from it
    to the next: at once where there is no tail, geometrically where it is that of a power law.
    """
    last = last_seen(state, arm, side)
    if last == 0:
        return 0.0
    if last < SIDE:
        share = state.shares[arm, SIDE + side * last]
        ratio = min(max(state.shares[arm, SIDE + side * (last + 1)] / share, 0.0), SLOWEST)
        beyond = n * share * ratio / (1.0 - ratio)
        while beyond > BEYOND / moderate(params.epsilon) and last < SIDE:
            beyond *= ratio
            last += 1
    return size_of(last)


@kernel
def set_levels(params: Any, state: Levels, arm: int) -> None:
    """The levels of the arm's next batch, from what was released before it.

    They stay what they are, 0 at first, where nothing stands out of the noise, or zeros only and
    no other arm has a level.
    """
    if not some_seen(state, arm):
        return
    n = state.batches.size[arm]
    high, low = level_on(params, state, arm, 1, n), level_on(params, state, arm, -1, n)
    if high == 0.0 and low == 0.0:  # nothing but zeros was seen: any other arm's level will do
        for other in range(params.arms):
            for side in range(-1, 2, 2):
                high = max(high, level_on(params, state, other, side, n))
        low = high
    elif high == 0.0:
        high = low  # cutting off unseen gains would hide a good arm for good
    elif low == 0.0 and losses_may_exist(state, arm):
        low = high
    if high > 0.0:
        state.high[arm] = high
        state.low[arm] = -low


@kernel
def losses_may_exist(state: Levels, arm: int) -> bool:
    """Whether the five bins below 0 opposite the last one seen hold more than noise does.

    A loss that is cut off by mistake makes the arm look better, so that it is played again.
    """
    last, share = last_seen(state, arm, 1), 0.0
    for k in range(max(last - 3, 1), min(last + 1, SIDE) + 1):
        share += state.shares[arm, SIDE - k]
    return bool(share * math.sqrt(state.certainty[arm]) > math.sqrt(5.0 * 8.0))


@kernel
def choose(params: Any, state: Levels, t: int, context: Any, rng: Any) -> tuple[int, int]:
    batches = state.batches
    best = arm_in_play(batches)
    if best < 0:
        log_t, highest = math.log(t), -math.inf
        for arm in range(params.arms):
            index = math.inf
            if state.precisions[arm] > 0.0:
                radius = math.sqrt(8.0 * log_t * state.variances[arm])
                radius += 2.0 * log_t * state.noises[arm]
                index = batches.means[arm] + params.radius_scale * radius
            if best < 0 or index > highest:
                best, highest = arm, index
        batches.current[0] = best
        set_levels(params, state, best)
    return hand_out(batches, best)


@kernel
def learn(
    params: Any, state: Levels, t: int, arm: int, reward: float, phase: int, rng: Any
) -> None:
    batches = state.batches
    if phase != batches.number[arm]:
        return
    low, high = state.low[arm], state.high[arm]
    state.counts[arm, bin_of(reward)] += 1
    counted = to_grid(min(max(reward, low), high), max(high, -low)) if high > low else 0.0
    if not take_batch(batches, arm, counted, phase):
        return
    n = batches.size[arm]
    if high > low:
        release_histogram(state, arm, n, params.level_share * params.epsilon, rng)
        epsilon = (1.0 - params.level_share) * params.epsilon
        released = laplace_release(rng, batches.sums[arm], high - low, epsilon)
        pool(state, arm, n, released / n, (high - low) / (n * moderate(epsilon)))
        close_batch(batches, arm, batches.means[arm] * n, n, 2 * n)
    else:
        release_histogram(state, arm, n, params.epsilon, rng)
        close_batch(batches, arm, 0.0, n, n if some_seen(state, arm) else 2 * n)


@kernel
def release_histogram(state: Levels, arm: int, n: int, epsilon: float, rng: Any) -> None:
    """Add the batch's histogram to the shares, with the weight that makes their noise least."""
    kept = min(max(epsilon, 1e-6), 1e6)  # squares of less or more leave the floats
    state.certainty[arm] += (n * kept) ** 2
    weight = n * kept * kept / state.certainty[arm]
    for i in range(BINS):
        # A changed reward leaves one bin and enters another: two counts move, each by 1.
        count = laplace_release(rng, float(state.counts[arm, i]), 1.0, 0.5 * epsilon)
        state.shares[arm, i] += weight * (count - n * state.shares[arm, i])
        state.counts[arm, i] = 0


@kernel
def pool(state: Levels, arm: int, n: int, mean: float, noise: float) -> None:
    """Average the batch's mean with the earlier ones, each with the inverse of its variance."""
    variance = second_moment(state, arm) / n
    precision = 1.0 / (variance + 2.0 * noise * noise)
    state.precisions[arm] += precision
    new = precision / state.precisions[arm]
    old = 1.0 - new
    state.batches.means[arm] += new * (mean - state.batches.means[arm])
    state.variances[arm] = old * old * state.variances[arm] + new * new * variance
    state.noises[arm] = math.sqrt((old * state.noises[arm]) ** 2 + (new * noise) ** 2)


@kernel
def second_moment(state: Levels, arm: int) -> float:
    """Of the rewards within the levels, from the shares."""
    total = 0.0
    for k in range(1, SIDE + 1):
        size = size_of(k)
        if size <= state.high[arm]:
            total += state.shares[arm, SIDE + k] * size * size
        if size <= -state.low[arm]:
            total += state.shares[arm, SIDE - k] * size * size
    return max(BIN_SQUARE * total, 0.0)


@register
class DPRAdaptiveUCB(PrivateRealPolicy):
    """UCB in doubling batches that learns privately how large rewards are.

    For rewards of any tail when nothing is known of them: no moment, no bound, no scale. Who knows
    a moment and a bound on it has a proof of the regret in dpr-se; who knows a range does better
    with dp-imed. Rewards far from 0 compared to their spread (1000 plus or minus 1) cost as much
    as rewards of that size: subtract a known constant first.

    An arm is played for a whole batch of n pulls, twice as many as in its last. Of a batch two
    things are released: a histogram of the rewards on the grid of signed powers of two from 2^-64
    to 2^64, and the sum of the rewards, each moved into [low, high]. The levels come from the
    histograms of the arm's earlier batches. The noise in the mean is of order level / (n epsilon),
    the part cut off of order level w / n, with w the rewards of the batch beyond the level; so the
    best level leaves w of order 1/epsilon beyond it, whatever the tail is. Here w is
    10/epsilon, the tail being continued from the last bins that stand out of the noise. On a side
    of 0 where there seem to be no rewards, the level is 0, which halves the noise.

    The first batches of an arm release a histogram only, until a bin stands out. Then, with s the
    second moment within the levels (from the histograms), the next batch goes to the highest

        mean + radius_scale (sqrt(8 s log t / n) + 2 log(t) (high - low) / (n epsilon')),

    where epsilon' is the part of epsilon that the sum has, or 1 if that is less. The means of an
    arm's batches are averaged with the inverses of their variances.

    Multiplied by a power of two, rewards lead to decisions of the same law, up to the ends of the
    grid. Beyond 2^64 a reward counts as 2^64, and below 2^-64 as 0.

    The privacy is proved, for all rewards. The regret is not: it was found by experiment. Means
    whose main part comes from rare large rewards (lognormal with sigma = 2) are learned slowly, and
    some runs prefer a wrong arm for long.

    Privacy:
        epsilon-differential privacy of the whole trajectory, whatever the rewards are. Each reward
        is in one batch. It is in one bin of its histogram, of which the counts are released with
        level_share epsilon / 2 each, and two move when a reward changes; and in the sum, which
        moves by high - low at most, released with the rest of epsilon. A batch without levels has
        no sum and spends epsilon on the histogram. Levels, radii and sizes follow from what was
        released before the batch. A batch that the horizon cuts off releases nothing.

    Parameters:
        epsilon: privacy loss.
        level_share: the part of epsilon that goes to the histograms, in (0, 1).
        first_batch: pulls in an arm's first batch, rounded up; 40/epsilon by default, and 40 from
            epsilon 1 on.
        radius_scale: multiplies the radius. 0.5 halves the regret of most runs; of those with
            a close second arm and the heaviest tails a few in a hundred then lock onto it.

    Example:
        >>> import balaclava as bl
        >>> agent = bl.policy("dpr-adaptive-ucb", arms=2, epsilon=1.0).agent(seed=1)
        >>> pulls = [0, 0]
        >>> for _ in range(2000):
        ...     decision = agent.ask()
        ...     agent.tell(decision, reward=(-2e6, 3e6)[decision.arm])
        ...     pulls[decision.arm] += 1
        >>> pulls
        [80, 1920]

    References:
        Tao, Wu, Zhao, Wang: Optimal rates of (locally) differentially private heavy-tailed
        multi-armed bandits, AISTATS 2022, which leaves unknown moments as an open problem.

    See Also:
        dpr-se, dpr-ucb, robust-ucb, dp-imed
    """

    name = "dpr-adaptive-ucb"
    reference = "after Tao, Wu, Zhao, Wang 2022"
    assumptions = ("a reward beyond the level of its batch counts as the level",)
    kernels: ClassVar[Kernels] = Kernels(begin, choose, learn)
    phased: ClassVar[bool] = True
    examples: ClassVar[tuple[dict[str, Any], ...]] = (
        {"first_batch": 12, "epsilon": 3.0},
        {"level_share": 0.5, "first_batch": 5, "radius_scale": 0.3, "epsilon": 8.0},
    )

    epsilon: Epsilon
    level_share: LevelShare = 0.3
    first_batch: FirstBatch | None = None
    radius_scale: RadiusScale = 1.0

    def constants(self) -> Any:
        first = self.first_batch or FIRST_BATCH / moderate(self.epsilon)
        return super().constants()._replace(first_batch=first)
