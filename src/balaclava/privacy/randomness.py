"""Where an agent's random numbers come from."""

from __future__ import annotations

import os
from typing import Any

import numpy as np


def seeded(seed: int, *path: int) -> np.random.Generator:
    """The reproducible stream of a seed; `path` names a sub-stream (repetition, role).

    SFC64 is the fastest of numpy's bit generators in the compiled loop.
    """
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(seed, spawn_key=path)))


class SystemRandomness:
    """The methods of a numpy `Generator`, each call answered from fresh operating-system entropy.

    Nothing is kept between calls: there is no state to seed, to save, to share between threads or
    to inherit through a fork.
    """

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_") or method in ("release", "bit_generator", "spawn"):
            raise AttributeError(method)
        entropy = np.random.SeedSequence(int.from_bytes(os.urandom(32)), pool_size=8)
        return getattr(np.random.Generator(np.random.SFC64(entropy)), method)

    def __repr__(self) -> str:
        return "SystemRandomness()"
