"""The loop that plays one game a thread, and the launches around it.

A launch plays so many rounds that it lasts a few tenths of a second: progress moves, and Ctrl-C is
heard. Between launches states and random streams stay on the device; at a checkpoint the counts of
pulls come back. Results depend on the seed alone.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.kernels import always, compiling, newly_marked
from balaclava.environments.base import Environment
from balaclava.errors import no_such_arm
from balaclava.policies.base import Policy
from balaclava.simulation.gpu.laws import fresh_memory
from balaclava.simulation.gpu.state import access_of, bytes_of, mapped, source_of
from balaclava.simulation.results import Results, Run

THREADS = 64  # in a block
REGISTERS = 128  # of a thread, at most: with more, too few threads run at once
STREAMS = 2  # of a game: the policy's and the environment's
PULLS = 2  # where `state_of` has them
_SECONDS = 0.2  # that a launch should last
_FIRST_LAUNCH = 64  # rounds, to see how fast it is
_SHARE = 0.8  # of the free memory of the device
_MOST_GAMES = 1 << 21

Progress = Callable[[int, int], None]
Report = Callable[[int], None]  # is told of how many further rounds were played, all games together
Put = Callable[[np.ndarray], Any]  # onto the device


class Games(NamedTuple):
    """What all games of a launch read and change."""

    params: Any
    world: Any
    states: Any  # as `state_of`, each array with a last axis for the games
    totals: Any  # [game]
    faults: Any  # [game]: the round of a choice outside the arms, or 0


def set_up(policy: Policy, environment: Environment, games: int, put: Put) -> Games:
    """So many games before their first round."""
    params = policy.constants()
    return Games(
        mapped(params, put),
        mapped(environment.constants(), put),
        mapped(state_of(policy), lambda array: put(_for_each(array, games))),
        put(np.zeros(games)),
        put(np.zeros(games, np.int64)),
    )


def state_of(policy: Policy) -> tuple[Any, ...]:
    """Of one game at the beginning: both streams' memories, pulls, and the policy's state."""
    pulls = np.zeros(policy.arms, np.int64)
    return fresh_memory(), fresh_memory(), pulls, policy.kernels.begin(policy.constants())


def _for_each(array: np.ndarray, games: int) -> np.ndarray:
    return np.repeat(array[..., None], games, axis=-1)


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


def make_play(policy: Policy, environment: Environment) -> Callable[..., None]:
    """The loop, closed over one policy's and one environment's kernels."""
    from numba import cuda, uint64

    from balaclava.simulation.gpu.random import device_random

    choose, learn, prepare = policy.kernels.choose, policy.kernels.learn, policy.prepare()
    draw, advise = environment.draw, environment.advise
    access = access_of(state_of(policy), THREADS)
    view, put_back = access.view, access.put_back
    make_kernels_known()

    def play(
        key: Any,  # of the seed
        first: int,  # repetition of the first game
        start: int,  # rounds played so far
        until: int,
        params: Any,
        world: Any,
        states: Any,
        totals: Any,
        faults: Any,
    ) -> None:
        game = cuda.grid(1)
        if game >= totals.size or faults[game] > 0:
            return
        memory, world_memory, pulls, state = view(states, game)
        place = uint64(first + game) * uint64(STREAMS)
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


_loops: dict[tuple[Any, ...], Any] = {}


def loop_of(policy: Policy, environment: Environment) -> Any:
    """The loop, compiled once for all pairs of the same kernels whose states are kept alike."""
    from numba import cuda

    kernels = (*policy.kernels, policy.prepare(), environment.draw, environment.advise)
    key = (*kernels, source_of(state_of(policy), THREADS))
    if key not in _loops:
        _loops[key] = cuda.jit(make_play(policy, environment), max_registers=REGISTERS)
    return _loops[key]


def runs_on_device(results: Results, repetitions: int, progress: Progress | None) -> Iterator[Run]:
    """Each repetition that `results` describes, policy by policy."""
    whole = repetitions * results.horizon * len(results.policies)
    total = 0

    def report(rounds: int) -> None:
        nonlocal total
        total += rounds
        if progress is not None:
            progress(total, whole)

    for label, policy in results.policies.items():
        pair = DevicePair(label, policy, results.environment)
        yield from pair.play(results.checkpoints, repetitions, results.seed, report)


def some_on_device(
    label: str,
    policy: Policy,
    environment: Environment,
    rounds: np.ndarray,
    seed: int,
    repetitions: Sequence[int],
    report: Report = lambda _: None,
) -> Iterator[Run]:
    """These repetitions of a pair, which ascend; what was left out was played before."""
    pair = DevicePair(label, policy, environment)
    for first, count in stretches(repetitions):
        yield from pair.play(rounds, count, seed, report, first)


def stretches(repetitions: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Ascending numbers as the first and the count of those that follow one after the other.

    >>> list(stretches([0, 1, 2, 5, 6]))
    [(0, 3), (5, 2)]
    """
    first = 0
    for end in range(1, len(repetitions) + 1):
        if end == len(repetitions) or repetitions[end] != repetitions[end - 1] + 1:
            yield repetitions[first], end - first
            first = end


class DevicePair:
    """A policy and an environment on the device."""

    def __init__(self, label: str, policy: Policy, environment: Environment) -> None:
        from numba import cuda

        self.label, self.policy, self.environment = label, policy, environment
        self._loop = loop_of(policy, environment)
        with compiling(f"{policy.name} on {environment.name}, for the GPU,"):
            self._launch(set_up(policy, environment, 1, cuda.to_device), 0, 0, 0, 0)

    def _launch(self, games: Games, seed: int, first: int, start: int, until: int) -> None:
        key = np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]
        blocks = -(-games.totals.size // THREADS)
        with warnings.catch_warnings():  # of few games: their number is the user's choice
            warnings.filterwarnings("ignore", ".*Grid size")
            self._loop[blocks, THREADS](key, first, start, until, *games)

    def games_at_once(self) -> int:
        """As many as the free memory of the device holds."""
        from numba import cuda

        one = set_up(self.policy, self.environment, 1, np.asarray)
        free, _ = cuda.current_context().get_memory_info()
        return max(1, min(int(_SHARE * free) // bytes_of(one[2:]), _MOST_GAMES))

    def play(
        self,
        rounds: np.ndarray,
        repetitions: int,
        seed: int,
        report: Report = lambda _: None,
        start: int = 0,
    ) -> Iterator[Run]:
        """So many repetitions from `start` on, as many at once as fit; `rounds`: checkpoints."""
        most = self.games_at_once()
        for first in range(start, start + repetitions, most):
            count = min(most, start + repetitions - first)
            regret, pulls = self._play_together(rounds, first, count, seed, report)
            for game in range(count):
                yield Run(self.label, first + game, regret[game], pulls[game])

    def _play_together(
        self, rounds: np.ndarray, first: int, count: int, seed: int, report: Report
    ) -> tuple[np.ndarray, np.ndarray]:
        from numba import cuda

        games = set_up(self.policy, self.environment, count, cuda.to_device)
        regret = np.empty((count, rounds.size))
        rounds_so_far, chunk = 0, _FIRST_LAUNCH
        for c, checkpoint in enumerate(rounds.tolist()):
            while rounds_so_far < checkpoint:
                until = min(checkpoint, rounds_so_far + chunk)
                began = time.perf_counter()
                self._launch(games, seed, first, rounds_so_far, until)
                cuda.synchronize()
                rate = (until - rounds_so_far) / max(time.perf_counter() - began, 1e-6)
                chunk = max(1, min(int(rate * _SECONDS), 8 * chunk))
                report((until - rounds_so_far) * count)
                rounds_so_far = until
            self._require_arms(games.faults.copy_to_host())
            pulls, totals = games.states[PULLS].copy_to_host().T, games.totals.copy_to_host()
            regret[:, c] = self.environment.regret(np.full(count, checkpoint), pulls, totals)
        return regret, np.ascontiguousarray(pulls)

    def _require_arms(self, faults: np.ndarray) -> None:
        if faults.any():
            first = int(faults[faults > 0].min())
            raise no_such_arm(self.label, first, self.environment.arms)
