"""The device's `rng` in Python, for what the host does to a game between two launches."""

from collections.abc import Callable
from typing import Any

import numpy as np

from balaclava.simulation.gpu import philox_draws

HOST_DRAWS: dict[str, Callable[..., Any]] = {
    "random": philox_draws.uniform,
    "integers": philox_draws.integer,
    "laplace": philox_draws.laplace,
    "standard_exponential": philox_draws.exponential,
    "standard_normal": philox_draws.normal,
    "standard_gamma": philox_draws.gamma,
    "beta": philox_draws.beta,
}


class HostStream:
    """numpy's names for the draws of `philox_draws`; the state in memory is changed in place."""

    def __init__(self, key: Any, place: int, memory: philox_draws.PhiloxState) -> None:
        self.origin = np.uint64(key), np.uint64(place), memory

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in HOST_DRAWS:
            raise AttributeError(name)
        return lambda *arguments: HOST_DRAWS[name](*self.origin, *arguments)
