"""EXP3, FTPL, HTINF and Tsallis-INF made private by batches (Asi, Raman, Talwar 2025).

Corollaries E.1 (exp3), E.3 (ftpl) and 3.2 (htinf). The classes differ in their base; `documented`
writes the passages of their docstrings that are the same.
"""

from balaclava.policies.adversarial.conversion import TunedPolicy, documented
from balaclava.policies.base import register
from balaclava.policies.classic.exp3 import Exp3
from balaclava.policies.classic.ftpl import FTPL
from balaclava.policies.classic.htinf import HTINF
from balaclava.policies.classic.tsallis_inf import TsallisINF


@register
@documented
class DPExp3(TunedPolicy):
    """EXP3 on the noisy mean losses of batches of 1/epsilon rounds.

    For comparison only: dp-htinf has the better bound and far lower regret. Exp3 must learn slowly
    enough for the largest noise of all rounds, htinf only for the usual noise.

    {rule}
    Exp3 uses the eta and gamma for n = floor(T / tau) rounds and noise of scale lambda. At
    epsilon = 1/tau, eta is within 5 % of the paper's sqrt(log K / (22 n K log(K n)^2)).

    Parameters:
        learning_rate_scale: multiplies exp3's eta, and gamma with it.

    {example}
        1898
    """

    name = "dp-exp3"
    see_also = "exp3, dp-htinf, ldp-exp3"
    base_class = Exp3
    examples = ({"learning_rate_scale": 5.0}, {"epsilon": 0.25, "learning_rate_scale": 5.0})


@register
@documented
class DPFTPL(TunedPolicy):
    """FTPL with resampling, on the noisy mean losses of batches of 1/epsilon rounds.

    For comparison only: dp-htinf has the better bound and far lower regret. The policies
    dp-ftpl-gauss, dp-ftpl-beta and dp-ftpl-new are different: they are for random rewards.

    {rule}
    Ftpl uses the eta and M for n = floor(T / tau) rounds and noise of scale lambda. The
    perturbations that ftpl draws itself are not counted as privacy.

    Parameters:
        learning_rate_scale: multiplies ftpl's eta; above 1 there is no bound on the regret.

    {example}
        1874
    """

    name = "dp-ftpl"
    see_also = "ftpl, dp-htinf, dp-exp3"
    base_class = FTPL
    examples = ({"learning_rate_scale": 20.0}, {"epsilon": 0.25, "learning_rate_scale": 20.0})


@register
@documented
class DPHTINF(TunedPolicy):
    """HTINF on the noisy mean losses of batches of 1/epsilon rounds.

    The default for losses that an adversary chose. It has the best proved regret, of order
    sqrt(K T / epsilon), sublinear for every epsilon above 1/T, and the least in simulations. A
    `learning_rate_scale` of 2 often lowers the regret, but no bound is proved for it. If rewards
    are random and do not drift, dp-imed is far better.

    {rule}
    Htinf uses alpha = 2 and sigma = sqrt(1 + 2 lambda^2). The paper has sigma = sqrt(6), from
    E(l + Z)^2 <= 2 E l^2 + 2 E Z^2. Noise has mean 0 and is independent of the loss, so that
    E(l + Z)^2 = E l^2 + E Z^2. The bound holds for every such sigma and is smaller by sqrt(2) or
    more.

    Parameters:
        learning_rate_scale: multiplies htinf's eta; only at 1 there is a bound on the regret.

    {example}
        415
    """

    name = "dp-htinf"
    cites = "Asi, Raman, Talwar 2025; Huang, Dai, Huang 2022"
    see_also = "htinf, dp-tsallis-inf, dp-exp3, ldp-exp3"
    base_class = HTINF
    examples = ({}, {"epsilon": 0.25})


@register
@documented
class DPTsallisINF(TunedPolicy):
    """Tsallis-INF on the noisy mean losses of batches of 1/epsilon rounds.

    For comparison only: it shows what htinf's threshold on losses costs, which is little. Runs vary
    more than those of dp-htinf, and there is no bound on the regret. Use dp-htinf.

    {rule}
    Tsallis-inf uses sigma = sqrt(1 + 2 lambda^2).

    Parameters:
        learning_rate_scale: multiplies tsallis-inf's eta.

    {example}
        287
    """

    name = "dp-tsallis-inf"
    cites = "Asi, Raman, Talwar 2025; Zimmert, Seldin 2021"
    see_also = "tsallis-inf, dp-htinf"
    base_class = TsallisINF
    examples = ({}, {"epsilon": 0.25})
