"""The device's loop, one game per thread, for one pair or several that share kernels.

A pair is a policy and an environment.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.kernels import always, newly_marked
from balaclava.environments.base import Environment, same_world
from balaclava.policies.base import Policy
from balaclava.simulation.gpu import device_states
from balaclava.simulation.gpu.philox_draws import new_stream
from balaclava.simulation.gpu.stacked_constants import packed, picker, stacked, value_kind

BLOCK_THREADS = 64  # threads per block (benchmarks/gpu.md)
MOST_REGISTERS = 128  # registers per thread: with more, too few threads run at once (gpu.md)
STREAMS = 2  # random streams of a game: the policy's and the environment's
# Indices in `initial_state`: pulls, the policy's state, the stream of a scene, and the scene.
PULLS, STATE, SCENE_STREAM, SCENE = 2, 3, 4, 5
# Place of the stream of a scene, beside the repetition: no other stream reaches it.
_SCENE_PLACE = 1 << 63

Put = Callable[[np.ndarray], Any]  # sends an array to the device
Repeat = Callable[[np.ndarray, int], Any]  # as `repeat_per_game`, on the device
Pair = tuple[Policy, Environment]


class DeviceGames(NamedTuple):
    """Arguments of a launch; the games of a pair are adjacent."""

    keys: Any  # of the seeds
    params: Any  # like keys and world: plain for one pair, packed for several
    world: Any
    states: Any  # as `initial_state`, each array with a last axis for the games
    totals: Any  # [game]
    faults: Any  # [game]: the round of a choice outside the arms, or 0
    offered: Any  # [slot]: the arm of the environment, if arms come and leave; otherwise empty


def set_up(
    pairs: Sequence[Pair],
    seeds: Sequence[int],
    games: int,
    put: Put,
    repeat: Repeat = device_states.repeat_per_game,
) -> DeviceGames:
    """Allocate the games of each pair before their first round."""
    keys = [philox_key(seed) for seed in seeds]
    params = [policy.constants() for policy, _ in pairs]
    worlds = [environment.constants() for _, environment in pairs]
    origins = stacked([initial_state(*pair) for pair in pairs])
    offers = pairs[0][1].arms_on_offer

    def constant(values: Sequence[Any]) -> Any:
        return device_states.map_arrays(packed(values) if len(pairs) > 1 else values[0], put)

    return DeviceGames(
        constant(keys),
        constant(params),
        constant(worlds),
        device_states.map_arrays(
            _named(origins, initial_state(*pairs[0])), lambda array: repeat(array, games)
        ),
        put(np.zeros(len(pairs) * games)),
        put(np.zeros(len(pairs) * games, np.int64)),
        put(np.array(offers[0][1] if offers else (), np.int64)),
    )


def first_policy(policy: Policy, environment: Environment) -> Policy:
    """The policy with the arms that are on offer first."""
    offers = environment.arms_on_offer
    return dataclasses.replace(policy, arms=len(offers[0][1])) if offers else policy


def initial_state(policy: Policy, environment: Environment | None = None) -> tuple[Any, ...]:
    """A game before its first round: both streams' states, pulls, and the policy's state.

    Then, if the environment has a scene, its stream's state and the scene.
    """
    pulls = np.zeros((environment or policy).arms, np.int64)
    state = new_stream(), new_stream(), pulls, policy.kernels.begin(policy.constants())
    if environment is None or environment.scene.open is same_world:
        return state
    return *state, new_stream(), environment.scene.open(environment.constants())


def _named(plain: Any, like: Any) -> Any:
    """Turn plain tuples into the named tuples of `like`."""
    if not isinstance(like, tuple):
        return plain
    parts = [_named(part, other) for part, other in zip(plain, like, strict=True)]
    return type(like)(*parts) if hasattr(like, "_fields") else tuple(parts)


def register_kernels() -> None:
    from numba import cuda

    for called, body in newly_marked("cuda"):
        # A device function cannot return an array: such kernels are inlined.
        returned = body.__annotations__.get("return")
        inline = "always" if returned in (np.ndarray, "np.ndarray") else "never"
        cuda.extending.overload(called, strict=False, target="cuda", inline=inline)(always(body))


def philox_key(seed: int, *path: int) -> np.uint64:
    key: np.uint64 = np.random.SeedSequence([seed, *path]).generate_state(1, np.uint64)[0]
    return key


def make_device_play(
    policy: Policy, environment: Environment, several: bool
) -> Callable[..., None]:
    """Close the loop over the kernels of a policy and an environment."""
    from numba import cuda, uint64

    from balaclava.simulation.gpu.random_streams import device_random

    choose, learn, prepare = policy.kernels.choose, policy.kernels.learn, policy.prepare()
    draw, advise, score = environment.draw, environment.advise, environment.scene.score
    access = device_states.state_access(initial_state(policy, environment), BLOCK_THREADS)
    view, write_back = access.view, access.write_back
    in_device = cuda.jit(device=True, inline=True)
    moves, comes = environment.scene.open is not same_world, environment.arms_on_offer is not None
    scene_of = in_device(_last_part if moves else _no_scene)
    renew = in_device(_scene_renewal(environment.scene.renew) if moves else _no_renewal)
    arm_of = in_device(_arm_in_slot if comes else _slot_itself)
    key_from = in_device(picker(philox_key(0), several))
    params_of = in_device(picker(policy.constants(), several))
    world_of = in_device(picker(environment.constants(), several))
    register_kernels()

    def play(
        count: int,  # games per pair
        blocks: int,  # per pair
        stride: int,  # threads per game
        first: int,  # repetition of a pair's first game
        start: int,  # rounds played so far
        until: int,
        keys: Any,
        all_params: Any,
        all_worlds: Any,
        states: Any,
        totals: Any,
        faults: Any,
        offered: Any,
    ) -> None:
        pair = cuda.blockIdx.x // blocks
        thread = (cuda.blockIdx.x - pair * blocks) * cuda.blockDim.x + cuda.threadIdx.x
        number = thread // stride
        game = pair * count + number
        if number >= count or thread != number * stride or faults[game] > 0:
            return
        params, parts = params_of(all_params, pair), view(states, game)
        world = scene_of(parts, world_of(all_worlds, pair))
        pulls, state = parts[PULLS], parts[STATE]
        place = uint64(first + number) * uint64(STREAMS)
        key = key_from(keys, pair)
        rng = device_random(key, place, parts[0])
        world_rng = device_random(key, place + uint64(1), parts[1])
        total = totals[game]
        for t in range(start + 1, until + 1):
            renew(parts, world, t, key, uint64(first + number))
            slot, phase = choose(params, state, t, advise(world, t), rng)
            arm = arm_of(offered, pulls, slot)
            if arm < 0:
                faults[game] = t
                return
            reward_drawn = draw(world, t, arm, world_rng)
            total += score(world, t, arm, reward_drawn)
            learn(params, state, t, slot, prepare(params, reward_drawn), phase, rng)
            pulls[arm] += 1
        totals[game] = total
        write_back(states, game, parts)

    return play


def _no_scene(parts: Any, world: Any) -> Any:
    return world


def _last_part(parts: Any, world: Any) -> Any:
    return parts[SCENE]


def _no_renewal(parts: Any, scene: Any, t: int, key: Any, number: Any) -> None:
    pass


def _scene_renewal(renew: Callable[..., None]) -> Callable[..., None]:
    from numba import uint64

    from balaclava.simulation.gpu.random_streams import device_random

    def change(parts: Any, scene: Any, t: int, key: Any, number: Any) -> None:
        place = uint64(_SCENE_PLACE) | number
        renew(scene, t, device_random(key, place, parts[SCENE_STREAM]))

    return change


def _slot_itself(offered: Any, pulls: Any, slot: int) -> int:
    """The arm in a slot, or -1 if there is no such slot."""
    return slot if slot < pulls.size else -1


def _arm_in_slot(offered: Any, pulls: Any, slot: int) -> int:
    return offered[slot] if 0 <= slot < offered.size else -1


def launch_key(policy: Policy, environment: Environment) -> tuple[Any, ...]:
    """What pairs must share for one launch to play them."""
    kinds = _constant_kinds(policy, environment)
    state = value_kind(initial_state(policy, environment))
    return *_pair_kernels(policy, environment), *kinds, state


def _pair_kernels(policy: Policy, environment: Environment) -> tuple[Any, ...]:
    world = environment.draw, environment.advise, *environment.scene
    return *policy.kernels, policy.prepare(), *world


def _constant_kinds(policy: Policy, environment: Environment) -> list[Any]:
    values = policy.constants(), environment.constants()
    return [value_kind(value, sizes=False) for value in values]


_loops: dict[tuple[Any, ...], Any] = {}


def compiled_loop(policy: Policy, environment: Environment, several: bool) -> Any:
    """The compiled loop, shared by all pairs with the same kernels and state layout."""
    from numba import cuda

    kinds = _constant_kinds(policy, environment) if several else ()
    key = (
        *_pair_kernels(policy, environment),
        device_states.access_source(initial_state(policy, environment), BLOCK_THREADS),
        environment.arms_on_offer is not None,
        *kinds,
    )
    if key not in _loops:
        play = make_device_play(policy, environment, several)
        _loops[key] = cuda.jit(play, max_registers=MOST_REGISTERS)
    return _loops[key]
