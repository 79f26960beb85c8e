"""DP-FTPL-Beta: the leader under Beta perturbation (Wang and Zhu 2024, Algorithm 2)."""

from typing import Any

import numpy as np

from balaclava._core.kernels import kernel
from balaclava.frames.tally import Tally, begin_tally, count_reward
from balaclava.policies.base import Kernels, register
from balaclava.policies.bounded.dp_ftpl_gauss import Params, StartPhasePolicy, highest_draw
from balaclava.policies.theorem_conditions import unit_gaps
from balaclava.privacy.mechanisms import perturbed_index
from balaclava.theory.beta_index_regret import beta_index_regret


@kernel(borrows=True)
def learn(
    params: Params, state: Tally, t: int, arm: int, reward: float, phase: int, rng: Any
) -> None:
    # The proof is for rewards 0 and 1: any other becomes a coin flip of that mean.
    success = 1.0 if rng.random() < reward else 0.0
    count_reward(state, arm, success, params.start)


@register
class DPFTPLBeta(StartPhasePolicy):
    r"""Pull each arm often enough, then play the highest Beta draw: each decision is private.

    dp-ftpl-gauss with the Beta law of Thompson sampling. Its proof is far from tight and makes
    the start phase a hundred times longer. For comparison; prefer dp-ftpl-gauss or dp-ftpl-new.

    Pull each arm, in turn, until it has at least

    .. math::
        N = \max\{\min\{40 e/(9 \pi \delta^2),\;
        8000 \log(e/(2 \pi \delta^2)) / (81 \varepsilon^2)\},\; 1000 e/(9 \pi)\}

    rewards. Then, in each round and for each arm with n rewards of sum R, draw
    theta ~ Beta(R + 1 + k, n - R + 1 + k), k = floor(n/8) + 1, and play the highest. A reward x
    strictly between 0 and 1 is first replaced by a coin flip, 1 with probability x.

    The horizon may end in the start phase: then the arms are pulled in turn throughout.

    Privacy:
        (epsilon, delta)-differential privacy of each decision (Theorem 13). The printed proof has a
        gap for epsilon above 1.1, which ours closes; an epsilon above 20 counts as 20 in N. A
        reward between 0 and 1 becomes a coin flip: then a decision is private given the coins of
        the other rewards. The losses of decisions add up: the run as a whole is not protected.

    Parameters:
        epsilon: privacy loss of a decision; 0 is allowed.

    Example:
        >>> bl.policy("dp-ftpl-beta", arms=9, epsilon=1.0, delta=0.01).start_phase
        827
    """

    name = "dp-ftpl-beta"
    reference = "Wang, Zhu 2024"
    assumptions = (
        "a reward strictly between 0 and 1 becomes a coin flip: the loss of one decision given "
        "earlier ones is proved for an observer who knows the coins of the other rewards",
    )
    see_also = "dp-ftpl-gauss, dp-ftpl-new, thompson-beta"
    kernels = Kernels(begin_tally, highest_draw(perturbed_index.beta_index), learn)
    threshold = staticmethod(perturbed_index.beta_threshold)
    examples = (
        {"arms": 2, "epsilon": 5.0, "delta": 0.1},
        {"arms": 2, "epsilon": 5.0, "delta": 0.1, "reward_range": (-1.0, 3.0)},
    )

    def index_law(self, pulls: int, total: float) -> perturbed_index.IndexLaw:
        return perturbed_index.BetaLaw(*perturbed_index.beta_shape(total / pulls, 1.0 / pulls))

    def proved_bound(self, environment: Any, horizon: int) -> float | None:
        """Theorem 13 with its constants: `theory.beta_index_regret` has the proof."""
        scaled = unit_gaps(self, environment)
        if scaled is None:
            return None
        gaps, width = scaled
        best = float(np.max(environment.means) - self.reward_range[0]) / width
        return width * beta_index_regret(best - gaps, self.start_phase, horizon)
