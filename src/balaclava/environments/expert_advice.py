"""Losses with the advice of experts."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.kernels import kernel
from balaclava.environments.base import ENVIRONMENTS, Environment, attribute, register
from balaclava.environments.loss_environment import LossEnvironment, sums_at
from balaclava.environments.losses import Losses
from balaclava.estimators.expert_weights import advice_fault, as_advice


class World(NamedTuple):
    inner: Any
    advice: np.ndarray


@kernel
def same_advice(world: Any, t: int) -> np.ndarray:
    return world.advice


@kernel
def advice_of_round(world: Any, t: int) -> np.ndarray:
    return world.advice[t - 1]


@functools.cache
def draw_inner(inner: Callable[..., float]) -> Callable[..., float]:
    """The kernel of the losses; cached, so that it is compiled once."""

    @kernel(borrows=True)
    def draw(world: Any, t: int, arm: int, rng: Any) -> float:
        return inner(world.inner, t, arm, rng)

    return draw


@register
class Advice(LossEnvironment):
    """Losses of arms, and experts that advise how to choose among them.

    In each round every expert gives a distribution over the arms, which a policy gets as the
    context of its decision. Regret is the policy's loss minus that of the best expert in
    hindsight. Advice is public: policies do not protect it.

    Parameters:
        losses: losses[T, K] in [0, 1], an environment of losses, or a mapping with its `name` and
            parameters.
        advice: advice[N, K], the same in every round, or advice[T, N, K]; rows are distributions.

    Example:
        >>> world = bl.environment("advice", losses=[[0, 1], [1, 0]],
        ...                        advice=[[1, 0], [0.5, 0.5], [0, 1]])
        >>> world.experts, world.arms, world.rounds
        (3, 2, 2)
    """

    name = "advice"
    reference = "Asi, Raman, Talwar 2025"
    see_also = "losses, stochastic-losses, exp4"
    examples = (
        {
            "losses": {"name": "stochastic-losses", "means": [0.2, 0.7]},
            "advice": [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]],
        },
        {
            "losses": [[0.0, 1.0], [1.0, 0.5]],
            "advice": [[[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [0.25, 0.75]]],
        },
    )
    losses: LossEnvironment
    advice: np.ndarray
    means, arms = attribute("losses.means"), attribute("losses.arms")
    holds_data, own_losses = attribute("losses.holds_data"), attribute("losses.own_losses")
    loss_rows, arm_losses = attribute("losses.loss_rows"), attribute("losses.arm_losses")

    def __post_init__(self) -> None:
        losses: Any = self.losses
        if isinstance(losses, Mapping):
            losses = ENVIRONMENTS.from_mapping(self._label("losses"), losses)
        elif not isinstance(losses, Environment):
            losses = Losses(losses=losses)
        if not isinstance(losses, LossEnvironment):
            why = f"= {losses.name} returns rewards; give an environment of losses"
            raise self.refuse_data("losses", why)
        object.__setattr__(self, "losses", losses)
        advice = as_advice(self.advice)
        if advice is None or advice.ndim > 3:
            why = "is not an array of numbers; give advice[N, K] or advice[T, N, K]"
            raise self.refuse_data("advice", why)
        if fault := advice_fault(advice, None, losses.arms):
            raise self.refuse_data("advice", fault)
        object.__setattr__(self, "advice", advice)
        if advice.ndim == 3 and self.rounds is not None and advice.shape[0] < self.rounds:
            raise self.refuse_data(
                "advice",
                f"is for {advice.shape[0]} rounds; give advice for all {self.rounds} rounds of the "
                "losses, or advice[N, K] for every round",
            )

    def __repr__(self) -> str:
        return f"Advice(losses={self.losses!r}, experts={self.experts})"

    def constants(self) -> World:
        return World(self.losses.constants(), self.advice)

    @property
    def parameters(self) -> dict[str, Any]:
        inner = {"name": self.losses.name, **self.losses.parameters}
        return {"losses": inner, "advice": self.advice.tolist()}

    @property
    def public_parameters(self) -> dict[str, Any]:
        inner = {"name": self.losses.name, **self.losses.public_parameters}
        return {**self.parameters, "losses": inner}

    @property
    def experts(self) -> int:
        return int(self.advice.shape[-2])

    @property
    def advise(self) -> Callable[..., Any]:
        return same_advice if self.advice.ndim == 2 else advice_of_round

    @property
    def draw(self) -> Callable[..., float]:
        return draw_inner(self.losses.draw)

    @property
    def rounds(self) -> int | None:
        if self.losses.rounds is not None:
            return self.losses.rounds
        return int(self.advice.shape[0]) if self.advice.ndim == 3 else None

    def expert_losses(self, rounds: np.ndarray) -> np.ndarray:
        """losses[i, expert]: the loss of following each expert in the first rounds[i] rounds."""
        if self.advice.ndim == 2:
            return self.arm_losses(rounds) @ self.advice.T

        def rows(first: int, last: int) -> np.ndarray:
            return np.einsum("tnk,tk->tn", self.advice[first:last], self.loss_rows(first, last))

        return sums_at(rounds, rows)

    def regret(self, rounds: np.ndarray, pulls: np.ndarray, totals: np.ndarray) -> np.ndarray:
        """The policy's loss minus that of the best expert in hindsight, over the same rounds."""
        return self.own_losses(pulls, totals) - self.expert_losses(rounds).min(axis=1)
