"""The games of the statistical audit on a GPU: the same counts, from streams of their own.

One thread plays one game, and a launch as many as there are threads; states begin anew in each.
Draws of a GPU make no private claim; here they only test one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from balaclava.auditing.games import WATCHED, context_of_round, no_context
from balaclava.auditing.lives import plain_life
from balaclava.errors import no_such_arm
from balaclava.policies.base import Policy
from balaclava.simulation.gpu.engine import THREADS, key_of, make_kernels_known, view_on_device
from balaclava.simulation.gpu.laws import WORDS
from balaclava.simulation.gpu.state import bytes_of, mapped

_AT_ONCE = 1 << 18  # games
_MEMORY = 8e9  # bytes of all their states

_loops: dict[tuple[Any, ...], Any] = {}


def make_count(policy: Policy) -> Callable[..., None]:
    """The loop of one game, closed over a policy's kernels."""
    from numba import cuda, int64, uint64

    from balaclava.simulation.gpu.random import device_random

    choose, learn, prepare = policy.kernels.choose, policy.kernels.learn, policy.prepare()
    context = no_context if policy.practice_context is None else context_of_round
    view = view_on_device(policy)
    make_kernels_known()

    def count(
        key: Any,  # of the seed
        first: int,  # number of the first game
        games: int,
        params: Any,
        contexts: Any,
        rewards: Any,
        place: int,
        probes: Any,
        states: Any,
        histogram: Any,
        faults: Any,
    ) -> None:
        game = cuda.grid(1)
        if game >= games:
            return
        memory = cuda.local.array(WORDS, uint64)
        pulls = cuda.local.array(WATCHED, int64)
        for word in range(WORDS):
            memory[word] = 0
        for arm in range(WATCHED):
            pulls[arm] = 0
        rng = device_random(key, uint64(first + game), memory)
        state = view(states, game)
        watched, probe, branch = histogram.shape[1], 0, 0
        for i in range(rewards.shape[0]):
            arm, phase = choose(params, state, i + 1, context(contexts, i), rng)
            if arm < 0 or arm >= rewards.shape[1]:
                faults[0] = i + 1
                return
            reward = prepare(params, rewards[i, arm])
            learn(params, state, i + 1, arm, reward, phase, rng)
            if arm < watched:
                pulls[arm] += 1
            if i + 1 == place:
                branch = min(arm, watched)
            if probe < probes.size and i + 1 == probes[probe]:
                for each in range(watched):
                    cuda.atomic.add(histogram, (branch, each, probe, pulls[each]), 1)
                probe += 1

    return count


def make_spread() -> Callable[..., None]:
    """The loop that gives each game its state at the beginning; states[element, game]."""
    from numba import cuda

    def spread(origin: Any, states: Any) -> None:
        i = cuda.grid(1)
        element = i // states.shape[1]
        if element < states.shape[0]:
            states[element, i % states.shape[1]] = origin[element]

    return spread


def _loops_of(policy: Policy) -> tuple[Any, Any]:
    from numba import cuda

    key = (*policy.kernels, policy.prepare())
    if key not in _loops:
        _loops[key] = cuda.jit(make_count(policy)), cuda.jit(make_spread())
    return _loops[key]


def count_on_device(
    policy: Policy,
    rewards: np.ndarray,
    games: int,
    place: int,
    probes: np.ndarray,
    seed: int,
    *path: int,
) -> np.ndarray:
    """As `games.count_games`."""
    from numba import cuda

    life = plain_life(policy, rewards[: int(probes[-1])])
    params, count_and_spread = policy.constants(), _loops_of(policy)
    count, spread = count_and_spread
    begun = policy.kernels.begin(params)
    at_once = max(1, min(_AT_ONCE, int(_MEMORY) // max(bytes_of(begun), 1), games))
    pairs: list[tuple[Any, Any]] = []

    def many(array: np.ndarray) -> Any:
        states = cuda.device_array((*array.shape, at_once), array.dtype)
        if array.size:
            pairs.append((cuda.to_device(array.ravel()), states.reshape(array.size, at_once)))
        return states

    states = mapped(begun, many)
    watched, deepest = min(policy.arms, WATCHED), int(probes[-1]) + 1
    histogram = cuda.to_device(np.zeros((watched + 1, watched, probes.size, deepest), np.uint64))
    faults = cuda.to_device(np.zeros(1, np.int64))
    contexts = np.zeros(1) if life.contexts is None else np.ascontiguousarray(life.contexts)
    fixed = mapped(params, cuda.to_device), cuda.to_device(contexts), cuda.to_device(life.rewards)
    where, key = cuda.to_device(probes), key_of(seed, *path)
    blocks = -(-at_once // THREADS)
    with warnings.catch_warnings():  # of few games: their number is the user's choice
        warnings.filterwarnings("ignore", ".*Grid size")
        for first in range(0, games, at_once):
            for origin, each in pairs:
                spread[-(-each.size // 256), 256](origin, each)
            now = min(at_once, games - first)
            count[blocks, THREADS](key, first, now, *fixed, place, where, states, histogram, faults)
    if fault := int(faults.copy_to_host()[0]):
        raise no_such_arm(policy.name, fault, policy.arms)
    counts = histogram.copy_to_host().astype(np.int64)
    counts[-1] = counts.sum(axis=0)
    return counts
