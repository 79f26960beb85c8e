"""Any bandit made to follow experts (Asi, Raman, Talwar 2025, Algorithm 5).

Experts are the arms of an inner bandit. It names an expert, the arm is drawn from that expert's
advice, and its loss is told to the inner bandit as the loss of the expert.

Proof.
    If the inner policy protects the losses it is told, so does this one: a changed loss changes
    one loss of the inner policy, and the arm is drawn from the expert's public advice, without
    another look at the losses. The advice itself is not protected, although the paper says so:
    the arm of a round is drawn from the advice of that very round.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np

from balaclava._core.declared import Epsilon, Horizon
from balaclava._core.kernels import kernel
from balaclava.errors import ParameterError
from balaclava.estimators.arm_probabilities import draw_arm
from balaclava.frames.pools import UNLEARNED
from balaclava.policies.adversarial.conversion import (
    Batch,
    ConvertedPolicy,
    TunedPolicy,
    arm_of_batch,
)
from balaclava.policies.base import Kernels
from balaclava.policies.expert_advice import PrivateExpertPolicy
from balaclava.policies.holdout import HoldoutPolicy
from balaclava.policies.losses import LOST_LOSS, LearningRateScale, Outstanding


class Params(NamedTuple):
    """What the kernels need."""

    experts: int
    arms: int
    inner: Any


class Following(NamedTuple):
    """The inner policy, and what the chance of the last decision's arm follows from."""

    inner: Any
    advised: np.ndarray  # [N]: advice for that arm; within a batch only of the expert in play


class Rivals(NamedTuple):
    """The experts as the inner policy's regret bound sees them: arms with losses in [0, 1]."""

    feedback: str = "loss"
    experts: None = None
    reward_range: tuple[float, float] = (0.0, 1.0)


@kernel(borrows=True)
def note_advice(state: Following, advice: np.ndarray, arm: int) -> None:
    """Keep the advice for the arm: of all experts where one of them was chosen just now."""
    if state.inner.opened[0]:
        for expert in range(state.advised.size):
            state.advised[expert] = advice[expert, arm]
    else:
        expert = arm_of_batch(state.inner)
        state.advised[expert] = advice[expert, arm]


@functools.cache
def with_experts(
    begin: Callable[..., Any],
    choose: Callable[..., Any],
    learn: Callable[..., Any],
    forget: Callable[..., Any],
) -> Kernels:
    """The kernels around those of an inner policy; the same each time, so they compile once.

    The phase of a decision carries both the inner phase and the expert: phase N + expert.
    """

    @kernel
    def begin_inner(params: Params) -> Following:
        return Following(begin(params.inner), np.zeros(params.experts))

    @kernel(borrows=True)
    def choose_by_expert(
        params: Params, state: Following, t: int, context: Any, rng: Any
    ) -> tuple[int, int]:
        expert, phase = choose(params.inner, state.inner, t, None, rng)
        if state.inner.held[0]:
            arm = int(rng.random() * params.arms)
        else:
            arm = draw_arm(context[expert], rng)
        note_advice(state, context, arm)
        if phase == UNLEARNED:
            return arm, UNLEARNED
        return arm, phase * params.experts + expert

    @kernel(borrows=True)
    def learn_of_expert(
        params: Params, state: Following, t: int, arm: int, reward: float, phase: int, rng: Any
    ) -> None:
        if phase != UNLEARNED:
            inner, expert = phase // params.experts, phase % params.experts
            learn(params.inner, state.inner, t, expert, reward, inner, rng)

    @kernel(borrows=True)
    def forget_of_expert(
        params: Params, state: Following, t: int, arm: int, phase: int, rng: Any
    ) -> None:
        if phase != UNLEARNED:
            inner, expert = phase // params.experts, phase % params.experts
            forget(params.inner, state.inner, t, expert, inner, rng)

    return Kernels(begin_inner, choose_by_expert, learn_of_expert, forget_of_expert)


class ExpertsAsArms(HoldoutPolicy, PrivateExpertPolicy):
    """Experts as the arms of a private bandit. A subclass says which: `inner`."""

    lost_reward: ClassVar[str] = LOST_LOSS

    @property
    def inner(self) -> ConvertedPolicy:
        """The private policy whose arms are the experts."""
        raise NotImplementedError

    @functools.cached_property
    def kernels(self) -> Kernels:  # type: ignore[override]
        return with_experts(*self.inner.kernels)

    def constants(self) -> Params:
        return Params(self.experts, self.arms, self.inner.constants())

    def propensity(self, state: Any, arm: int) -> float | None:
        """By the experts' advice, each by the chance with which the base chose the expert.

        Within a batch it is known whose advice is followed. The base decides by what was released
        and by its own randomness, so that neither tells of losses more than the releases do.
        """
        if not state.inner.opened[0]:
            return self.with_holdout(float(state.advised[arm_of_batch(state.inner)]))
        shares = self.inner.base_policy().chances(state.inner.base)
        return None if shares is None else self.with_holdout(float(shares @ state.advised))

    def proved_bound(self, environment: Any, horizon: int) -> float | None:
        """Theorem 4.1: that of the inner policy, with experts for arms."""
        rounds = self.horizon or horizon
        if horizon > rounds or not self.competes_in(environment):
            return None
        return self.inner.proved_bound(Rivals(), horizon)

    def _try_inner(self) -> None:
        """Let the inner policy refuse what it does not take, in the name of this one."""
        try:
            _ = self.inner
        except ParameterError as error:
            text = re.sub(r"^[\w-]+: ", "", str(error))
            raise ParameterError(f"{self.name}: {text}") from error


class ConvertedExpertPolicy(ExpertsAsArms):
    """A conversion with the parameters that the theory asks for: `inner_class`."""

    inner_class: ClassVar[type[TunedPolicy]]
    horizon: Horizon
    epsilon: Epsilon
    batch: Batch | None = None
    outstanding: Outstanding = 4096
    learning_rate_scale: LearningRateScale = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._try_inner()

    @functools.cached_property
    def inner(self) -> ConvertedPolicy:
        names = (
            "horizon",
            "epsilon",
            "batch",
            "outstanding",
            "learning_rate_scale",
            "outside",
            "holdout",
        )
        return self.inner_class(arms=self.experts, **{name: getattr(self, name) for name in names})
