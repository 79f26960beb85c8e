"""DP-KLUCB: KL-UCB for private sums (Azize, Wu, Honda, Orabona, Ito, Basu 2025)."""

from typing import Any

from balaclava._core.kernels import kernel
from balaclava.estimators.kl import private_kl_upper
from balaclava.frames.pools import Pools, clipped_mean
from balaclava.policies.base import register
from balaclava.policies.bounded import batched, remembering


@kernel(borrows=True)
def index(params: Any, state: Pools, arm: int, log_t: float) -> float:
    """The largest mean within the private divergence of the released mean."""
    return private_kl_upper(clipped_mean(state, arm), log_t / state.weights[arm], params.epsilon)


@register
class DPKLUCB(remembering.RememberingPolicy):
    r"""KL-UCB in growing batches, with a divergence that allows for the noise of privacy.

    Low regret with little spread between runs. dp-imed has a lower mean in long runs; in short runs
    and at a small epsilon dp-klucb may be better.

    An arm is played for a whole batch. After its m-th batch it has n_m = ceil(first_batch
    batch_ratio^(m-1)) pulls, and S_a grows by the sum of the batch + Lap(1/epsilon). The next
    batch, in round t, goes to the arm with the largest

    .. math:: \max\{q \in [0, 1] : d_\varepsilon(\mathrm{clip}(S_a / n_a), q) \le \log t / n_a\},

    .. math:: d_\varepsilon(x, y) = \min_{z \in [x, y]} \varepsilon |z - x| + \mathrm{kl}(z, y).

    The paper's rule has first_batch = batch_ratio. A longer first batch keeps the noise draws in
    S_a few: see `GrowingBatchPolicy`, also for the settings that are refused.

    Parameters:
        first_batch: pulls in an arm's first batch, rounded up; 30/epsilon by default.

    Example:
        >>> agent = bl.policy("dp-klucb", arms=2, epsilon=5.0).agent(seed=1)
        >>> for _ in range(1000):
        ...     decision = agent.ask()
        ...     agent.tell(decision, reward=(0.1, 0.9)[decision.arm])
        >>> [each.decisions for each in agent.estimates()]
        [6, 994]
    """

    name = "dp-klucb"
    reference = "Azize, Wu, Honda, Orabona, Ito, Basu 2025"
    see_also = "dp-imed, adap-klucb, kl-ucb"
    by_memory = remembering.kernels_by_memory(batched.highest_index(index), batched.grow_pulls)
    most_draws = 16
    examples = ({}, {"memory": 400, "first_batch": 6})
    batch_ratio: batched.BatchRatio = 1.25
