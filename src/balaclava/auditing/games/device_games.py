"""The games of the statistical audit on a GPU: the same counts, from streams of their own.

One thread plays one game, and a launch as many as there are threads; states begin anew in each.
Blocks count in copies of the histogram: in one alone, all games of a launch would wait for the same
few counters. Draws of a GPU make no private claim; here they only test one.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.kernels import compiling
from balaclava.auditing.games.compiled_games import COUNTED_ARMS, context_of_round, no_context
from balaclava.auditing.scenario import plain_scenario
from balaclava.errors import no_such_arm
from balaclava.policies.base import Policy
from balaclava.simulation.gpu.device import on_device
from balaclava.simulation.gpu.device_loop import REGISTERS, THREADS, key_of, make_kernels_known
from balaclava.simulation.gpu.device_states import access_of, bytes_of, mapped, source_of
from balaclava.simulation.gpu.philox_draws import new_stream

_HEAT, _LOSS_HEAT = 200_000, 10_000  # games: with fewer, a launch takes as long
_AT_ONCE = 1 << 21  # games
_MEMORY = 4e9  # bytes of all their states
_COPIES = 256  # of the histogram, at most
_COUNTERS = 1 << 24  # in all copies together
_GAMES_A_COPY = 1 << 14

_loops: dict[tuple[Any, ...], Any] = {}


def state_of(policy: Policy) -> tuple[Any, ...]:
    """Of one game at the beginning: the memory of its stream, and the policy's state."""
    return new_stream(), policy.kernels.begin(policy.constants())


def heat_of(policy: Policy) -> int:
    """Games with which two streams are compared at first; a step on losses is dear."""
    return _LOSS_HEAT if policy.rewards == "loss" else _HEAT


def make_count(policy: Policy) -> Callable[..., None]:
    """The loop of one game, closed over a policy's kernels."""
    from numba import cuda, int64, uint64

    from balaclava.simulation.gpu.random_streams import device_random

    choose, learn, prepare = policy.kernels.choose, policy.kernels.learn, policy.prepare()
    context = no_context if policy.practice_context is None else context_of_round
    access = access_of(state_of(policy), THREADS)
    view, restart = access.view, access.restart
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
        origin: Any,  # a state at the beginning
        states: Any,
        histogram: Any,  # [copy, branch, arm, probe, n]
        faults: Any,
    ) -> None:
        game = cuda.grid(1)
        if game >= games:
            return
        pulls = cuda.local.array(COUNTED_ARMS, int64)
        for arm in range(COUNTED_ARMS):
            pulls[arm] = 0
        whole = view(states, game)
        restart(whole, origin)
        memory, state = whole
        rng = device_random(key, uint64(first + game), memory)
        copy, watched = cuda.blockIdx.x % histogram.shape[0], histogram.shape[2]
        probe, branch = 0, 0
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
                    cuda.atomic.add(histogram, (copy, branch, each, probe, pulls[each]), 1)
                probe += 1

    return count


def _loop_of(policy: Policy) -> Any:
    from numba import cuda

    key = (*policy.kernels, policy.prepare(), source_of(state_of(policy), THREADS))
    if key not in _loops:
        _loops[key] = cuda.jit(make_count(policy), max_registers=REGISTERS)
    return _loops[key]


class GameMemory(NamedTuple):
    """The memory of all games of a launch."""

    games: int
    origin: Any  # where each begins
    states: Any  # with a last axis for the games


@functools.lru_cache(maxsize=1)  # an audit asks for one policy, many times
def _table_of(policy: Policy) -> GameMemory:
    from numba import cuda

    origin = state_of(policy)
    games = max(1, min(_AT_ONCE, int(_MEMORY) // bytes_of(origin)))
    states = mapped(origin, lambda array: cuda.device_array((*array.shape, games), array.dtype))
    return GameMemory(games, mapped(origin, cuda.to_device), states)


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
    with on_device():
        return _count(policy, rewards, games, place, probes, key_of(seed, *path))


def _count(
    policy: Policy, rewards: np.ndarray, games: int, place: int, probes: np.ndarray, key: np.uint64
) -> np.ndarray:
    from numba import cuda

    life = plain_scenario(policy, rewards[: int(probes[-1])])
    count, table = _loop_of(policy), _table_of(policy)
    watched = min(policy.arms, COUNTED_ARMS)
    shape = (watched + 1, watched, probes.size, int(probes[-1]) + 1)
    room = min(_COPIES, games // _GAMES_A_COPY, _COUNTERS // int(np.prod(shape)))
    histogram = cuda.to_device(np.zeros((max(room, 1), *shape), np.uint64))
    faults = cuda.to_device(np.zeros(1, np.int64))
    contexts = np.zeros(1) if life.contexts is None else np.ascontiguousarray(life.contexts)
    fixed = (
        mapped(policy.constants(), cuda.to_device),
        cuda.to_device(contexts),
        cuda.to_device(life.rewards),
        place,
        cuda.to_device(probes),
    )
    with warnings.catch_warnings(), compiling(f"{policy.name}, for the GPU,"):
        # Of few games: their number is the user's choice.
        warnings.filterwarnings("ignore", ".*Grid size")
        for first in range(0, games, table.games):
            now = min(table.games, games - first)
            blocks = -(-now // THREADS)
            count[blocks, THREADS](key, first, now, *fixed, *table[1:], histogram, faults)
            cuda.synchronize()  # so that Ctrl-C is heard
    if fault := int(faults.copy_to_host()[0]):
        raise no_such_arm(policy.name, fault, policy.arms)
    counts = histogram.copy_to_host().sum(axis=0).astype(np.int64)
    counts[-1] = counts.sum(axis=0)
    return counts
