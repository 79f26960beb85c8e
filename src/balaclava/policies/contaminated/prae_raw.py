"""PRAE with raw moments (Wu, Zhou, Tao, Wang 2023, Algorithms 1 and 2, Theorems 6.1 and 6.2)."""

import math
from typing import Annotated, Any, Literal

from balaclava._core.declared import MOST_ROUNDS, Range
from balaclava._core.kernels import kernel
from balaclava.policies.base import Estimation, Kernels, failure_or_inverse_horizon, register
from balaclava.policies.contaminated import prae
from balaclava.policies.heavy_tailed.truncated_elimination import learn_truncated, read_mean
from balaclava.policies.intervals import limits_within_radius, require_radii
from balaclava.privacy.mechanisms.laplace import laplace_release
from balaclava.theory.truncation_radius import counted_terms, counted_threshold, mixed_terms

Radius = Literal["mixed", "paper"]
# Batches that may be open at once. With late rewards, short batches settle early; 16 batches reach
# 2^16 pulls of each arm.
OPEN_BATCHES = 16


@kernel
def begin(params: prae.Params) -> prae.PraeState:
    return prae.begin_elimination(params, OPEN_BATCHES)


@kernel(borrows=True)
def release(params: prae.Params, state: prae.PraeState, arm: int, row: int, rng: Any) -> None:
    """Release an arm's sum of the batch, with the radius beta."""
    epochs, M = state.epochs, state.level[row]
    total = laplace_release(rng, epochs.sums[arm, row], 2.0 * M, params.epsilon)
    proved = prae.is_enough(params, epochs.rewards_in_epoch[arm, row])
    prae.keep_estimate(params, state, arm, row, total, proved)


@kernel(borrows=True)
def finish(params: prae.Params, state: prae.PraeState, row: int) -> None:
    prae.end_batch(params, state, row, True)


learn, forget = learn_truncated(release, finish)


@register
class PRAERaw(prae.PraePolicy):
    r"""Elimination in doubling batches, with means truncated about 0, for rewards with outliers.

    For rewards with a known k-th raw moment, k >= 2; a share may be arbitrary outliers. The means
    must lie near 0, on the scale of moment_bound^(1/k); otherwise use prae-central. Under
    contamination alpha no policy can separate arms with a gap below the order of alpha^(1-1/k), and
    regret grows linearly. For moments of order below 2, and without outliers, use dpr-batch-ucb.

    In batch tau = 1, 2, ... with B = 2^tau, pull every active arm B times and let, for rewards in
    units of moment_bound^(1/k),

    .. math:: m_a = (1/B) \sum x 1\{|x| \le M\} + \mathrm{Lap}(2M / (B \varepsilon)),

    .. math:: M = \min\{(B \varepsilon / \log(1/\delta))^{1/k},\; \alpha^{-1/k}\}

    (in M, epsilon counts as at most 4.5 (k - 1); beyond that beta would grow again). Remove a if
    max m - m_a > 2 beta, where beta, which the paper gives up to constants, is

    .. math::
        \sqrt{2 (1 + \alpha M^2) L / B} + 2 M L / (3B) + M^{1-k} + \alpha (M + 1)
        + (2M / (B \varepsilon)) \log(2/\delta), \quad L = \log(4/\delta).

    Each estimate is within beta of its mean with probability 1 - delta. There is one for each arm
    and batch, so all hold together with probability 1 - arms log2(T) delta. Arms take turns in
    random order. If rewards are lost, beta is that of the rewards that arrived, at the same M. If
    rewards are late, up to 16 batches are open.

    With radius = "paper" outliers are counted, as in the paper: beta has log(6/delta) for L, 1 for
    the variance, 2 alpha (M + 1) and log(3/delta), and holds from B = (3/alpha) log(3/delta) on.
    Smaller batches are then spent on one arm each (`first_phase`).

    Privacy:
        epsilon-differential privacy of the whole trajectory, for the observed rewards, outliers
        included. Each reward enters one released sum, of sensitivity 2M. M and B are public; the
        active set follows from released values. A batch that the horizon cuts off releases nothing.
        A batch of the first phase releases nothing, or the estimate of its own rewards.

    Parameters:
        moment_bound: bound on E|X|^k of the clean rewards of every arm.
        contamination: alpha, a bound on the share of outliers, below 1/2. As batches grow beta
            falls to 2 alpha^(1-1/k) + alpha. If that is 1 or more (alpha above 0.17 for k = 2), no
            arm is ever dropped unless radius_scale is below 1.
        radius: "mixed" as above, or "paper".

    Example:
        >>> policy = bl.policy("prae-raw", arms=5, epsilon=1.0, moment_order=2, horizon=10**6)
        >>> round(dict(policy.batches(10**6))[2**16], 4)
        0.0772
    """

    name = "prae-raw"
    reference = "Wu, Zhou, Tao, Wang 2023"
    see_also = "prae-central, dpr-batch-ucb, robust-ucb"
    kernels = Kernels(begin, prae.choose_in_batches, learn, forget)
    estimation = Estimation(read_mean, limits_within_radius)
    radius: Annotated[Radius, Range(meaning="how outliers enter the radius")] = "mixed"
    examples = (
        dict(horizon=600, moment_order=2, moment_bound=3.2, radius_scale=0.05),
        dict(horizon=600, moment_order=3, moment_bound=8.0, radius_scale=0.05)
        | dict(contamination=0.1, radius="paper", threshold=10),
        *(
            dict(horizon=600, moment_order=2, moment_bound=3.2, radius_scale=0.2)
            | dict(threshold=20, first_phase=first_phase)
            for first_phase in ("each-round", "greedy", "half-greedy")
        ),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_levels()

    def require_estimates(self, failure: float) -> Estimation:
        """With radius="mixed" each estimate is within its radius, for any number of rewards."""
        batches = math.ceil(math.log2((self.horizon or MOST_ROUNDS) + 2))
        fails = batches * failure_or_inverse_horizon(self)
        proved = self.radius_scale >= 1.0 and self.radius == "mixed"
        require_radii(self, proved, fails, failure)
        return super().require_estimates(failure)

    @property
    def needed_threshold(self) -> float:
        if self.radius == "mixed":
            return 0.0
        return counted_threshold(self.contamination, failure_or_inverse_horizon(self))

    def constants(self) -> prae.Params:
        terms = mixed_terms if self.radius == "mixed" else counted_terms
        return self.frame(
            self.moment_bound ** (1.0 / self.moment_order),
            terms(self.contamination, failure_or_inverse_horizon(self)),
        )
