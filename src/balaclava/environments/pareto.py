"""Pareto rewards (the experiments of Tao, Wu, Zhao, Wang 2022)."""

import math
from typing import Annotated, Any, NamedTuple

import numpy as np

from balaclava._core.declared import PositiveMeans, Range
from balaclava._core.extras import import_extra
from balaclava._core.kernels import kernel
from balaclava.environments.base import Environment, checked_order, register

Shape = Annotated[float, Range(1, meaning="tail exponent; moments below it exist", open_low=True)]


class World(NamedTuple):
    least: np.ndarray  # the smallest reward of each arm
    inverse_shape: float


@kernel(borrows=True)
def draw(world: Any, t: int, arm: int, rng: Any) -> float:
    # -log(1 - U) is a standard exponential: this is least (1 - U)^(-1/shape), with no cut tail.
    return float(world.least[arm] * math.exp(world.inverse_shape * rng.standard_exponential()))


@register
class Pareto(Environment):
    """Pareto rewards: positive, with a heavy right tail; moments below `shape` exist.

    P(X > x) = (lam / x)^shape for x >= lam, with lam = (shape - 1) mean / shape. The raw moment is
    shape lam^k / (shape - k). With shape = 1.05 + v these are the arms on which Tao et al. compare,
    in section 6, policies that know a moment of order 1 + v.

    Example:
        >>> world = bl.environment("pareto", means=[0.9, 0.7, 0.5, 0.3, 0.1], shape=1.55)
        >>> round(world.moment(1.5), 4)
        5.5946
    """

    name = "pareto"
    reference = "Tao, Wu, Zhao, Wang 2022"
    see_also = "lognormal, student-t"
    draw = staticmethod(draw)
    examples = ({"shape": 1.55}, {"shape": 3.0})
    means: PositiveMeans
    shape: Shape

    @property
    def least(self) -> np.ndarray:
        """The smallest reward of each arm, lam."""
        return (self.shape - 1) * self.means / self.shape

    def constants(self) -> World:
        return World(self.least, 1 / self.shape)

    @property
    def reward_range(self) -> tuple[float, float]:
        return (float(self.least.min()), math.inf)

    def moments(self, order: float, *, central: bool = False) -> np.ndarray:
        k, a = checked_order(order), self.shape
        if k >= a:
            return np.full(self.arms, math.inf)
        if not central:
            return a * self.least**k / (a - k)
        special = import_extra("scipy.special", "a moment")
        # With u = lam / x, E|X - mean|^k = a lam^k times the integral of |1 - m u|^k u^(a-1-k) over
        # (0, 1), m = mean / lam: a beta function below u = 1/m, a hypergeometric one above.
        m = a / (a - 1)
        below = special.beta(a - k, k + 1)
        above = (m - 1) ** (k + 1) / (k + 1) * special.hyp2f1(k + 1 - a, k + 1, k + 2, 1 - m)
        return a * self.least**k * m ** (k - a) * (below + above)
