"""Any bandit made to follow experts (Asi, Raman, Talwar 2025, Algorithm 5).

Experts are the arms of an inner bandit, which chooses an expert. The arm is drawn from that
expert's advice, and the inner bandit learns the loss as the expert's.

Proof: `experts_as_arms.proof.md` beside this file.
"""

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from balaclava._core.declared import Epsilon, Horizon
from balaclava._core.kernels import kernel
from balaclava._core.states import MOST_CHANCE, range_faults
from balaclava.errors import ParameterError
from balaclava.estimators.arm_probabilities import draw_arm
from balaclava.frames.pools import UNLEARNED
from balaclava.policies.adversarial import conversion
from balaclava.policies.base import Kernels
from balaclava.policies.expert_policies import PrivateExpertPolicy
from balaclava.policies.loss_policies import LOST_LOSS, LearningRateScale, Outstanding
from balaclava.policies.pooled_policies import HoldoutPolicy


class Params(NamedTuple):
    experts: int
    arms: int
    inner: Any


class State(NamedTuple):
    """State of the inner policy, and the last decision's advice, for its propensity."""

    inner: Any
    advised: np.ndarray  # [N]: advice for the last arm; within a batch only of the batch's expert

    def faults(self, decisions: int) -> Iterator[str]:
        yield from range_faults(0.0, MOST_CHANCE, advised=self.advised)


class ExpertEnvironment(NamedTuple):
    """The experts as an environment: arms with losses in [0, 1], for the inner regret bound."""

    feedback: str = "loss"
    experts: None = None
    reward_range: tuple[float, float] = (0.0, 1.0)


@kernel(borrows=True)
def note_advice(state: State, advice: np.ndarray, arm: int) -> None:
    """Keep the advice for the arm: of all experts if this decision opened a batch."""
    if state.inner.opened[0]:
        for expert in range(state.advised.size):
            state.advised[expert] = advice[expert, arm]
    else:
        expert = conversion.batch_arm(state.inner)
        state.advised[expert] = advice[expert, arm]


@functools.cache
def with_experts(
    begin: Callable[..., Any],
    choose: Callable[..., Any],
    learn: Callable[..., Any],
    forget: Callable[..., Any],
) -> Kernels:
    """Wrap the kernels of an inner policy. Cached, so that they are compiled once.

    The phase of a decision encodes the inner phase and the expert: phase N + expert.
    """

    @kernel
    def begin_inner(params: Params) -> State:
        return State(begin(params.inner), np.zeros(params.experts))

    @kernel(borrows=True)
    def choose_by_expert(
        params: Params, state: State, t: int, context: Any, rng: Any
    ) -> tuple[int, int]:
        expert, phase = choose(params.inner, state.inner, t, None, rng)
        if state.inner.held_out[0]:
            arm = int(rng.random() * params.arms)
        else:
            arm = draw_arm(context[expert], rng)
        note_advice(state, context, arm)
        if phase == UNLEARNED:
            return arm, UNLEARNED
        return arm, phase * params.experts + expert

    @kernel(borrows=True)
    def learn_of_expert(
        params: Params, state: State, t: int, arm: int, reward: float, phase: int, rng: Any
    ) -> None:
        if phase != UNLEARNED:
            inner, expert = phase // params.experts, phase % params.experts
            learn(params.inner, state.inner, t, expert, reward, inner, rng)

    @kernel(borrows=True)
    def forget_of_expert(
        params: Params, state: State, t: int, arm: int, phase: int, rng: Any
    ) -> None:
        if phase != UNLEARNED:
            inner, expert = phase // params.experts, phase % params.experts
            forget(params.inner, state.inner, t, expert, inner, rng)

    return Kernels(begin_inner, choose_by_expert, learn_of_expert, forget_of_expert)


class ExpertsAsArms(HoldoutPolicy, PrivateExpertPolicy):
    """Experts as the arms of a private bandit; subclasses define `inner`.

    Parameters:
        epsilon: privacy loss. Above 1 there is no bound on the regret.
        batch: tau; ceil(1/epsilon) by default.
    """

    lost_reward = LOST_LOSS

    @property
    def inner(self) -> conversion.ConvertedPolicy:
        raise NotImplementedError

    @functools.cached_property
    def kernels(self) -> Kernels:  # type: ignore[override]
        return with_experts(*self.inner.kernels)

    def constants(self) -> Params:
        return Params(self.experts, self.arms, self.inner.constants())

    def propensity(self, state: Any, arm: int) -> float | None:
        """Mean of the experts' advice, weighted by the base's probabilities of the experts.

        Within a batch the expert is known. The base decides by the releases and independent
        randomness. So the propensity reveals no more about losses than the releases do.
        """
        if not state.inner.opened[0]:
            return self.with_holdout(float(state.advised[conversion.batch_arm(state.inner)]))
        shares = self.inner.base_policy().chances(state.inner.base)
        return None if shares is None else self.with_holdout(float(shares @ state.advised))

    def proved_bound(self, environment: Any, horizon: int) -> float | None:
        """Theorem 4.1: the bound of the inner policy, with experts as arms."""
        rounds = self.horizon or horizon
        if horizon > rounds or not self.competes_in(environment):
            return None
        return self.inner.proved_bound(ExpertEnvironment(), horizon)

    def shared_parameters(self, inner: type[conversion.ConvertedPolicy]) -> dict[str, Any]:
        """This policy's parameters that the inner policy has too, with experts as arms."""
        shared = self.annotations.keys() & inner.annotations.keys()
        return {name: getattr(self, name) for name in shared} | {"arms": self.experts}

    def _try_inner(self) -> None:
        """Raise the inner policy's parameter errors in the name of this policy."""
        try:
            _ = self.inner
        except ParameterError as error:
            text = re.sub(r"^[\w-]+: ", "", str(error))
            raise ParameterError(f"{self.name}: {text}") from error


_EXPERT_SECTIONS = {
    "rule": """In each batch of tau rounds one expert is followed: the arm of each round is drawn
    from that expert's advice of the round. Then {base} learns from the mean of the batch's losses
    + Lap(1 / (tau epsilon)) as the loss of the expert.""",
    "played": """>>> pulls = [0, 0]
        >>> for _ in range(2000):
        ...     decision = agent.ask([[1, 0], [0.5, 0.5], [0, 1]])
        ...     agent.tell(decision, reward=(0.9, 0.2)[decision.arm])
        ...     pulls[decision.arm] += 1
        >>> pulls""",
}


class ConvertedExpertPolicy(ExpertsAsArms):
    """A conversion with the parameters of the theory; subclasses set `inner_class`.

    Privacy:
        epsilon-differential privacy of the whole trajectory with respect to the losses, as for the
        same conversion of arms. Advice is public: see `balaclava.policies.experts.experts_as_arms`.

    Parameters:
        horizon: number of rounds, at least tau.
        learning_rate_scale: multiplies the learning rate of the base; never affects privacy.
    """

    reference = "Asi, Raman, Talwar 2025"
    docstring_sections: ClassVar[Mapping[str, str]] = _EXPERT_SECTIONS
    inner_class: ClassVar[type[conversion.TunedPolicy]]
    horizon: Horizon
    epsilon: Epsilon
    batch: conversion.Batch | None = None
    outstanding: Outstanding = 4096
    learning_rate_scale: LearningRateScale = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._try_inner()

    @classmethod
    def base_name(cls) -> str:
        return cls.inner_class.base_name()

    @functools.cached_property
    def inner(self) -> conversion.ConvertedPolicy:
        return self.inner_class(**self.shared_parameters(self.inner_class))
