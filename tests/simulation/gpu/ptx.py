"""Kernels compiled to PTX on a machine that has no GPU: all but the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

import balaclava as bl
from balaclava.auditing.games.device_games import make_count, state_of
from balaclava.auditing.scenario import plain_scenario
from balaclava.simulation.gpu import philox_draws
from balaclava.simulation.gpu.device_loop import (
    first_policy,
    make_device_play,
    register_kernels,
    set_up,
)
from balaclava.simulation.gpu.device_states import map_arrays, state_access


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


def to_ptx(policy: bl.Policy, environment: bl.Environment, pairs: int = 1) -> str:
    """The loop of a pair, or of several alike, in NVIDIA's assembly."""
    policy = first_policy(policy, environment)
    games = set_up(pairs * [(policy, environment)], pairs * [0], 2, np.ascontiguousarray)
    play = make_device_play(policy, environment, pairs > 1)
    return compiled_to_ptx(play, 2, 1, 1, 0, 0, 0, *games)


def audit_to_ptx(policy: bl.Policy) -> str:
    """The loop of an audit's games in NVIDIA's assembly."""
    origin = state_of(policy)
    states = map_arrays(origin, lambda array: np.stack([array, array], axis=-1))
    life = plain_scenario(policy, np.zeros((2, policy.arms)))
    contexts = np.zeros(1) if life.contexts is None else np.ascontiguousarray(life.contexts)
    histogram = np.zeros((1, 3, 2, 1, 3), np.uint64)
    probes, faults = np.array([2]), np.zeros(1, np.int64)
    fixed = policy.constants(), contexts, life.rewards, 1, probes, origin, states
    return compiled_to_ptx(make_count(policy), np.uint64(0), 0, 1, *fixed, histogram, faults)


def compiled_to_ptx(loop: Callable[..., None], *arguments: Any) -> str:
    """A loop, for arguments of these types."""
    from numba import cuda
    from numba.cuda import types
    from numba.cuda.typing.typeof import typeof

    with pretended_device():
        text, _ = cuda.compile(
            loop,
            types.void(*map(typeof, arguments)),
            device=False,
            cc=Hopper().compute_capability,
            output="ptx",
            abi="numba",
        )
    return str(text)


def counter_of_tails(law: str) -> Callable[..., None]:
    """A loop on the device that counts draws beyond limits: of Laplace, normal or beta noise."""
    from numba import cuda, uint64

    register_kernels()
    laplace, normal, beta = philox_draws.laplace, philox_draws.normal, philox_draws.beta
    is_laplace, is_normal = law == "laplace", law == "normal"
    view = state_access(philox_draws.new_stream(), 64).view

    def count(draws: int, low: Any, high: Any, memories: Any, counts: Any) -> None:
        thread = cuda.grid(1)
        memory = view(memories, thread)
        for _ in range(draws):
            if is_laplace:
                x = laplace(uint64(7), uint64(thread), memory, 0.0, 1.0)
            elif is_normal:
                x = normal(uint64(7), uint64(thread), memory)
            else:
                x = beta(uint64(7), uint64(thread), memory, 2.5, 40.0)
            for i in range(low.size):
                if x < low[i] or x > high[i]:
                    cuda.atomic.add(counts, i, 1)

    return count
