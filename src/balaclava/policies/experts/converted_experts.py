"""EXP3, FTPL and HTINF made private, over experts (Asi, Raman, Talwar 2025, Algorithm 5).

Corollary 4.3 bounds the regret of dp-htinf-experts. The classes differ in their inner policy;
`documented` writes the passages of their docstrings that are the same.
"""

from balaclava.policies.adversarial.conversion import documented
from balaclava.policies.adversarial.converted_policies import DPFTPL, DPHTINF, DPExp3
from balaclava.policies.base import register
from balaclava.policies.experts.experts_as_arms import ConvertedExpertPolicy


@register
@documented
class DPExp3Experts(ConvertedExpertPolicy):
    """dp-exp3 over experts: follow one expert for a batch and learn from its noisy mean loss.

    For comparison only: dp-htinf-experts has the better bound and lower regret.

    {rule}

    {privacy}

    {parameters}

    Example:
        >>> agent = bl.policy("dp-exp3-experts", arms=2, experts=3, horizon=2000,
        ...                   epsilon=0.5, learning_rate_scale=5).agent(seed=1)
        {played}
        [755, 1245]

    See Also:
        dp-htinf-experts, dp-exp3, exp4
    """

    name = "dp-exp3-experts"
    examples = ({"epsilon": 0.5, "learning_rate_scale": 5.0},)
    inner_class = DPExp3


@register
@documented
class DPFTPLExperts(ConvertedExpertPolicy):
    """dp-ftpl over experts: follow one expert for a batch and learn from its noisy mean loss.

    For comparison only: dp-htinf-experts has the better bound, lower regret and faster steps.

    {rule}

    {privacy}

    {parameters}

    Example:
        >>> agent = bl.policy("dp-ftpl-experts", arms=2, experts=3, horizon=2000,
        ...                   epsilon=0.5, learning_rate_scale=20).agent(seed=1)
        {played}
        [295, 1705]

    See Also:
        dp-htinf-experts, dp-ftpl, exp4
    """

    name = "dp-ftpl-experts"
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

    {privacy}

    {parameters}

    Example:
        >>> agent = bl.policy("dp-htinf-experts", arms=2, experts=3, horizon=2000,
        ...                   epsilon=0.5).agent(seed=1)
        {played}
        [350, 1650]

    See Also:
        dp-exp4, ldp-exp4, dp-htinf
    """

    name = "dp-htinf-experts"
    examples = ({"epsilon": 0.5},)
    inner_class = DPHTINF
