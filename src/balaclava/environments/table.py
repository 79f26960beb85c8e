"""Given rewards, round by round; and checks of rewards and losses that a caller gives."""

from functools import cached_property
from typing import Annotated, Any

import numpy as np

from balaclava._core.declared import Range
from balaclava._core.kernels import kernel
from balaclava.environments.base import Environment, average_moment, checked_order, register
from balaclava.errors import ParameterError

Rewards = Annotated[np.ndarray, Range(meaning="reward of each round and arm"), 2]


@kernel(borrows=True)
def draw(world: Any, t: int, arm: int, rng: Any) -> float:
    return float(world.rewards[t - 1, arm])


@register
class Table(Environment):
    """Given rewards: one row per round, one column per arm.

    Use it if the reward of every arm is known in every round. Nothing is random. Regret is against
    the column with the largest mean over the whole table. Use `empirical` for a log, which has only
    the rewards of the arms played.

    Example:
        >>> world = bl.environment("table", rewards=[[0, 1], [1, 1], [0, 1]])
        >>> world.rounds, world.means.round(3).tolist()
        (3, [0.333, 1.0])
    """

    name = "table"
    see_also = "empirical, losses"
    draw = staticmethod(draw)
    holds_data = True
    examples = ({"rewards": [[0.0, 1.0, 0.5], [1.0, 1.0, 0.25], [0.0, 0.0, 3.0]]},)
    rewards: Rewards

    def __post_init__(self) -> None:
        # The check of Declared would repeat a reward in its message.
        rewards = checked_rewards(self._label("rewards"), self.rewards, 2)
        object.__setattr__(self, "rewards", rewards)
        super().__post_init__()

    def __repr__(self) -> str:
        return f"Table(rounds={self.rounds}, arms={self.arms})"

    @cached_property
    def means(self) -> np.ndarray:
        return self.rewards.mean(axis=0)

    @property
    def rounds(self) -> int:
        return int(self.rewards.shape[0])

    @property
    def public_parameters(self) -> dict[str, Any]:
        return {"rewards": f"withheld: {self.rewards.size} rewards"}

    @property
    def reward_range(self) -> tuple[float, float]:
        return (float(self.rewards.min()), float(self.rewards.max()))

    def moments(self, order: float, *, central: bool = False) -> np.ndarray:
        order = checked_order(order)
        return np.array([average_moment(arm, order, central=central) for arm in self.rewards.T])


def checked_rewards(label: str, values: Any, dimensions: int) -> np.ndarray:
    """Copy rewards as finite, read-only numbers; errors name a place, never a reward."""
    place = "row" if dimensions == 1 else "row and column"
    shape = "a list of numbers" if dimensions == 1 else "one row per round, one column per arm"
    try:
        rewards = np.array(values, dtype=np.float64, order="C")
    except (TypeError, ValueError):
        at = first_not_a_number(values)
        why = f"is not a number at {place} {at} (from 0)" if at else "is not an array of numbers"
        raise ParameterError(f"{label} {why}; give {shape}") from None
    if rewards.ndim != dimensions or rewards.size == 0:
        raise ParameterError(f"{label} has shape {rewards.shape}; give {shape}, not empty")
    what, advice = "is not finite", "remove or fill missing values"
    _refuse_where(~np.isfinite(rewards), f"{label} {what} at {place}", advice)
    rewards.flags.writeable = False
    return rewards


def checked_losses(label: str, values: Any) -> np.ndarray:
    """Check a table of losses in [0, 1]; errors name a place, never a loss."""
    losses = checked_rewards(label, values, 2)
    outside = f"{label} is outside [0, 1] at row and column"
    _refuse_where((losses < 0) | (losses > 1), outside, "rescale the losses")
    return losses


def _refuse_where(wrong: np.ndarray, what: str, advice: str) -> None:
    if wrong.any():
        at = ", ".join(str(i) for i in np.argwhere(wrong)[0])
        raise ParameterError(f"{what} {at} (from 0); {advice}")


def first_not_a_number(values: Any) -> str:
    """The indices of the first entry that is not a number; empty if the shape is wrong instead."""
    if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
        return ""
    for i, item in enumerate(values):
        if not isinstance(item, str | bytes) and hasattr(item, "__iter__"):
            deeper = first_not_a_number(item)
            if deeper:
                return f"{i}, {deeper}"
            continue
        try:
            float(item)
        except (TypeError, ValueError):
            return str(i)
    return ""
