"""A device that Python plays, one thread after the other: all of the engine but the compiler."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numba
import numpy as np
import pytest

import balaclava as bl
from balaclava.simulation.gpu import device, device_loop, launches, philox_draws
from balaclava.simulation.gpu.host_stream import HostStream


class OnDevice(np.ndarray):
    """An array that can be copied back."""

    def copy_to_host(self, stream: Any = None) -> np.ndarray:
        return np.array(self)


class Bank:
    """The memory of the device: what is free, the least that ever was, and what was given back."""

    def __init__(self, total: int) -> None:
        self.total = self.least = total
        self.changes: list[int] = []  # appended to by any thread

    @property
    def free(self) -> int:
        return self.total + sum(self.changes)

    @property
    def given_back(self) -> int:
        return sum(change > 0 for change in self.changes)

    def put(self, array: np.ndarray, stream: Any) -> np.ndarray:
        there = np.array(array).view(OnDevice)
        self.changes.append(-there.nbytes)
        self.least = min(self.least, self.free)
        weakref.finalize(there, self.changes.append, there.nbytes)
        return there


class Launcher:
    """A loop that is launched with blocks and threads."""

    def __init__(self, body: Callable[..., None], here: threading.local) -> None:
        self.body, self.here = body, here

    def __getitem__(self, shape: tuple[int, ...]) -> Callable[..., None]:
        def launch(*arguments: Any) -> None:
            self.here.threads = shape[1]
            for self.here.block in range(shape[0]):
                for self.here.thread in range(shape[1]):
                    self.body(*arguments)

        return launch


class Place:
    """The number of the block or of the thread, of the thread of Python that asks."""

    def __init__(self, here: threading.local, name: str) -> None:
        self.here, self.name = here, name

    @property
    def x(self) -> int:
        return int(getattr(self.here, self.name))


def driver(bank: Bank) -> ModuleType:
    """What the engine asks of `numba.cuda`."""
    here, cuda = threading.local(), ModuleType("numba.cuda")

    def jit(body: Any = None, device: bool = False, **_: Any) -> Any:
        if body is None:
            return lambda inner: jit(inner, device)
        return body if device else Launcher(body, here)

    def empty(shape: Any, kind: Any) -> np.ndarray:
        return np.empty(shape, np.dtype(str(kind)))

    parts = {
        "jit": jit,
        "blockIdx": Place(here, "block"),
        "threadIdx": Place(here, "thread"),
        "blockDim": Place(here, "threads"),
        "local": SimpleNamespace(array=empty),
        "shared": SimpleNamespace(array=empty),
        "to_device": bank.put,
        "stream": lambda: SimpleNamespace(synchronize=lambda: None),
        "event": lambda timing: SimpleNamespace(record=lambda stream: None, query=lambda: True),
        "current_context": lambda: SimpleNamespace(get_memory_info=lambda: (bank.free, bank.total)),
    }
    for name, part in parts.items():
        setattr(cuda, name, part)
    return cuda


def install(patch: pytest.MonkeyPatch, bank: Bank | None = None) -> None:
    """Let the engine find this device."""
    cuda, streams = (
        driver(bank or Bank(1 << 30)),
        ModuleType("balaclava.simulation.gpu.random_streams"),
    )
    streams.device_random = HostStream  # type: ignore[attr-defined]
    patch.setitem(sys.modules, streams.__name__, streams)
    patch.setitem(sys.modules, "numba.cuda", cuda)
    patch.setattr(numba, "cuda", cuda, raising=False)
    patch.setattr(device, "gpu_fault", lambda: "")
    patch.setattr(device_loop, "register_kernels", lambda: None)
    patch.setattr(device_loop, "_loops", {})
    patch.setattr(launches, "_POLL_SECONDS", 0.0)


def by_hand(
    policy: bl.Policy, world: bl.Environment, rounds: np.ndarray, repetition: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Regret at some rounds and pulls at the end: a game as `gpu.device_loop` describes it."""
    key, (begin, choose, learn, _) = device_loop.philox_key(seed), policy.kernels
    params, constants, prepare = policy.constants(), world.constants(), policy.prepare()
    state, total, pulls, history = begin(params), 0.0, np.zeros(policy.arms, np.int64), []
    scene = world.scene.open(constants)
    scene_rng = HostStream(key, (1 << 63) + repetition, philox_draws.new_stream())
    rng, world_rng = (
        HostStream(key, 2 * repetition + n, philox_draws.new_stream()) for n in (0, 1)
    )
    for t in range(1, int(rounds[-1]) + 1):
        world.scene.renew(scene, t, scene_rng)
        arm, phase = choose(params, state, t, world.advise(scene, t), rng)
        reward = world.draw(scene, t, arm, world_rng)
        learn(params, state, t, arm, prepare(params, reward), phase, rng)
        total += world.scene.score(scene, t, arm, reward)
        pulls[arm] += 1
        if t in rounds:
            history.append((pulls.copy(), total))
    past, totals = zip(*history, strict=True)
    return world.regret(rounds, np.array(past), np.array(totals)), pulls
