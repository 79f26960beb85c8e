"""Bandits made private, over experts (Asi, Raman, Talwar 2025, Algorithm 5, Theorem 4.2).

Corollary 4.3 bounds the regret of dp-htinf-experts. The first classes differ in their inner policy;
`documented` writes the passages of their docstrings that are the same.
"""

import functools
from collections.abc import Mapping
from typing import Annotated

from balaclava._core.declared import Epsilon, Horizon, Range
from balaclava.policies.adversarial.conversion import Batch, ConvertedPolicy, Privatised, documented
from balaclava.policies.adversarial.converted_policies import DPFTPL, DPHTINF, DPExp3
from balaclava.policies.base import POLICIES, Policy, register
from balaclava.policies.experts.experts_as_arms import ConvertedExpertPolicy, ExpertsAsArms


@register
@documented
class DPExp3Experts(ConvertedExpertPolicy):
    """dp-exp3 over experts: follow one expert for a batch and learn from its noisy mean loss.

    For comparison only: dp-htinf-experts has the better bound and lower regret.

    {rule}

    Example:
        >>> agent = bl.policy("dp-exp3-experts", arms=2, experts=3, horizon=2000,
        ...                   epsilon=0.5, learning_rate_scale=5).agent(seed=1)
        {played}
        [755, 1245]
    """

    name = "dp-exp3-experts"
    see_also = "dp-htinf-experts, dp-exp3, exp4"
    examples = ({"epsilon": 0.5, "learning_rate_scale": 5.0},)
    inner_class = DPExp3


@register
@documented
class DPFTPLExperts(ConvertedExpertPolicy):
    """dp-ftpl over experts: follow one expert for a batch and learn from its noisy mean loss.

    For comparison only: dp-htinf-experts has the better bound, lower regret and faster steps.

    {rule}

    Example:
        >>> agent = bl.policy("dp-ftpl-experts", arms=2, experts=3, horizon=2000,
        ...                   epsilon=0.5, learning_rate_scale=20).agent(seed=1)
        {played}
        [295, 1705]
    """

    name = "dp-ftpl-experts"
    see_also = "dp-htinf-experts, dp-ftpl, exp4"
    examples = ({"epsilon": 0.5, "learning_rate_scale": 20.0},)
    inner_class = DPFTPL


@register
@documented
class DPHTINFExperts(ConvertedExpertPolicy):
    """dp-htinf over experts: follow one expert for a batch and learn from its noisy mean loss.

    The first choice for few experts. Its regret is of order sqrt(N T / epsilon), without logarithms
    and for any number of arms. It needs no delta. For many experts use ldp-exp4 or dp-exp4, whose
    regret grows more slowly with N; `bl.recommend_experts` compares them.

    {rule}

    Example:
        >>> agent = bl.policy("dp-htinf-experts", arms=2, experts=3, horizon=2000,
        ...                   epsilon=0.5).agent(seed=1)
        {played}
        [350, 1650]
    """

    name = "dp-htinf-experts"
    see_also = "dp-exp4, ldp-exp4, dp-htinf"
    examples = ({"epsilon": 0.5},)
    inner_class = DPHTINF


@register
class PrivatisedExperts(ExpertsAsArms):
    """Make any policy for losses private, and let it choose among experts instead of arms.

    For your own base: `bl.privatise(base, epsilon=..., experts=N)`. dp-htinf-experts,
    dp-exp3-experts and dp-ftpl-experts are the same with the parameters of the theory.

    In each batch of tau rounds the base chooses one of N experts. In each round of the batch the
    arm is drawn from that expert's advice. At its end the base learns from the mean of the losses
    + Lap(1/(tau epsilon)) as the loss of the expert.

    Privacy:
        epsilon-differential privacy of the whole trajectory with respect to the losses, for every
        base: see `balaclava.policies.adversarial.conversion`. The advice is public.

    Parameters:
        base: a policy that learns from losses, with one arm for each expert, or a mapping with
            its `name` and parameters.
        horizon: if given, one that ends within the first batch is refused.

    Example:
        >>> base = bl.policy("exp3", arms=2, eta=0.1, gamma=0.1)
        >>> agent = bl.privatise(base, epsilon=0.5, experts=3).agent(seed=1)
        >>> pulls = [0, 0]
        >>> for _ in range(1000):
        ...     decision = agent.ask([[1, 0], [0.5, 0.5], [0, 1]])
        ...     agent.tell(decision, reward=(0.9, 0.1)[decision.arm])
        ...     pulls[decision.arm] += 1
        >>> pulls
        [140, 860]
    """

    name = "privatised-experts"
    reference = "Asi, Raman, Talwar 2025"
    see_also = "privatised, dp-htinf-experts, dp-exp4"
    examples = ({"base": {"name": "exp3", "arms": 4, "eta": 0.2, "gamma": 0.1}, "epsilon": 0.5},)
    base: Annotated[Policy, Range(meaning="the policy for losses that chooses an expert")]
    epsilon: Epsilon
    batch: Batch | None = None
    horizon: Horizon | None = None

    def __post_init__(self) -> None:
        if isinstance(self.base, Mapping):
            object.__setattr__(self, "base", POLICIES.from_mapping(self._label("base"), self.base))
        super().__post_init__()
        if self.base.arms != self.experts:
            raise self.refuse("experts", f"differs from the base; give {self.base.arms}, its arms")
        self._try_inner()

    @functools.cached_property
    def inner(self) -> ConvertedPolicy:
        return Privatised(**self.shared_parameters(Privatised))
