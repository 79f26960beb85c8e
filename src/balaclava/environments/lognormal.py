"""Lognormal rewards."""

import math
from typing import Annotated, Any, NamedTuple

import numpy as np

from balaclava._core.declared import PositiveMeans, Range
from balaclava._core.kernels import kernel
from balaclava.environments.base import Environment, checked_order, integral, register

Sigma = Annotated[float, Range(0, meaning="standard deviation of log X", open_low=True)]


class World(NamedTuple):
    locations: np.ndarray  # mean of log X, for each arm
    sigma: float


@kernel(borrows=True)
def draw(world: Any, t: int, arm: int, rng: Any) -> float:
    return math.exp(world.locations[arm] + world.sigma * rng.standard_normal())


@register
class LogNormal(Environment):
    """Lognormal rewards: positive and skewed, like prices and durations; every moment exists.

    X = exp(m + sigma Z) with m = log(mean) - sigma^2 / 2, so that E X = mean. The raw moment is
    mean^k exp(k (k - 1) sigma^2 / 2); the central one is integrated.

    Parameters:
        means: the mean of each arm (not of its logarithm), above 0.

    Example:
        >>> round(bl.environment("lognormal", means=[1, 2], sigma=0.5).moment(2), 6)
        5.136102
    """

    name = "lognormal"
    see_also = "pareto"
    reward_range = (0.0, math.inf)
    draw = staticmethod(draw)
    examples = ({"sigma": 1.0},)
    means: PositiveMeans
    sigma: Sigma

    def constants(self) -> World:
        return World(np.log(self.means) - self.sigma**2 / 2, self.sigma)

    def moments(self, order: float, *, central: bool = False) -> np.ndarray:
        k = checked_order(order)
        with np.errstate(over="ignore"):  # a moment beyond the largest float is inf
            if central:
                return self.means**k * relative_central_moment(self.sigma, k)
            return self.means**k * np.exp(k * (k - 1) * self.sigma**2 / 2)


def relative_central_moment(sigma: float, order: float) -> float:
    """E|X / mean - 1|^order, the same for every mean."""
    kink = sigma / 2  # where X = mean
    growth = order * max(order - 1, 0.0) * sigma**2 / 2  # taken out, so that nothing overflows

    def weighted(z: float) -> float:
        excess = sigma * (z - kink)
        if excess > 1.0:  # log(e^x - 1) without overflow
            log_distance = excess + math.log1p(-math.exp(-excess))
        else:
            distance = abs(math.expm1(excess))
            log_distance = math.log(distance) if distance > 0.0 else -math.inf
        return math.exp(order * log_distance - z * z / 2 - growth)

    # The normal density peaks at 0 and its product with X^order at order * sigma.
    peaks = (0.0, kink, order * sigma)
    edges = np.arange(min(peaks) - 40.0, max(peaks) + 40.0, 4.0)
    area = integral(weighted, [*edges.tolist(), kink])
    with np.errstate(over="ignore"):
        return float(np.exp(growth) * area / math.sqrt(2 * math.pi))
