"""Given rewards, round by round."""

from functools import cached_property
from typing import Annotated, Any

import numpy as np

from balaclava._core.declared import Range
from balaclava._core.kernels import kernel
from balaclava.environments.base import Environment, average_moment, checked_order, register
from balaclava.environments.given_rewards import checked_rewards

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

    See Also:
        empirical, losses
    """

    name = "table"
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
