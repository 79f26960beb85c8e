"""DPR-UCB: robust UCB on private running sums (Tao, Wu, Zhao, Wang 2022, Algorithms 1 and 2)."""

import math
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.declared import Epsilon, Horizon, MeanRange, MomentBound, RadiusScale
from balaclava._core.kernels import kernel
from balaclava.frames.tally import unknown_arm
from balaclava.policies.base import Kernels, PrivateRealPolicy, register
from balaclava.policies.classic import ucb1
from balaclava.policies.theorem_conditions import TailOrder, moments_hold, raw_bound, require_levels
from balaclava.privacy.mechanisms import counters
from balaclava.theory.elimination_regret import worst_regret

_BONUS = 18.0  # the factor of the paper's bonus; `error` shows that it suffices


class Params(NamedTuple):
    """Constants; v + 1 is the order of the known moment."""

    arms: int
    horizon: int
    epsilon: float
    root: float  # 1 / (1 + v)
    level: float  # B_1; B_n = B_1 n^(1/(1+v))
    bonus: float  # without log(2 t^4) and n


class State(NamedTuple):
    """Private indices, and the trees behind them."""

    indices: ucb1.Indices  # private means, and n^(-v/(1+v))
    trees: counters.Trees


@kernel
def begin(params: Params) -> State:
    trees = counters.begin_trees(params.arms, counters.tree_levels(params.horizon))
    return State(ucb1.begin(params), trees)


@kernel(borrows=True)
def choose(params: Params, state: State, t: int, context: Any, rng: Any) -> tuple[int, int]:
    indices = state.indices
    best = unknown_arm(indices.tally)
    if best < 0:
        scale = params.bonus * (math.log(2.0) + 4.0 * math.log(t)) ** (1.0 - params.root)
        highest = -math.inf
        for arm in range(params.arms):
            index = indices.means[arm] + scale * indices.widths[arm]
            if best < 0 or index > highest:
                best, highest = arm, index
    indices.tally.asked[best] += 1
    return best, 0


@kernel(borrows=True)
def learn(
    params: Params, state: State, t: int, arm: int, reward: float, phase: int, rng: Any
) -> None:
    indices = state.indices
    n = indices.tally.pulls[arm] + 1
    if n > params.horizon:
        return  # the tree has no room for more
    growth = n**params.root
    level = params.level * growth
    item = reward if abs(reward) <= level else 0.0
    counters.tree_insert_within(rng, state.trees, arm, item, level, params.epsilon)
    if n == 1:
        indices.tally.unknown[0] -= 1
    indices.tally.pulls[arm] = n
    indices.means[arm] = counters.tree_sum(state.trees, arm) / n
    indices.widths[arm] = growth / n


@register
class DPRUCB(PrivateRealPolicy):
    r"""UCB on private sums of truncated rewards, for rewards with a known moment.

    For heavy tails, if a trusted server holds the rewards and decisions should adapt in every
    round. With the paper's constants the bonus exceeds most rewards for millions of rounds: set
    `radius_scale` to 0.01 to 0.1, or use dpr-se, with regret lower by powers of log T.

    Given E|X|^(1+v) <= u, let B_n = (epsilon u n / (log T)^1.5)^(1/(1+v)). The n-th reward of an
    arm counts as 0 if it is beyond B_n, and enters the arm's tree counter. After one pull of each
    arm, play the arm with the largest

    .. math::
        s_a / n_a
        + 18 u^{1/(1+v)} (\log(2 t^4) (\log T)^{1.5 + 1/v} / (n_a \varepsilon))^{v/(1+v)},

    s_a the private sum of the arm's n_a rewards. The analysis ends at epsilon 1: above it, 1
    replaces epsilon in both formulas, but not in the noise.

    Privacy:
        epsilon-differential privacy of the whole trajectory (Theorem 1), for all rewards. A reward
        enters the tree of one arm, where its floor(log2 T) + 1 nodes cost epsilon together. The
        noise of a node is scaled to the level of its last item, the largest, and its sum is exact
        on a grid. (The paper divides epsilon among log T nodes: too few for the natural logarithm.)
        Rewards after an arm's T-th are dropped.

    Parameters:
        moment_bound: u. Do not compute it from the rewards to protect.
        mean_range: D. If given, the means lie in [-D, D], moment_bound is about E|X - mean|^(1+v),
            and u = (moment_bound^(1/(1+v)) + D)^(1+v).

    Example:
        >>> policy = bl.policy("dpr-ucb", arms=5, epsilon=1.0, horizon=10**6,
        ...                    moment_order=1.9, moment_bound=8.142063093163385)
        >>> round(policy.level(1), 6), round(policy.level(1000), 4)
        (0.379354, 14.3877)
    """

    name = "dpr-ucb"
    fixed_arms = ""
    reference = "Tao, Wu, Zhao, Wang 2022"
    see_also = "dpr-batch-ucb, dpr-se, robust-ucb, dp-ucb"
    kernels = Kernels(begin, choose, learn)
    epsilon: Epsilon
    horizon: Horizon
    moment_order: TailOrder
    moment_bound: MomentBound
    radius_scale: RadiusScale = 1.0
    mean_range: MeanRange | None = None
    examples = ({"radius_scale": 0.01}, {"epsilon": 5.0, "moment_order": 1.3})

    def __post_init__(self) -> None:
        super().__post_init__()
        require_levels(self, self.level(1), self.level(self.horizon))

    @property
    def _log_horizon(self) -> float:
        return math.log(max(self.horizon, 2))  # with one round no index is used

    def level(self, n: int) -> float:
        """B_n: beyond it the n-th reward of an arm counts as 0."""
        scale = min(self.epsilon, 1.0) * raw_bound(self) / self._log_horizon**1.5
        return math.exp(math.log(scale * n) / self.moment_order)

    def constants(self) -> Params:
        root = 1.0 / self.moment_order
        # (log T)^((1.5 + 1/v) v/(1+v)), without the large power 1/v
        logs = self._log_horizon ** (1.5 * (1.0 - root) + root)
        bonus = raw_bound(self) ** root * logs / min(self.epsilon, 1.0) ** (1.0 - root)
        bonus *= _BONUS * self.radius_scale
        return self.fill(Params, root=root, level=self.level(1), bonus=bonus)

    @property
    def error(self) -> float:
        """A bound on the error of the private mean, as a multiple of bonus / 18.

        Let w be the bonus without its 18, l = log(2 t^4), n <= t, and e = min(epsilon, 1). Each of
        these, in units of w, fails on one side with probability at most 1 / (2 t^4):

        - truncation: (1/n) sum of u / B_i^v <= (1+v) l^(-v/(1+v)) (log T)^(-1/(1+v));
        - sampling (Bernstein; truncated rewards are at most B_n and have second moment
          u B_n^(1-v)): sqrt(2 e) (l / log T)^((1-v)/(2(1+v))) (log T)^(-5/4), and a third of
          e (l / log T)^(1/(1+v)) (log T)^(-3/2);
        - noise: a sum of m <= log2(2t) Laplace draws of scale at most b = 2 B_n L / epsilon is
          above sqrt(2) b (m log 2 + l) with probability at most exp(-l), by Chernoff at
          1 / (sqrt(2) b). Since m log 2 <= 0.4 l for t >= 2, that is
          2 sqrt(2) 1.4 L (l / log T)^(1/(1+v)) (log T)^(-3/2);
        - rounding of the tree's sums: B_n 2^-52 L (L + 1) / 2, which is
          2^-53 L (L + 1) n e l^(-v/(1+v)) (log T)^(-3/2 - 1/(1+v)).

        This returns their sum, bounded by n <= T, l <= 5 log T and l >= log 32. It is below 18 from
        T = 100 to T = 2^56, where 64-bit sums end. (The smaller bound on the noise in the paper's
        Lemma 2 is false.)
        """
        root, log = 1.0 / self.moment_order, self._log_horizon
        epsilon, levels = min(self.epsilon, 1.0), counters.tree_levels(self.horizon)
        bias = self.moment_order * math.log(32.0) ** (root - 1.0) * log**-root
        spread = math.sqrt(2.0 * epsilon) * 5.0 ** (root - 0.5) * log**-1.25
        noise = 2.0 * math.sqrt(2.0) * 1.4 * levels
        tails = 5.0**root * log**-1.5 * (epsilon / 3.0 + noise)
        rounding = 2.0**-53 * levels * (levels + 1) * self.horizon * epsilon
        rounding *= math.log(32.0) ** (root - 1.0) * log ** (-1.5 - root)
        return bias + spread + tails + rounding

    def proved_bound(self, environment: Any, horizon: int) -> float | None:
        """Theorem 2 with its constants; None if the moment bound or `error` <= 18 does not hold.

        If every private mean is within a bonus, c times the paper's, an arm with gap D is pulled
        only while 2 bonus > D, which is

            (36 c)^((1+v)/v) u^(1/v) log(2 T^4) (log T)^(1.5 + 1/v) / (epsilon D^((1+v)/v))

        times, rounded up. In round t some mean of up to t rewards fails for one of two arms with
        probability at most 2 t^-3, which adds less than 1 pull in all.
        """
        enough = self.error <= _BONUS * self.radius_scale
        if horizon > self.horizon or not enough or not moments_hold(self, environment):
            return None
        gaps, a = environment.gaps, self.moment_order / (self.moment_order - 1.0)
        # 2 bonus(n) = D, solved for n in logarithms: the powers are large.
        with_log = (
            math.log(2.0 * self.constants().bonus)
            + math.log(math.log(2.0) + 4.0 * math.log(max(horizon, 2))) / a
        )
        pulls = [
            math.exp(min(a * (with_log - math.log(gap)), 700.0)) + 2.0 if gap > 0 else math.inf
            for gap in gaps
        ]
        return worst_regret(gaps, np.array(pulls), horizon)
