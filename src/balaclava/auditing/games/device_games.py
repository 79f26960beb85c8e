"""The games of the statistical audit on a GPU: the same counts, from other random streams.

One thread plays one game, from a new state. Blocks of threads count in copies of the histogram: in
a single one, all games of a launch would wait for the same few counters. Draws of a GPU test a
claim; they are never used for releases.
"""

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
from balaclava.simulation.gpu.device import device_errors
from balaclava.simulation.gpu.device_loop import (
    BLOCK_THREADS,
    MOST_REGISTERS,
    philox_key,
    register_kernels,
)
from balaclava.simulation.gpu.device_states import (
    access_source,
    map_arrays,
    state_access,
    state_bytes,
)
from balaclava.simulation.gpu.philox_draws import new_stream

# Games that first compare two streams: fewer take as long, except on losses, which are slow.
_DEVICE_SCREENING_GAMES, _LOSS_SCREENING_GAMES = 200_000, 10_000
_GAMES_PER_LAUNCH = 1 << 21  # at most: enough to fill a GPU
_STATE_BYTES = 4e9  # of all states of a launch; fits a GPU with 8 GB
_HISTOGRAM_COPIES = 256  # at most
_HISTOGRAM_COUNTERS = 1 << 24  # in all copies together: 128 MiB
_GAMES_PER_COPY = 1 << 14  # so few rarely wait for each other

_loops: dict[tuple[Any, ...], Any] = {}


def state_of(policy: Policy) -> tuple[Any, ...]:
    """The memory of a game's random stream, and the policy's first state."""
    return new_stream(), policy.kernels.begin(policy.constants())


def screening_games(policy: Policy) -> int:
    return _LOSS_SCREENING_GAMES if policy.rewards == "loss" else _DEVICE_SCREENING_GAMES


def make_count(policy: Policy) -> Callable[..., None]:
    """The loop of one game, closed over a policy's kernels."""
    from numba import cuda, int64, uint64

    from balaclava.simulation.gpu.random_streams import device_random

    choose, learn, prepare = policy.kernels.choose, policy.kernels.learn, policy.prepare()
    context = no_context if policy.practice_context is None else context_of_round
    access = state_access(state_of(policy), BLOCK_THREADS)
    view, restart = access.view, access.restart
    register_kernels()

    def count(
        key: Any,  # of the seed
        first: int,  # number of the first game
        games: int,
        params: Any,
        contexts: Any,
        rewards: Any,
        place: int,
        probes: Any,
        origin: Any,  # the state in which each game begins
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
        copy, counted = cuda.blockIdx.x % histogram.shape[0], histogram.shape[2]
        probe, branch = 0, 0
        for i in range(rewards.shape[0]):
            arm, phase = choose(params, state, i + 1, context(contexts, i), rng)
            if arm < 0 or arm >= rewards.shape[1]:
                faults[0] = i + 1
                return
            reward = prepare(params, rewards[i, arm])
            learn(params, state, i + 1, arm, reward, phase, rng)
            if arm < counted:
                pulls[arm] += 1
            if i + 1 == place:
                branch = min(arm, counted)
            if probe < probes.size and i + 1 == probes[probe]:
                for each in range(counted):
                    cuda.atomic.add(histogram, (copy, branch, each, probe, pulls[each]), 1)
                probe += 1

    return count


def _loop_of(policy: Policy) -> Any:
    from numba import cuda

    key = (*policy.kernels, policy.prepare(), access_source(state_of(policy), BLOCK_THREADS))
    if key not in _loops:
        _loops[key] = cuda.jit(make_count(policy), max_registers=MOST_REGISTERS)
    return _loops[key]


class GameMemory(NamedTuple):
    games: int
    origin: Any  # the state in which each begins
    states: Any  # with a last axis for the games


@functools.lru_cache(maxsize=1)  # an audit plays one policy, many times
def _memory_of(policy: Policy) -> GameMemory:
    from numba import cuda

    origin = state_of(policy)
    games = max(1, min(_GAMES_PER_LAUNCH, int(_STATE_BYTES) // state_bytes(origin)))
    states = map_arrays(origin, lambda array: cuda.device_array((*array.shape, games), array.dtype))
    return GameMemory(games, map_arrays(origin, cuda.to_device), states)


@device_errors()
def count_on_device(
    policy: Policy,
    rewards: np.ndarray,
    games: int,
    place: int,
    probes: np.ndarray,
    seed: int,
    *path: int,
) -> np.ndarray:
    """As `count_pulls_in_games`."""
    from numba import cuda

    key = philox_key(seed, *path)
    scenario = plain_scenario(policy, rewards[: int(probes[-1])])
    count, memory = _loop_of(policy), _memory_of(policy)
    counted = min(policy.arms, COUNTED_ARMS)
    shape = (counted + 1, counted, probes.size, int(probes[-1]) + 1)
    copies = min(
        _HISTOGRAM_COPIES, games // _GAMES_PER_COPY, _HISTOGRAM_COUNTERS // int(np.prod(shape))
    )
    histogram = cuda.to_device(np.zeros((max(copies, 1), *shape), np.uint64))
    faults = cuda.to_device(np.zeros(1, np.int64))
    contexts = np.zeros(1) if scenario.contexts is None else np.ascontiguousarray(scenario.contexts)
    params = map_arrays(policy.constants(), cuda.to_device)
    stream = cuda.to_device(contexts), cuda.to_device(scenario.rewards)
    fixed = (params, *stream, place, cuda.to_device(probes))
    with warnings.catch_warnings(), compiling(f"{policy.name}, for the GPU,"):
        # A warning about few games: their number is the user's choice.
        warnings.filterwarnings("ignore", ".*Grid size")
        for first in range(0, games, memory.games):
            now = min(memory.games, games - first)
            blocks = -(-now // BLOCK_THREADS)
            count[blocks, BLOCK_THREADS](key, first, now, *fixed, *memory[1:], histogram, faults)
            cuda.synchronize()  # so that Ctrl-C takes effect
    if fault := int(faults.copy_to_host()[0]):
        raise no_such_arm(policy.name, fault, policy.arms)
    counts = histogram.copy_to_host().sum(axis=0).astype(np.int64)
    counts[-1] = counts.sum(axis=0)
    return counts
