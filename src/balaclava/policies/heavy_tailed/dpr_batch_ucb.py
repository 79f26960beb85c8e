"""DPR-Batch-UCB: UCB on private truncated means of growing batches, with radii to the constant.

The rule is that of robust UCB (Bubeck, Cesa-Bianchi, Lugosi 2013) with the truncated, private means
of Tao, Wu, Zhao, Wang (2022). Batches, levels and radii are our own: `theory.batch_radii` has them,
with their proof.
"""

import math
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import numpy as np

from balaclava._core import declared
from balaclava._core.kernels import kernel
from balaclava._core.states import added_later, range_faults, stored_as
from balaclava.frames import pools as frame
from balaclava.policies.base import (
    Estimation,
    Kernels,
    PrivateRealPolicy,
    failure_or_inverse_horizon,
    register,
)
from balaclava.policies.intervals import limits_within_radius, require_radii
from balaclava.policies.pooled_policies import PooledPolicy
from balaclava.policies.theorem_conditions import moments_hold, require_levels
from balaclava.privacy.mechanisms.laplace import laplace_release
from balaclava.privacy.mechanisms.truncation import exact_step, truncated_onto
from balaclava.theory.batch_radii import Premises, Schedule, breakdown_point, first_size, schedule
from balaclava.theory.elimination_regret import worst_regret

FirstBatch = Annotated[int, declared.Range(1, 2**53, "pulls in an arm's first batch")]


class Params(NamedTuple):
    """Tables by batch, from 0, of sizes n, levels B, radii R and so on."""

    arms: int
    epsilon: float
    explore: float
    holdout: float
    margin: float  # k of `theory.batch_radii`
    sizes: np.ndarray
    levels: np.ndarray
    steps: np.ndarray
    radii: np.ndarray
    errors: np.ndarray
    shares: np.ndarray
    costs: np.ndarray
    draws: np.ndarray
    logs: np.ndarray


@added_later("own_levels", "own_steps", "stretches", "errors")
@stored_as(ordinals="grades")
class State(NamedTuple):
    """The pools, whose `means` are the estimates; by arm and row, values fixed for a batch."""

    pools: frame.Pools
    ordinals: np.ndarray  # [arm, row]: the batch's place in the tables of `Params`
    centres: np.ndarray  # [arm, row]: subtracted from its rewards
    own_levels: np.ndarray  # [arm, row]: B, which depends on the centre's radius
    own_steps: np.ndarray  # [arm, row]: the grid step to which its rewards are rounded
    released: np.ndarray  # [arm, batch]: the released means
    shares: np.ndarray  # [arm, batch]: the share of its rewards that arrived; 0: not released
    stretches: np.ndarray  # [arm, batch]: f of a released batch; 1 if its level is the table's
    widths: np.ndarray  # [arm]: the radius of the estimate
    latest: np.ndarray  # [arm]: the centre of the next batch
    errors: np.ndarray  # [arm]: the radius of that centre

    def faults(self, decisions: int) -> Iterator[str]:
        yield from range_faults(0, self.released.shape[1], ordinals=self.ordinals)
        yield from range_faults(0.0, 1.0, shares=self.shares)
        yield from range_faults(
            0.0, math.inf, widths=self.widths, errors=self.errors, own_steps=self.own_steps,
            own_levels=self.own_levels,
        )  # fmt: skip
        yield from range_faults(1.0, math.inf, stretches=self.stretches)


@kernel
def begin(params: Params) -> State:
    arms, batches = params.arms, params.radii.size
    return State(
        pools=frame.begin_pools(arms, frame.OPEN_BATCHES_PER_ARM),
        ordinals=np.zeros((arms, frame.OPEN_BATCHES_PER_ARM), np.int64),
        centres=np.zeros((arms, frame.OPEN_BATCHES_PER_ARM)),
        own_levels=np.zeros((arms, frame.OPEN_BATCHES_PER_ARM)),
        own_steps=np.zeros((arms, frame.OPEN_BATCHES_PER_ARM)),
        released=np.zeros((arms, batches)),
        shares=np.zeros((arms, batches)),
        stretches=np.ones((arms, batches)),
        widths=np.zeros(arms),
        latest=np.zeros(arms),
        errors=np.full(arms, params.errors[0]),
    )


@kernel(borrows=True)
def best_arm(params: Params, state: State, t: int) -> int:
    """The arm with the highest mean plus radius, of the leader and the arms that do not wait."""
    pools, best, highest = state.pools, -1, -math.inf
    for arm in range(params.arms):
        index = pools.means[arm] + state.widths[arm]
        if (pools.ready[arm] or arm == pools.lead[0]) and (best < 0 or index > highest):
            best, highest = arm, index
    return best


@kernel(borrows=True)
def prepare_batch(params: Params, state: State, arm: int, t: int) -> None:
    """Open a batch about the arm's centre, with the level that the centre's radius needs."""
    if frame.needs_batch(state.pools, arm):
        m = next_ordinal(params, state, arm)
        row = frame.open_batch(state.pools, arm, params.sizes[m])
        if row != frame.NO_ROW:
            excess = max(state.errors[arm] - params.errors[m], 0.0)
            level = params.levels[m] + params.margin * excess
            state.ordinals[arm, row] = m
            state.centres[arm, row] = state.latest[arm]
            state.own_levels[arm, row] = level
            state.own_steps[arm, row] = exact_step(level, float(params.sizes[m]))


@kernel(borrows=True)
def next_ordinal(params: Params, state: State, arm: int) -> int:
    """The place after the last batch that is open or released; a batch without rewards repeats."""
    last = last_release(params, state, arm, params.radii.size)
    for row in range(state.pools.numbers.shape[1]):
        m = state.ordinals[arm, row]
        if state.pools.numbers[arm, row] != 0 and last < m < params.radii.size:
            last = m
    return int(last + 1)


@kernel(borrows=True)
def last_release(params: Params, state: State, arm: int, end: int) -> int:
    """The last released batch before `end`, or -1."""
    last = end - 1
    while last >= 0 and state.shares[arm, last] == 0.0:
        last -= 1
    return int(last)


decide = frame.batch_driver(best_arm, prepare_batch)


@kernel(borrows=True)
def choose(params: Params, state: State, t: int, context: Any, rng: Any) -> tuple[int, int]:
    return decide(params, state, state.pools, t, rng)


@kernel(borrows=True)
def first_open(params: Params, state: State, arm: int) -> int:
    """The place of the first batch that is not settled; those before it are in order."""
    first = params.radii.size
    for row in range(state.pools.numbers.shape[1]):
        if state.pools.numbers[arm, row] != 0 and state.pools.left[arm, row] > 0:
            first = min(first, state.ordinals[arm, row])
    return int(first)


@kernel(borrows=True)
def row_radius(params: Params, state: State, arm: int, row: int, end: int) -> float:
    """R by the weights of a row of the table, from the released batches before `end`."""
    cost, gain, rounding = params.logs[row], 0.0, 0.0
    for j in range(end):
        if state.shares[arm, j] > 0.0:
            weight = params.shares[row, j] * state.shares[arm, j]
            cost += params.costs[row, j] * state.shares[arm, j] + params.draws[row, j]
            gain += weight / state.stretches[arm, j]
            rounding += 2.0 * weight * params.steps[j]  # a stretched step at most doubles
    return float((params.radii[row] * cost + rounding) / gain)


@kernel(borrows=True)
def estimate(params: Params, state: State, arm: int, end: int) -> tuple[float, float]:
    """The estimate from the released batches before `end`, and its radius; inf without any.

    The weights are those of the last batch, or if rewards are late or lost, of the row with the
    least radius.
    """
    last = last_release(params, state, arm, end)
    if last < 0:
        return 0.0, math.inf
    mean, total, missing, row = 0.0, 0.0, 0.0, last
    for j in range(last + 1):
        worth = state.shares[arm, j] / state.stretches[arm, j]
        missing += params.shares[last, j] * (1.0 - worth)
    radius = params.radii[last]
    if missing > 0.0:
        radius = math.inf
        for r in range(last + 1):
            other = row_radius(params, state, arm, r, last + 1)
            if other < radius:
                row, radius = r, other
    for j in range(last + 1):
        weight = params.shares[row, j] * (state.shares[arm, j] / state.stretches[arm, j])
        mean += weight * state.released[arm, j]
        total += weight
    return mean / total, radius


@kernel(borrows=True)
def close(params: Params, state: State, arm: int, row: int, released: float) -> None:
    """Keep the mean of a batch, and estimate from all released means."""
    pools = state.pools
    m, n = state.ordinals[arm, row], frame.rewards_in_batch(pools, arm, row)
    if m < params.radii.size:
        state.released[arm, m] = state.centres[arm, row] + released / n
        state.shares[arm, m] = n / params.sizes[m]  # also if the batch was cut short
        excess = state.own_levels[arm, row] / params.levels[m] - 1.0
        state.stretches[arm, m] = 1.0 + excess * (1.0 + 1.0 / params.margin)
    frame.close_batch(pools, arm, row, released + n * state.centres[arm, row])
    mean, radius = estimate(params, state, arm, first_open(params, state, arm))
    if radius < state.errors[arm]:
        state.latest[arm], state.errors[arm] = mean, radius
    mean, radius = estimate(params, state, arm, params.radii.size)
    if radius < math.inf:
        state.widths[arm] = radius
        frame.use_mean(pools, arm, mean, pools.rewards[arm])


@kernel(borrows=True)
def settle(params: Params, state: State, arm: int, row: int, rng: Any) -> None:
    if row != frame.NO_ROW:
        width = 2.0 * state.own_levels[arm, row]
        total = laplace_release(rng, state.pools.sums[arm, row], width, params.epsilon)
        close(params, state, arm, row, total)


@kernel(borrows=True)
def learn(
    params: Params, state: State, t: int, arm: int, reward: float, phase: int, rng: Any
) -> None:
    row = frame.find_row(state.pools, arm, phase)
    if row != frame.NO_ROW:
        offset = reward - state.centres[arm, row]
        value = truncated_onto(offset, state.own_levels[arm, row], state.own_steps[arm, row])
        settle(params, state, arm, frame.add_reward(state.pools, arm, row, value), rng)


@kernel(borrows=True)
def forget(params: Params, state: State, t: int, arm: int, phase: int, rng: Any) -> None:
    row = frame.find_row(state.pools, arm, phase)
    settle(params, state, arm, frame.give_up(state.pools, arm, row), rng)


@kernel(borrows=True)
def read_mean(params: Any, state: State, arm: int) -> tuple[int, float, float]:
    end = first_open(params, state, arm)
    mean, radius = estimate(params, state, arm, end)
    rewards = 0
    for j in range(end):
        rewards += round(state.shares[arm, j] * params.sizes[j])
    return rewards, mean, radius


class BatchUCBPolicy(PooledPolicy):
    """Parameters, tables and regret bound of the central and the local policy.

    Parameters:
        moment_order: p, above 1.
        horizon: rounds that will be played; sets failure_probability and the number of batches.
        contamination: bound on the share of rewards that are arbitrary outliers; u bounds the
            others. Refused if no level would give a radius below u^(1/p).
        failure_probability: beta, of all radii of an arm; 1/horizon by default.
        radius_scale: multiplies R, and lowers B with it; privacy is unaffected.
    """

    fixed_arms = ""
    pools = "pools"
    estimation = Estimation(read_mean, limits_within_radius, in_order=True)
    estimates = "means"
    epsilon: declared.Epsilon
    moment_order: declared.MomentOrder
    moment_bound: declared.MomentBound
    horizon: declared.Horizon | None = None
    contamination: declared.Contamination = 0.0
    failure_probability: declared.FailureProbability | None = None
    radius_scale: declared.RadiusScale = 1.0
    first_batch: FirstBatch | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.contamination > 0.0 and self.contamination >= breakdown_point(self.moment_order):
            raise self.refuse(
                "contamination",
                f"is too large to tell two means apart; for moment_order = {self.moment_order:g} "
                f"give less than {breakdown_point(self.moment_order):.4f}",
            )
        require_levels(self, self.premises.scale)
        require_levels(self, *self.schedule.levels)

    @property
    def radius_failure(self) -> float:
        """beta: the probability that a radius of an arm fails, on one side."""
        return failure_or_inverse_horizon(self)

    @property
    def premises(self) -> Premises:
        """The assumptions on the rewards."""
        return Premises(
            epsilon=self.epsilon,
            order=self.moment_order,
            scale=math.exp(math.log(self.moment_bound) / self.moment_order),
            contamination=self.contamination,
            mean_range=self.mean_range,
            local=self.model == "local",
        )

    @property
    def schedule(self) -> Schedule:
        """Sizes, levels and radii of an arm's batches."""
        horizon = self.horizon or declared.MOST_ROUNDS
        first = self.first_batch or first_size(self.premises, max(horizon // (4 * self.arms), 1))
        return schedule(self.premises, first, horizon, self.radius_failure, self.radius_scale)

    def constants(self) -> Params:
        margin = max(2.0, self.moment_order / (self.moment_order - 1.0))
        return Params(self.arms, self.epsilon, self.explore, self.holdout, margin, *self.schedule)

    def fill_added(self, state: State) -> None:
        """Levels were those of the table: if rewards were late or lost, centres may be wrong.

        With a mean range, estimates then start again.
        """
        super().fill_added(state)
        params, pools = self.constants(), state.pools
        state.own_levels[:] = params.levels[state.ordinals]
        state.own_steps[:] = params.steps[state.ordinals]
        if self.mean_range is None:
            return
        for arm in range(self.arms):  # the radius of the centre was the least one so far
            last = last_release(params, state, arm, params.radii.size)
            state.errors[arm] = min(params.errors[0], *params.radii[: last + 1])
        if (pools.waiting > 0).any() or ((state.shares > 0.0) & (state.shares < 1.0)).any():
            state.ordinals[:] = params.radii.size
            state.shares[:], state.latest[:], state.errors[:] = 0.0, 0.0, self.mean_range
            state.widths[pools.weights > 0] = math.inf

    def require_estimates(self, failure: float) -> Estimation:
        """All estimates of an arm are within their radii, except with probability beta a side."""
        require_radii(self, self.radius_scale >= 1.0, 2.0 * self.radius_failure, failure)
        return super().require_estimates(failure)

    def proved_bound(self, environment: Any, horizon: int) -> float | None:
        """From the radii, with all constants; None if radius_scale or the rewards violate them.

        Let the index of the best arm be above its mean. Then no batch of an arm follows the one
        that makes twice its radius smaller than its gap. For each arm this fails with probability
        at most `failure_probability`; then the whole horizon is counted.
        """
        if self.radius_scale < 1.0 or not moments_hold(self, environment, rounding=1e-9):
            return None
        sizes, radii, gaps = self.schedule.sizes[:-1], self.schedule.radii, environment.gaps
        pulls = np.array(
            [sizes.cumsum()[2.0 * radii < gap].min(initial=2**62) for gap in gaps], np.float64
        )
        fails = min(self.arms * self.radius_failure, 1.0)
        worst = fails * horizon * float(gaps.max())
        return min(worst_regret(gaps, pulls, horizon) + worst, horizon * float(gaps.max()))


@register
class DPRBatchUCB(BatchUCBPolicy, PrivateRealPolicy):
    r"""UCB in doubling batches on private truncated means, with the tightest radii we can prove.

    The policy to use for heavy-tailed rewards, with or without outliers, if a trusted server holds
    the rewards. Its regret is far below that of dpr-se, and lower still with a `radius_scale` below
    1, which is not proved (docs/figures.md, Heavy tails).

    Given `E|X|^p <= u`, each arm first plays one batch. Then the arm with the highest index plays a
    whole batch. The batches of an arm have n, n, 2n, 4n, ... pulls. At the end of the m-th, the
    mean of its `X 1{|X| <= B_m}` is released with noise Lap(2 B_m / (n_m epsilon)). The index is a
    weighted mean of the arm's released means, plus R_m. B_m, R_m and the weights are fixed in
    advance. R_m is the smallest radius that a joint Chernoff bound on rewards, truncation, outliers
    and noise proves (`theory.batch_radii`). With one batch, no outliers and p <= 2 it is

    .. math::
        R = \min_{B, x} (B/n) (n u B^{-p} \max\{1, (e^x - 1 - x)/x\}
        + (\log(M/\beta) - \log(1 - 4 x^2/\varepsilon^2)) / x),

    of order u^(1/p) (log(1/beta) / (n epsilon))^(1-1/p), M the number of batches. If `mean_range`
    D is given, u bounds the central moment, E|X - mu|^p. Each batch then truncates X - z, where z
    is 0 at first and then the latest estimate, and u^(1/p) + (the error of z) replaces u^(1/p). If
    rewards are late or lost, a batch has an older or a poorer z. Its level then rises with the
    radius of the z that it has, and the weights of the means are those with the least radius.

    A `radius_scale` c below 1 assumes tails lighter than u allows. It multiplies R by c, and the
    excess of B over u^(1/p) by sqrt(c). A smaller radius tolerates less noise, so B must fall; as
    it falls, the bias grows. At a small c, runs would lock onto a wrong arm by noise if B did not
    change, and by bias if B fell to c B. Most locks follow an extreme first release, so the first
    batch does not shrink with c: n is the least power of two at which R, with exp(-8) for beta/M,
    is at most u^(1/p). An arm with its mean from rare rewards may still be lost.

    Privacy:
        epsilon-differential privacy of the whole trajectory. Each reward enters the sum of one
        batch, of sensitivity 2B, which is released once. Sizes and levels are fixed; centres and
        choices follow from released values. A batch that the horizon cuts off releases nothing.

    Parameters:
        moment_bound: u, a bound on E|X|^p, or on E|X - mu|^p if mean_range is given.
        first_batch: n, by default as above.
        mean_range: D, the means lie in [-D, D].

    Example:
        >>> policy = bl.policy("dpr-batch-ucb", arms=5, epsilon=1.0, horizon=10**6,
        ...                    moment_order=1.9, moment_bound=8.142063093163385)
        >>> int(policy.schedule.sizes[0]), round(float(policy.schedule.radii[0]), 4)
        (128, 3.4461)
    """

    name = "dpr-batch-ucb"
    reference = "balaclava, after Tao, Wu, Zhao, Wang 2022"
    cites = "Tao, Wu, Zhao, Wang 2022; Bubeck, Cesa-Bianchi, Lugosi 2013; Wu, Zhou, Tao, Wang 2023"
    see_also = "ldpr-batch-ucb, dpr-se, prae-raw, robust-ucb"
    kernels = Kernels(begin, choose, learn, forget)
    mean_range: declared.MeanRange | None = None
    examples = (
        {"horizon": 600, "first_batch": 8, "radius_scale": 0.1},
        {"horizon": 600, "first_batch": 8, "radius_scale": 0.1, "mean_range": 5.0},
        {"horizon": 600, "first_batch": 8, "radius_scale": 0.2, "contamination": 0.05},
        {"horizon": 600, "mean_range": 2.0, "contamination": 0.1, "moment_order": 3.0},
    )
