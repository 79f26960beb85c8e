"""LDPR-Batch-UCB: UCB on private reports in growing batches, with radii to the constant.

The reports are those of Tao, Wu, Zhao, Wang (2022, Algorithm 4). Batches, levels and radii are our
own: `theory.batch_radii` has them, with their proof.
"""

from typing import Any

from balaclava._core.kernels import kernel
from balaclava.frames.pools import NO_ROW, add_reward, find_row, give_up
from balaclava.policies.base import Kernels, register
from balaclava.policies.heavy_tailed.dpr_batch_ucb import (
    BatchUCBPolicy,
    Params,
    State,
    begin,
    choose,
    close,
)
from balaclava.policies.local_policies import LocalRealPolicy, truncated_laplace_report


@kernel(borrows=True)
def report_level(params: Params, state: State, arm: int, phase: int) -> float:
    """B of the decision's batch; any level for a decision that the policy does not learn from."""
    row = find_row(state.pools, arm, phase)
    return float(state.own_levels[arm, row] if row != NO_ROW else params.levels[0])


@kernel(borrows=True)
def settle(params: Params, state: State, arm: int, row: int) -> None:
    """Use the mean of a batch's reports, which are already private."""
    if row != NO_ROW:
        close(params, state, arm, row, state.pools.sums[arm, row])


@kernel(borrows=True)
def learn_report(
    params: Params, state: State, t: int, arm: int, report: float, phase: int, rng: Any
) -> None:
    settle(
        params, state, arm, add_reward(state.pools, arm, find_row(state.pools, arm, phase), report)
    )


@kernel(borrows=True)
def learn(
    params: Params, state: State, t: int, arm: int, reward: float, phase: int, rng: Any
) -> None:
    if find_row(state.pools, arm, phase) != NO_ROW:
        level = report_level(params, state, arm, phase)
        report = truncated_laplace_report(params, reward, level, rng)
        learn_report(params, state, t, arm, report, phase, rng)


@kernel(borrows=True)
def forget(params: Params, state: State, t: int, arm: int, phase: int, rng: Any) -> None:
    settle(params, state, arm, give_up(state.pools, arm, find_row(state.pools, arm, phase)))


@register
class LDPRBatchUCB(BatchUCBPolicy, LocalRealPolicy):
    r"""UCB in doubling batches on truncated rewards that each device reports with Laplace noise.

    For heavy-tailed rewards that only the participant's device may see. Local privacy is costly: if
    a trusted server holds the rewards, dpr-batch-ucb has far lower regret.

    A device with reward x reports `x 1{|x| <= B_m} + Lap(2 B_m / epsilon)`. The server sends the
    level of the arm's m-th batch with the decision. Batches, estimates and indices are those of
    dpr-batch-ucb, but each report adds noise: for E|X|^p <= u, p <= 2, one batch of n pulls and no
    outliers,

    .. math::
        R = \min_{B, x} u B^{1-p} \max\{1, (e^x - 1 - x)/x\}
        + (B/(n x)) (\log(M/\beta) - n \log(1 - 4 x^2/\varepsilon^2)),

    of order u^(1/p) (log(1/beta) / (n epsilon^2))^((1-1/p)/2), the best possible (Tao et al., with
    the correction of Zhou and Zhang 2024).

    Privacy:
        epsilon-local differential privacy of each report, hence epsilon-differential privacy of
        the whole trajectory: rewards truncated at B differ by at most 2B, for every B.

    Parameters:
        moment_bound: u, a bound on E|X|^p.
        first_batch: n, by default the least power of two at which R, with exp(-8) for beta/M, is
            at most u^(1/p).

    Example:
        >>> policy = bl.policy("ldpr-batch-ucb", arms=5, epsilon=1.0, horizon=10**6,
        ...                    moment_order=1.9, moment_bound=8.142063093163385)
        >>> agent = policy.agent()
        >>> decision = agent.ask()
        >>> level = agent.report_level(decision)
        >>> round(level, 4)
        5.9815
        >>> agent.tell_report(decision, policy.report(0.3, level))
    """

    name = "ldpr-batch-ucb"
    reference = "balaclava, after Tao, Wu, Zhao, Wang 2022"
    cites = "Tao, Wu, Zhao, Wang 2022; Zhou, Zhang 2024"
    see_also = "dpr-batch-ucb, ldpr-se, ldp-ucb-laplace"
    report_level = staticmethod(report_level)
    report_kernel = staticmethod(truncated_laplace_report)
    learn_report = staticmethod(learn_report)
    kernels = Kernels(begin, choose, learn, forget)
    examples = (
        {"horizon": 600, "first_batch": 8, "radius_scale": 0.1},
        {"horizon": 600, "first_batch": 8, "radius_scale": 0.2, "contamination": 0.05},
    )
