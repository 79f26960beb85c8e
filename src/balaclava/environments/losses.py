"""Given losses, round by round."""

from functools import cached_property
from typing import Annotated, Any

import numpy as np

from balaclava._core.declared import Range
from balaclava._core.kernels import kernel
from balaclava.environments.base import register
from balaclava.environments.loss_environment import LossEnvironment
from balaclava.environments.table import checked_losses

LossTable = Annotated[np.ndarray, Range(0, 1, "loss of each round and arm"), 2]


@kernel(borrows=True)
def draw(world: Any, t: int, arm: int, rng: Any) -> float:
    return float(world.losses[t - 1, arm])


@register
class Losses(LossEnvironment):
    """Given losses: one row per round, one column per arm.

    The oblivious adversary of the theory. Regret is the policy's loss minus that of the column that
    lost least so far, at every checkpoint.

    Parameters:
        losses: losses[T, K] in [0, 1]; row t is round t.

    Example:
        >>> world = bl.environment("losses", losses=[[0, 1], [1, 0.5], [0, 0.5]])
        >>> world.rounds, world.gaps.round(3).tolist()
        (3, [0.0, 0.333])
    """

    name = "losses"
    see_also = "switching, stochastic-losses, table"
    draw = staticmethod(draw)
    holds_data = True
    examples = ({"losses": [[0.0, 1.0, 0.5], [1.0, 1.0, 0.25], [0.0, 0.0, 1.0]]},)
    losses: LossTable

    def __post_init__(self) -> None:
        object.__setattr__(self, "losses", checked_losses(self._label("losses"), self.losses))
        super().__post_init__()

    def __repr__(self) -> str:
        return f"Losses(rounds={self.rounds}, arms={self.arms})"

    @cached_property
    def means(self) -> np.ndarray:
        return self.losses.mean(axis=0)

    @property
    def rounds(self) -> int:
        return int(self.losses.shape[0])

    @property
    def public_parameters(self) -> dict[str, Any]:
        return {"losses": f"withheld: {self.losses.size} losses"}

    def loss_rows(self, first: int, last: int) -> np.ndarray:
        return self.losses[first:last]
