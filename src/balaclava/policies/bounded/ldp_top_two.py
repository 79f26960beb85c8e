"""LDP top two: name the best arm from private reports, with a proved stopping rule."""

import math
from typing import Any

from balaclava._core.kernels import kernel
from balaclava.frames import pools as frame
from balaclava.policies.base import Estimation, Kernels, register
from balaclava.policies.bounded.dp_top_two import State, TopTwoPolicy, begin, choose, compare
from balaclava.policies.bounded.ldp_ucb_bernoulli import limits, mean_behind, report_law
from balaclava.policies.intervals import read_batches
from balaclava.policies.local_policies import LocalBoundedPolicy, unit_bit_report


@kernel(borrows=True)
def settle(params: Any, state: State, arm: int, row: int) -> None:
    """Use the sum of a batch's reports, which are already private."""
    if row != frame.NO_ROW:
        pools = state.pools
        frame.close_batch(pools, arm, row, pools.sums[arm, row])
        frame.use_mean(pools, arm, pools.pooled[arm], pools.rewards[arm])
        compare(params, state, 0.0)


@kernel(borrows=True)
def learn_report(
    params: Any, state: State, t: int, arm: int, report: float, phase: int, rng: Any
) -> None:
    row = frame.add_reward(state.pools, arm, frame.find_row(state.pools, arm, phase), report)
    settle(params, state, arm, row)


@kernel(borrows=True)
def learn(params: Any, state: State, t: int, arm: int, reward: float, phase: int, rng: Any) -> None:
    learn_report(params, state, t, arm, unit_bit_report(params, reward, 1.0, rng), phase, rng)


@kernel(borrows=True)
def forget(params: Any, state: State, t: int, arm: int, phase: int, rng: Any) -> None:
    row = frame.give_up(state.pools, arm, frame.find_row(state.pools, arm, phase))
    settle(params, state, arm, row)


@kernel(borrows=True)
def read_mean(params: Any, state: State, arm: int) -> tuple[int, float, float]:
    rewards, mean, _ = read_batches(params, state.pools, arm)
    return rewards, mean_behind(params, mean), 0


@register
class LDPTopTwo(LocalBoundedPolicy, TopTwoPolicy):
    r"""Name the best arm from rewards that each participant reports as a coin flip; then play it.

    For trials that need an answer, of rewards that only the participant's device may see. If a
    trusted server holds the rewards, dp-top-two needs far fewer participants.

    A device with reward x in [0, 1] reports y = 1 with probability

    .. math:: (x e^\varepsilon + 1 - x) / (1 + e^\varepsilon),

    otherwise y = 0. Reports shrink the gaps between the arms by tanh(epsilon/2) and keep their
    order. On the reports the rule is that of dp-top-two, without noise in their sums: the evidence
    that the leader is better than each other arm, the leader or its closest rival in whole batches,
    and an answer that is ever wrong with probability at most 1 - confidence.

    Privacy:
        epsilon-local differential privacy of each report, hence epsilon-differential privacy of the
        whole trajectory. For every x both probabilities lie between 1 / (1 + e^epsilon) and
        e^epsilon / (1 + e^epsilon).

    Parameters:
        epsilon: privacy loss of a report.
        confidence: chance that the named arm is the best, above 0.5.
        batch_ratio: least growth of an arm's pulls from batch to batch, above 1.
        first_batch: pulls in an arm's first batch, rounded up; by default 20/tanh(epsilon/2)^2.

    Example:
        >>> import balaclava as bl
        >>> agent = bl.policy("ldp-top-two", arms=2, epsilon=2.0).agent(seed=1)
        >>> while agent.winner() is None:
        ...     decision = agent.ask()
        ...     agent.tell(decision, reward=(0.1, 0.9)[decision.arm])
        >>> agent.winner(), agent.status().decisions
        (1, 70)
    """

    name = "ldp-top-two"
    reference = "Azize, Jourdan, Al Marjani, Basu 2024, with the stopping rule of dp-top-two"
    cites = "Azize, Jourdan, Al Marjani, Basu 2024; Ren, Zhou, Liu, Shroff 2020"
    see_also = "dp-top-two, ldp-ucb-bernoulli"
    report_kernel = staticmethod(unit_bit_report)
    learn_report = staticmethod(learn_report)
    reports = (0.0, 1.0)
    kernels = Kernels(begin, choose, learn, forget)
    estimation = Estimation(read_mean, limits, report_law, joint=1.0, in_order=True)

    @property
    def noise_scale(self) -> float:
        return 0.0  # reports are private already

    @property
    def usual_batches(self) -> tuple[float, float]:  # type: ignore[override]
        """Reports carry tanh(epsilon/2)^2 of a reward's information; 20 is a guess."""
        return 20.0 * self.epsilon / math.tanh(0.5 * self.epsilon) ** 2, 1.25
