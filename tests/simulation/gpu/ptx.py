"""Kernels compiled to PTX on a machine that has no GPU: all but the run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

import balaclava as bl
from balaclava.simulation.gpu.engine import make_play, set_up


class Hopper(NamedTuple):
    """What the compiler asks of a device."""

    compute_capability: tuple[int, int] = (9, 0)


@contextmanager
def pretended_device() -> Iterator[None]:
    """numba-cuda asks the current device for its capability while it compiles."""
    from numba.cuda import dispatcher

    asked = dispatcher.get_current_device
    dispatcher.get_current_device = Hopper
    try:
        yield
    finally:
        dispatcher.get_current_device = asked


def to_ptx(policy: bl.Policy, environment: bl.Environment) -> str:
    """The loop of a pair in NVIDIA's assembly."""
    from numba import cuda
    from numba.cuda import types
    from numba.cuda.typing.typeof import typeof

    play = make_play(policy, environment)
    games = set_up(policy, environment, 2, np.ascontiguousarray)
    kinds = [types.uint64, types.int64, types.int64, types.int64, *map(typeof, games)]
    with pretended_device():
        text, _ = cuda.compile(
            play,
            types.void(*kinds),
            device=False,
            cc=Hopper().compute_capability,
            output="ptx",
            abi="numba",
        )
    return str(text)
