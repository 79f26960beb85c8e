"""Base classes of policies that follow experts."""

import functools
from typing import Any, ClassVar

import numpy as np

from balaclava._core.declared import Experts
from balaclava.errors import ContextError
from balaclava.estimators.expert_weights import advice_fault, as_advice
from balaclava.policies.base import Policy, RewardKind
from balaclava.policies.loss_policies import PrivateLossPolicy, gives_unit_losses
from balaclava.privacy.guarantee import Model, Scope

ADVICE_IS_PUBLIC = (
    "advice counts as public: it is not protected, and does not depend on any loss except through "
    "released values and decisions"
)


class ExpertPolicy(Policy):
    """A policy that takes advice[expert, arm] with each decision and learns from losses.

    Each row of the advice is an expert's distribution over the arms. Regret is against the expert
    whose advice would have lost least.
    """

    rewards: ClassVar[RewardKind] = "loss"
    fixed_arms = "its experts advise on a fixed set of arms"
    experts: Experts

    def checked_context(self, context: Any) -> np.ndarray:
        """Check the advice, and return it as an array."""
        needed = (
            f"give {self.name} advice of {self.experts} rows, one an expert, each a distribution "
            f"over {self.arms} arms: ask(advice)"
        )
        if context is None:
            raise ContextError(f"the advice is missing; {needed}")
        advice = as_advice(context)
        if advice is None or advice.ndim != 2:
            shape = "" if advice is None else f" of shape {advice.shape}"
            raise ContextError(f"a {type(context).__name__}{shape} is not advice; {needed}")
        if fault := advice_fault(advice, self.experts, self.arms):
            raise ContextError(f"the advice {fault}; {needed}")
        return advice

    def competes_in(self, environment: Any) -> bool:
        """Whether the environment has as many experts and losses in [0, 1]; None counts as yes."""
        if environment is None:
            return True
        return bool(environment.experts == self.experts and gives_unit_losses(environment))

    @property
    def practice_context(self) -> np.ndarray:
        """Advice of experts that are certain, lean to an arm, or are undecided."""
        return practice_advice(self.experts, self.arms)


class PrivateExpertPolicy(ExpertPolicy, PrivateLossPolicy):
    """A policy that protects losses in [0, 1] over the whole trajectory; advice is public."""

    model: ClassVar[Model] = "central"
    scope: ClassVar[Scope] = "trajectory"
    assumptions: ClassVar[tuple[str, ...]] = (ADVICE_IS_PUBLIC,)


@functools.cache
def practice_advice(experts: int, arms: int) -> np.ndarray:
    """advice[N, K]: expert 0 is certain of arm 0, the others lean to an arm or are undecided.

    The others give every arm a chance, so each loss affects all of them: an audit then sees the
    full privacy loss.
    """
    even = np.full((1, arms), 1.0 / arms)
    rows = np.vstack([0.5 * np.eye(arms) + 0.5 * even, even])
    advice = rows[np.arange(experts) % (arms + 1)]
    advice[0] = np.eye(arms)[0]
    advice.flags.writeable = False
    return advice
