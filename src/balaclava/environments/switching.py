"""Constant losses that change once (Asi, Raman, Talwar 2025, Lemma 5.1)."""

from typing import Annotated, Any

import numpy as np

from balaclava._core.declared import Horizon, Range
from balaclava._core.kernels import kernel
from balaclava.environments.base import register
from balaclava.environments.loss_environment import LossEnvironment

Vector = Annotated[np.ndarray, Range(0, 1, "loss of each arm"), 1]


@kernel(borrows=True)
def draw(world: Any, t: int, arm: int, rng: Any) -> float:
    return float(world.before[arm]) if t <= world.switch else float(world.after[arm])


@register
class Switching(LossEnvironment):
    """Constant losses up to round `switch`, and other constant losses after it.

    Two arms with losses (1/2, 1) that turn to (1/2, 0) are hard for a policy that commits early: it
    never sees the dropped arm improve. Nothing is random.

    Parameters:
        switch: the last round with the losses `before`, from 0 to horizon.
        before: the loss of each arm up to then.
        after: the loss of each arm from then on.

    Example:
        >>> world = bl.environment("switching", horizon=100, switch=40, before=[0.5, 1],
        ...                        after=[0.5, 0])
        >>> world.means.tolist()
        [0.5, 0.4]
    """

    name = "switching"
    reference = "Asi, Raman, Talwar 2025"
    see_also = "losses, stochastic-losses"
    draw = staticmethod(draw)
    examples = ({"switch": 100, "before": [0.5, 1.0], "after": [0.5, 0.0]},)
    horizon: Horizon
    switch: Annotated[int, Range(0, meaning="last round before the change")]
    before: Vector
    after: Vector

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.switch > self.horizon:
            raise self.refuse("switch", f"is after the last round; give 0 to {self.horizon}")
        if self.before.size != self.after.size:
            raise self.refuse("after", f"does not fit {self.before.size} arms; give one per arm")

    @property
    def means(self) -> np.ndarray:
        return self.arm_losses(np.array([self.horizon]))[0] / self.horizon

    @property
    def arms(self) -> int:
        return int(self.before.size)

    @property
    def rounds(self) -> int:
        return self.horizon

    def loss_rows(self, first: int, last: int) -> np.ndarray:
        late = np.arange(first + 1, last + 1)[:, None] > self.switch
        return np.where(late, self.after, self.before)

    def arm_losses(self, rounds: np.ndarray) -> np.ndarray:
        early = np.minimum(rounds, self.switch)
        return np.outer(early, self.before) + np.outer(rounds - early, self.after)
