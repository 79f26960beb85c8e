"""AdaP-KLUCB: KL-UCB in doubling episodes with private means (Azize and Basu 2022)."""

from typing import Any

from balaclava._core.kernels import kernel
from balaclava.estimators.kl import kl_upper
from balaclava.frames.pools import Pools, choose_in_batches
from balaclava.policies.base import Kernels, register
from balaclava.policies.bounded import batched
from balaclava.policies.bounded.adap_ucb import Alpha


@kernel(borrows=True)
def index(params: Any, state: Pools, arm: int, log_t: float) -> float:
    """The largest mean within reach / n_a of m_a + reach / (epsilon n_a), reach = alpha log t."""
    n, reach = state.weights[arm], params.alpha * log_t
    noise = batched.noise_reach(params, reach) / params.epsilon
    mean = min(max(state.means[arm] + noise / n, 0.0), 1.0)
    return kl_upper(mean, reach / n)


@register
class AdaPKLUCB(batched.ReleasedBatchPolicy):
    r"""AdaP-UCB with the index of KL-UCB: episodes that double, one release each.

    Better than adap-ucb if means are near 0 or 1, and never much worse. Like it, it discards all
    but an arm's last episode. dp-imed and dp-klucb do not, and have far lower regret.

    After one pull of each arm, an episode that begins in round t plays the arm with the largest

    .. math::
        \max\{q \in [0, 1] : \mathrm{kl}(\mathrm{clip}(m_a + \alpha \log t / (\varepsilon n_a)), q)
        \le \alpha \log t / n_a\}

    until its pulls have doubled. m_a is the mean of the n_a rewards of the arm's last episode
    alone, plus Lap(1/(epsilon n_a)); clip moves into [0, 1].

    Example:
        >>> agent = bl.policy("adap-klucb", arms=2, epsilon=5.0).agent(seed=1)
        >>> for _ in range(1000):
        ...     decision = agent.ask()
        ...     agent.tell(decision, reward=(0.1, 0.9)[decision.arm])
        >>> [each.decisions for each in agent.estimates()]
        [32, 968]
    """

    name = "adap-klucb"
    reference = "Azize, Basu 2022"
    see_also = "adap-ucb, dp-klucb, kl-ucb"
    kernels = Kernels(
        batched.begin,
        choose_in_batches(batched.highest_index(index), batched.double_pulls),
        batched.learn_alone,
        batched.forget_alone,
    )
    alpha: Alpha = 3.1
