"""Student's t rewards."""

import math
from typing import Annotated, Any

import numpy as np

from balaclava._core.declared import Means, Range
from balaclava._core.extras import import_extra
from balaclava._core.kernels import kernel
from balaclava.environments.base import Environment, checked_order, integral, register

Degrees = Annotated[float, Range(1, meaning="degrees of freedom", open_low=True)]
Scale = Annotated[float, Range(0, meaning="multiplies the standard law", open_low=True)]


@kernel(borrows=True)
def draw(world: Any, t: int, arm: int, rng: Any) -> float:
    return float(world.means[arm] + world.scale * rng.standard_t(world.degrees))


@register
class StudentT(Environment):
    """Student's t rewards: heavy tails on both sides; moments below `degrees` exist.

    X = mean + scale T, where T has `degrees` degrees of freedom. The central moment is
    scale^k degrees^{k/2} Gamma((k+1)/2) Gamma((degrees-k)/2) / (sqrt(pi) Gamma(degrees/2)); the
    raw one is integrated.

    Parameters:
        scale: multiplies the standard law; it is not the standard deviation.

    Example:
        >>> world = bl.environment("student-t", means=[0, 1], degrees=3)
        >>> round(world.moment(2, central=True), 6)
        3.0
    """

    name = "student-t"
    see_also = "gaussian, pareto"
    reward_range = (-math.inf, math.inf)
    draw = staticmethod(draw)
    examples = ({"degrees": 1.5}, {"degrees": 4.0, "scale": 2.0})
    means: Means
    degrees: Degrees
    scale: Scale = 1.0

    def moments(self, order: float, *, central: bool = False) -> np.ndarray:
        order = checked_order(order)
        if order >= self.degrees:
            return np.full(self.arms, math.inf)
        shifts = np.zeros(self.arms) if central else np.abs(self.means) / self.scale
        standard = {shift: shifted_moment(shift, self.degrees, order) for shift in set(shifts)}
        return self.scale**order * np.array([standard[shift] for shift in shifts])


def shifted_moment(shift: float, degrees: float, order: float) -> float:
    """E|shift + T|^order for shift >= 0 and order < degrees."""
    special = import_extra("scipy.special", "a moment")
    if shift == 0.0:
        # Gamma((degrees - k)/2) / Gamma(degrees/2) is a beta function over Gamma(k/2).
        ratio = special.beta((degrees - order) / 2, order / 2) * special.poch(order / 2, 0.5)
        with np.errstate(over="ignore"):  # a moment beyond the largest float is inf
            return float(np.float64(degrees) ** (order / 2) * ratio / math.sqrt(math.pi))
    constant = 1 / float(math.sqrt(degrees) * special.beta(0.5, degrees / 2))
    far = 10 * max(shift, 1.0)

    def near(t: float) -> float:
        log_density = -(degrees + 1) / 2 * math.log1p(t * t / degrees)
        distances = (t + shift, abs(t - shift))
        return sum(math.exp(log_density + order * math.log(d)) for d in distances if d > 0.0)

    def tail(z: float) -> float:  # t = far e^{z / (degrees - order)}: it falls like e^{-z}
        inverse = math.exp(-z / (degrees - order)) / far
        log_rest = (order - degrees) * math.log(far) - z
        log_rest -= (degrees + 1) / 2 * math.log(1 / degrees + inverse * inverse)
        sides = (1 + shift * inverse) ** order + (1 - shift * inverse) ** order
        return float(math.exp(log_rest) * sides / (degrees - order))

    # T is within a few units of 0 for any shift: one edge per power of 10.
    powers = 10.0 ** np.arange(math.ceil(math.log10(far)))
    try:
        body = integral(near, [0.0, shift, *powers.tolist(), far])
        return constant * (body + integral(tail, [0.0, 1.0, 10.0, 100.0]))
    except OverflowError:
        return math.inf  # beyond the largest float
