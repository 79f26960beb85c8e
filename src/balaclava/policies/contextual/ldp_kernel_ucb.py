"""LDP-KernelUCB: dp-kernel-ucb for rewards that devices report by randomized response."""

from balaclava.policies.base import register
from balaclava.policies.contextual.dp_kernel_ucb import KernelPolicy, learn_report
from balaclava.policies.contextual.linear_context import CONTEXT_IS_PUBLIC
from balaclava.policies.local_policies import REPORTED, LocalBoundedPolicy, unit_bit_report


@register
class LDPKernelUCB(KernelPolicy, LocalBoundedPolicy):
    """dp-kernel-ucb on rewards that each participant reports as one random bit; contexts public.

    The first choice for rewards that only the participant's device may see, if the features of
    participants are known and may be public. Decisions are those of dp-kernel-ucb, whose rule,
    model and regret it has: a reward is randomised on the device instead of by the operator.

    Privacy:
        epsilon-local differential privacy of each report, hence epsilon-differential privacy of
        the whole trajectory; contexts are public and not protected, and depend on
        rewards only through reports. The report is that of ldp-linucb.

    Parameters:
        radius_scale: q; never affects privacy.

    Example:
        >>> policy = bl.policy("ldp-kernel-ucb", arms=5, features=3, epsilon=1.0)
        >>> policy.report(0.3) in (0.0, 1.0)
        True
    """

    name = "ldp-kernel-ucb"
    reference = (
        "after Valko, Korda, Munos, Flaounas, Cristianini 2013 and Ren, Zhou, Liu, Shroff 2020"
    )
    see_also = "dp-kernel-ucb, ldp-linucb, ldp-ucb-bernoulli"
    assumptions = (CONTEXT_IS_PUBLIC, REPORTED)
    report_kernel = staticmethod(unit_bit_report)
    learn_report = staticmethod(learn_report)
    reports = (0.0, 1.0)
