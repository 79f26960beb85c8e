"""What the policies with local privacy share: a reward is made private by its owner."""

from __future__ import annotations

from typing import ClassVar

from balaclava.policies.base import PrivateBoundedPolicy
from balaclava.privacy.guarantee import Model, Scope
from balaclava.privacy.randomness import SystemRandomness


class LocalBoundedPolicy(PrivateBoundedPolicy):
    """A policy that learns from reports, each made private before it leaves its owner.

    A subclass gives `report_kernel(params, reward, rng) -> float`, the only function that sees a
    prepared reward, and `learn_report`, which learns from what it returns. An owner calls
    `policy.report(reward)`, the operator `agent.tell_report(decision, report)`. The policy's
    `learn` does both, so an agent may be told raw rewards where one party owns them all.
    """

    model: ClassVar[Model] = "local"
    scope: ClassVar[Scope] = "report"
    assumptions: ClassVar[tuple[str, ...]] = (
        *PrivateBoundedPolicy.assumptions,
        "each reward is reported by its owner (policy.report, agent.tell_report); an agent that is "
        "told raw rewards keeps the decisions private, but its operator sees the rewards",
    )

    def report(self, reward: float) -> float:
        """What the owner of a reward sends in its place; fresh noise that is fit for release.

        Needs nothing but the policy's parameters. Each reward is reported once: a second report
        of the same reward costs epsilon again.
        """
        from balaclava.policies.agent import checked_reward

        kernel = type(self).report_kernel
        if kernel is None:
            raise NotImplementedError(f"{type(self).__name__} has no report_kernel")
        params = self.constants()
        prepared = self.prepare()(params, checked_reward(self, reward))
        return float(kernel(params, prepared, SystemRandomness()))
