"""The loop that plays one game a thread: of one pair, or of several that are alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.kernels import always, newly_marked
from balaclava.environments.base import Environment
from balaclava.policies.base import Policy
from balaclava.simulation.gpu.device_states import access_of, mapped, source_of, spread
from balaclava.simulation.gpu.philox_draws import new_stream
from balaclava.simulation.gpu.stacked_constants import kind_of, packed, picker, stacked

THREADS = 64  # in a block
REGISTERS = 128  # of a thread, at most: with more, too few threads run at once
STREAMS = 2  # of a game: the policy's and the environment's
PULLS = 2  # where `state_of` has them

Put = Callable[[np.ndarray], Any]  # onto the device
Spread = Callable[[np.ndarray, int], Any]  # as `state.spread`, on the device
Pair = tuple[Policy, Environment]


class Games(NamedTuple):
    """What all games of a launch read and change; those of a pair lie side by side."""

    keys: Any  # of the seeds
    params: Any  # these and the keys: of one pair as they are, of several packed
    world: Any
    states: Any  # as `state_of`, each array with a last axis for the games
    totals: Any  # [game]
    faults: Any  # [game]: the round of a choice outside the arms, or 0


def set_up(
    pairs: Sequence[Pair], seeds: Sequence[int], games: int, put: Put, spread: Spread = spread
) -> Games:
    """So many games of each pair before their first round."""
    keys = [key_of(seed) for seed in seeds]
    params = [policy.constants() for policy, _ in pairs]
    worlds = [environment.constants() for _, environment in pairs]
    origins = stacked([state_of(policy) for policy, _ in pairs])

    def constant(values: Sequence[Any]) -> Any:
        return mapped(packed(values) if len(pairs) > 1 else values[0], put)

    return Games(
        constant(keys),
        constant(params),
        constant(worlds),
        mapped(_named(origins, state_of(pairs[0][0])), lambda array: spread(array, games)),
        put(np.zeros(len(pairs) * games)),
        put(np.zeros(len(pairs) * games, np.int64)),
    )


def state_of(policy: Policy) -> tuple[Any, ...]:
    """Of one game at the beginning: both streams' memories, pulls, and the policy's state."""
    pulls = np.zeros(policy.arms, np.int64)
    return new_stream(), new_stream(), pulls, policy.kernels.begin(policy.constants())


def _named(plain: Any, like: Any) -> Any:
    """Plain tuples as the classes that `like` has."""
    if not isinstance(like, tuple):
        return plain
    parts = [_named(part, other) for part, other in zip(plain, like, strict=True)]
    return type(like)(*parts) if hasattr(like, "_fields") else tuple(parts)


def make_kernels_known() -> None:
    """Let the compiler for the device find every marked kernel."""
    from numba import cuda

    for called, body in newly_marked("cuda"):
        # A function of the device cannot return an array: what does is written into its caller.
        inline = "always" if body.__annotations__.get("return") == "np.ndarray" else "never"
        cuda.extending.overload(called, strict=False, target="cuda", inline=inline)(always(body))


def key_of(seed: int, *path: int) -> np.uint64:
    """The key of all streams of a seed."""
    key: np.uint64 = np.random.SeedSequence([seed, *path]).generate_state(1, np.uint64)[0]
    return key


def make_play(policy: Policy, environment: Environment, several: bool) -> Callable[..., None]:
    """The loop, closed over one policy's and one environment's kernels."""
    from numba import cuda, uint64

    from balaclava.simulation.gpu.random_streams import device_random

    choose, learn, prepare = policy.kernels.choose, policy.kernels.learn, policy.prepare()
    draw, advise = environment.draw, environment.advise
    access = access_of(state_of(policy), THREADS)
    view, put_back = access.view, access.put_back
    in_device = cuda.jit(device=True, inline=True)
    key_from = in_device(picker(key_of(0), several))
    params_of = in_device(picker(policy.constants(), several))
    world_of = in_device(picker(environment.constants(), several))
    make_kernels_known()

    def play(
        count: int,  # games of a pair
        blocks: int,  # of a pair
        apart: int,  # threads from one game to the next
        first: int,  # repetition of a pair's first game
        start: int,  # rounds played so far
        until: int,
        keys: Any,
        all_params: Any,
        all_worlds: Any,
        states: Any,
        totals: Any,
        faults: Any,
    ) -> None:
        pair = cuda.blockIdx.x // blocks
        thread = (cuda.blockIdx.x - pair * blocks) * cuda.blockDim.x + cuda.threadIdx.x
        number = thread // apart
        game = pair * count + number
        if number >= count or thread != number * apart or faults[game] > 0:
            return
        params, world = params_of(all_params, pair), world_of(all_worlds, pair)
        memory, world_memory, pulls, state = view(states, game)
        place = uint64(first + number) * uint64(STREAMS)
        key = key_from(keys, pair)
        rng = device_random(key, place, memory)
        world_rng = device_random(key, place + uint64(1), world_memory)
        total = totals[game]
        for t in range(start + 1, until + 1):
            arm, phase = choose(params, state, t, advise(world, t), rng)
            if arm < 0 or arm >= pulls.size:
                faults[game] = t
                return
            reward_drawn = draw(world, t, arm, world_rng)
            total += reward_drawn
            learn(params, state, t, arm, prepare(params, reward_drawn), phase, rng)
            pulls[arm] += 1
        totals[game] = total
        put_back(states, game, (memory, world_memory, pulls, state))

    return play


def likeness(policy: Policy, environment: Environment) -> tuple[Any, ...]:
    """What pairs must have in common for one launch to play them."""
    kinds = _kinds_of(policy, environment)
    return *_kernels_of(policy, environment), *kinds, kind_of(state_of(policy))


def _kernels_of(policy: Policy, environment: Environment) -> tuple[Any, ...]:
    return *policy.kernels, policy.prepare(), environment.draw, environment.advise


def _kinds_of(policy: Policy, environment: Environment) -> list[Any]:
    values = policy.constants(), environment.constants()
    return [kind_of(value, sizes=False) for value in values]


_loops: dict[tuple[Any, ...], Any] = {}


def loop_of(policy: Policy, environment: Environment, several: bool) -> Any:
    """The loop, compiled once for all pairs of the same kernels whose states are kept alike."""
    from numba import cuda

    kinds = _kinds_of(policy, environment) if several else ()
    key = (*_kernels_of(policy, environment), source_of(state_of(policy), THREADS), *kinds)
    if key not in _loops:
        play = make_play(policy, environment, several)
        _loops[key] = cuda.jit(play, max_registers=REGISTERS)
    return _loops[key]
