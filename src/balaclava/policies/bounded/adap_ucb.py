"""AdaP-UCB: UCB in doubling episodes with private means (Azize and Basu 2022, Algorithm 1)."""

import math
from typing import Annotated, Any

from balaclava._core.declared import Range
from balaclava._core.kernels import kernel
from balaclava.frames.pools import Pools, choose_in_batches
from balaclava.policies.base import Kernels, register
from balaclava.policies.bounded import batched
from balaclava.policies.theorem_conditions import unit_gaps

Alpha = Annotated[float, Range(3, meaning="scale of exploration, as proved", open_low=True)]


@kernel(borrows=True)
def index(params: Any, state: Pools, arm: int, log_t: float) -> float:
    """m_a + sqrt(reach / (2 n_a)) + reach / (epsilon n_a), reach = alpha log t."""
    n, reach = state.weights[arm], params.alpha * log_t
    noise = batched.noise_reach(params, reach) / params.epsilon
    return float(state.means[arm] + math.sqrt(reach / (2.0 * n)) + noise / n)


@register
class AdaPUCB(batched.ReleasedBatchPolicy):
    r"""Play the arm with the highest index until its pulls have doubled, then release its mean.

    UCB with the cost of privacy in the index: it needs no horizon and has a proved bound. But it
    discards all but an arm's last episode and explores for the worst case. dp-imed and dp-klucb
    have far lower regret.

    After one pull of each arm, an episode that begins in round t plays the arm with the largest

    .. math:: m_a + \sqrt{\alpha \log t / (2 n_a)} + \alpha \log t / (\varepsilon n_a)

    until its pulls have doubled. m_a is the mean of the n_a rewards of the arm's last episode
    alone, plus Lap(1/(epsilon n_a)). The submitted paper has log(2t) under the root in one place;
    here it is log t throughout.

    Example:
        >>> world = bl.environment("bernoulli", means=[0.75, 0.625, 0.5, 0.375, 0.25])
        >>> round(bl.policy("adap-ucb", arms=5, epsilon=1.0).regret_bound(world, 10**6))
        11545
    """

    name = "adap-ucb"
    reference = "Azize, Basu 2022"
    see_also = "adap-klucb, lazy-dp-ucb, dp-imed"
    kernels = Kernels(
        batched.begin,
        choose_in_batches(batched.highest_index(index), batched.double_pulls),
        batched.learn_alone,
        batched.forget_alone,
    )
    alpha: Alpha = 3.1

    def proved_bound(self, environment: Any, horizon: int) -> float | None:
        """Theorem 7: sum of 16 alpha log T / min(gap, epsilon) + alpha/(alpha-3).

        The noise of two servers reaches at most twice as far (`two_noises_quantile`).
        """
        scaled = unit_gaps(self, environment)
        if scaled is None:
            return None
        gaps, width = scaled
        exploration = sum(
            16.0 * self.alpha * math.log(horizon) / min(gap, self.epsilon / self.noises)
            + self.alpha / (self.alpha - 3.0)
            for gap in gaps[gaps > 0].tolist()
        )
        return float(width * exploration)
