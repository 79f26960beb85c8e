"""Launches on a GPU: similar pairs share a launch, other pairs run concurrently on streams.

Each launch plays as many rounds as take a few tenths of a second, so that progress is reported and
Ctrl-C works. States and random streams stay on the device between launches; the pulls are copied
back at checkpoints. Results depend on the seed alone.

A hundred games leave a GPU idle, so all pairs are played at once. A pair is a policy and an
environment. Pairs that differ only in numbers and array sizes share launches.
"""

import functools
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.kernels import compiling
from balaclava.environments.base import Environment
from balaclava.errors import ParameterError, no_such_arm
from balaclava.policies.base import Policy
from balaclava.simulation.changing_arms.arm_segments import ArmSegments
from balaclava.simulation.gpu import device_loop
from balaclava.simulation.gpu.device import device_compiler, device_error, device_errors
from balaclava.simulation.gpu.device_loop import (
    STATE,
    STREAMS,
    DeviceGames,
    compiled_loop,
    first_policy,
    initial_state,
    launch_key,
    philox_key,
    set_up,
)
from balaclava.simulation.gpu.device_states import map_arrays, repeat_on_device, state_bytes
from balaclava.simulation.gpu.host_stream import HostStream
from balaclava.simulation.loops import make_play, rehearse
from balaclava.simulation.results import Results, Run
from balaclava.simulation.task_threads import run_tasks

DEVICE_STREAMS = 32  # concurrent streams: the most that CUDA_DEVICE_MAX_CONNECTIONS allows
_LAUNCH_SECONDS = 0.2  # target duration of a launch: progress and Ctrl-C react as fast
_FIRST_LAUNCH_ROUNDS = 64  # rounds of the first launch, which measures the speed
_POLL_SECONDS = 0.001  # shortest time between two polls of a launch
_POLLS_PER_LAUNCH = 50  # polls while a launch lasts, at most
_MOST_GAMES = 1 << 21  # games of a group at once
# Threads below which games are spread out: a warp then plays fewer games and diverges less.
_SPARSE_THREADS = 1 << 10

_MEMORY_SHARE = 0.8  # of the free memory, for games; the rest is for temporary arrays

Progress = Callable[[int, int], None]
Report = Callable[[int], None]  # gets the number of further rounds, of all games together

laying_out = threading.Lock()  # hold it from `DeviceMemory.share` until the games are allocated
_slots = threading.BoundedSemaphore(DEVICE_STREAMS)  # shared by the whole process


class GameBatch(NamedTuple):
    """Repetitions of one policy in one environment."""

    label: str
    policy: Policy
    environment: Environment
    rounds: np.ndarray  # checkpoints
    repetitions: int
    seed: int
    first: int = 0  # repetition


def play_results(trials: Sequence[tuple[Results, int]], progress: Progress | None) -> None:
    """Play the repetitions that each `Results` lacks, and add them to it."""
    owners, batches = [], []
    for results, repetitions in trials:
        for label, policy in results.policies.items():
            pair = label, policy, results.environment
            owners.append(results)
            batches.append(GameBatch(*pair, results.checkpoints, repetitions, results.seed))
    whole = sum(batch.repetitions * int(batch.rounds[-1]) for batch in batches)
    total = 0

    def report(rounds: int) -> None:
        nonlocal total
        total += rounds
        if progress is not None:
            progress(total, whole)

    for number, run in play_batches(batches, report):
        owners[number].add(run)


def play_batches(batches: Sequence[GameBatch], report: Report) -> Iterator[tuple[int, Run]]:
    """Yield each finished repetition with the index of its batch."""
    from numba import cuda

    lock = threading.Lock()
    groups = group_batches(batches)
    memory = DeviceMemory(total_bytes(batches))
    with device_compiler:
        cuda.current_context()  # created once, before many threads use it

    def task(numbers: list[int]) -> Callable[[Callable[[], None]], list[list[Run]]]:
        def play(raise_if_stopped: Callable[[], None]) -> list[list[Run]]:
            def report_in_turn(rounds: int) -> None:
                raise_if_stopped()
                with lock:
                    report(rounds)

            with _slots:
                raise_if_stopped()
                mine = [batches[number] for number in numbers]
                with device_errors():
                    group = group_kind(mine)(mine, memory, raise_if_stopped)
                    return group.play(report_in_turn)

        return play

    with closing(memory):
        for at, runs in run_tasks([task(numbers) for numbers in groups], DEVICE_STREAMS):
            for number, batch_runs in zip(groups[at], runs, strict=True):
                yield from ((number, run) for run in batch_runs)


def group_batches(batches: Sequence[GameBatch]) -> list[list[int]]:
    """Group the indices of batches that one launch can play; the longest group first."""
    groups: dict[Any, list[int]] = {}
    for number, batch in enumerate(batches):
        how: tuple[Any, ...] = batch.rounds.tobytes(), batch.repetitions, batch.first
        if batch.environment.arms_on_offer is not None:  # states change size: alone
            how = (*how, number)
        groups.setdefault((*launch_key(batch.policy, batch.environment), *how), []).append(number)

    def length(numbers: list[int]) -> int:
        batch = batches[numbers[0]]
        return int(batch.rounds[-1]) * game_bytes(batch)

    return sorted(groups.values(), key=length, reverse=True)


def game_bytes(batch: GameBatch) -> int:
    """The bytes of one game on the device, with its total and its fault."""
    return state_bytes(initial_state(batch.policy, batch.environment)) + 16


def total_bytes(batches: Sequence[GameBatch]) -> int:
    """The bytes of all games of these batches, with their constants."""
    constants = [batch.policy.constants() for batch in batches]
    constants += [batch.environment.constants() for batch in batches]
    games = sum(batch.repetitions * game_bytes(batch) for batch in batches)
    return games + sum(state_bytes(each) for each in constants)


def play_in_turn(batches: Iterable[GameBatch]) -> Iterator[Run]:
    """Play batches one after the other."""
    for batch in batches:
        with device_errors():
            (runs,) = group_kind([batch])([batch]).play()
        yield from runs


def game_batches(
    label: str,
    policy: Policy,
    environment: Environment,
    rounds: np.ndarray,
    seed: int,
    repetitions: Sequence[int],
) -> list[GameBatch]:
    """Batches for these ascending repetitions of a pair."""
    return [
        GameBatch(label, policy, environment, rounds, count, seed, first)
        for first, count in consecutive_ranges(repetitions)
    ]


def consecutive_ranges(repetitions: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Split ascending numbers into ranges of consecutive ones: first and count.

    >>> list(consecutive_ranges([0, 1, 2, 5, 6]))
    [(0, 3), (5, 2)]
    """
    first = 0
    for end in range(1, len(repetitions) + 1):
        if end == len(repetitions) or repetitions[end] != repetitions[end - 1] + 1:
            yield repetitions[first], end - first
            first = end


class DeviceMemory:
    """The memory shared by concurrent groups, whose games together take `needed` bytes.

    Freeing memory waits until the whole device is idle. So the arrays of a finished group are kept
    until all groups are done, if the remaining games fit beside them.
    """

    def __init__(self, needed: int) -> None:
        self._needed = needed  # bytes of the games not allocated yet
        self._kept: list[Any] = []

    def share(self, needed: int) -> float:
        """The share of a group's games, of `needed` bytes, that fits; 1 if all groups fit.

        Call while holding `laying_out`.
        """
        return min(1.0, _room() / max(self._needed, needed))

    def laid_out(self, needed: int) -> None:
        """Note that the last games of a group of `needed` bytes are allocated."""
        self._needed -= needed

    def keep(self, arrays: Any) -> None:
        """Keep arrays until `close`, if the remaining games fit beside them."""
        if _room() >= self._needed:
            self._kept.append(arrays)

    def close(self) -> None:
        self._kept.clear()


def _room() -> float:
    from numba import cuda

    free, _ = cuda.current_context().get_memory_info()
    return _MEMORY_SHARE * free


class LaunchGroup:
    """Batches that share launches on one stream; `memory` is shared with concurrent groups."""

    def __init__(
        self,
        batches: Sequence[GameBatch],
        memory: DeviceMemory | None = None,
        raise_if_stopped: Callable[[], None] = lambda: None,
    ) -> None:
        from numba import cuda

        self.batches = batches
        self._needed = total_bytes(batches)
        self._memory = memory or DeviceMemory(self._needed)
        self._pairs = [
            (first_policy(batch.policy, batch.environment), batch.environment) for batch in batches
        ]
        self._rounds_at_once, self._rate = _FIRST_LAUNCH_ROUNDS, np.inf
        self._seeds = [batch.seed for batch in batches]
        self._stream, self._event = cuda.stream(), cuda.event(timing=False)
        policy, environment = self._pairs[0]
        for batch in batches:
            _rehearse(batch)
        with device_compiler, compiling(f"{policy.name} on {environment.name}, for the GPU,"):
            raise_if_stopped()  # other groups may have compiled for a minute
            self._loop = compiled_loop(policy, environment, len(batches) > 1)
            games = self._set_up(1)
            self._launcher(1)(0, 0, 0, *games)
        self._memory.keep(games)

    def play(self, report: Report = lambda _: None) -> list[list[Run]]:
        """Play all repetitions of each batch, as many at once as fit into memory."""
        _, _, _, rounds, repetitions, _, start = self.batches[0]
        runs: list[list[Run]] = [[] for _ in self.batches]
        first = start
        while first < start + repetitions:
            with laying_out:
                count = min(self._games_at_once(), start + repetitions - first)
                games = self._set_up(count)
                if first + count == start + repetitions:
                    self._memory.laid_out(self._needed)
            regret, pulls = self._play_together(games, rounds, first, count, report)
            self._memory.keep(games)
            del games  # unless kept, their memory is reused
            for pair, batch in enumerate(self.batches):
                runs[pair] += [
                    Run(batch.label, first + game, regret[pair, game], pulls[pair, game])
                    for game in range(count)
                ]
            first += count
        return runs

    def _play_together(
        self, games: DeviceGames, rounds: np.ndarray, first: int, count: int, report: Report
    ) -> tuple[np.ndarray, np.ndarray]:
        """Regret at each checkpoint and final pulls, of each pair and game."""
        regret = np.empty((len(self.batches), count, rounds.size))
        self._rounds_at_once, self._rate = _FIRST_LAUNCH_ROUNDS, np.inf
        self._wait(0.0)  # until the games are allocated
        since = 0
        for c, checkpoint in enumerate(rounds.tolist()):
            games, since = self._advance(games, first, count, since, checkpoint, report), checkpoint
            pulls, totals = self._checkpoint_values(games, count)
            for pair, (_, environment) in enumerate(self._pairs):
                at = np.full(count, checkpoint)
                regret[pair, :, c] = environment.regret(at, pulls[pair], totals[pair])
        return regret, pulls

    def _advance(
        self, games: DeviceGames, first: int, count: int, since: int, until: int, report: Report
    ) -> DeviceGames:
        """Play the rounds after `since` up to `until`, in launches of similar length."""
        launch = self._launcher(count)
        while since < until:
            end = min(until, since + self._rounds_at_once)
            began = time.perf_counter()
            launch(first, since, end, *games)
            self._wait((end - since) / self._rate)
            self._rate = (end - since) / max(time.perf_counter() - began, 1e-6)
            most = min(int(self._rate * _LAUNCH_SECONDS), 8 * self._rounds_at_once)
            self._rounds_at_once = max(1, most)
            report((end - since) * count * len(self.batches))
            since = end
        return games

    def _put(self, array: np.ndarray) -> Any:
        from numba import cuda

        return cuda.to_device(array, stream=self._stream)

    def _set_up(self, count: int) -> DeviceGames:
        def repeat(array: np.ndarray, games: int) -> Any:
            return repeat_on_device(array, games, self._stream, self._memory.keep)

        return set_up(self._pairs, self._seeds, count, self._put, repeat)

    def _launcher(self, count: int) -> Callable[..., None]:
        """A function that launches `count` games of each pair for given rounds."""
        stride = thread_stride(count * len(self.batches))
        blocks = -(-count * stride // device_loop.BLOCK_THREADS)
        with device_compiler, warnings.catch_warnings():
            # A small grid is the user's choice.
            warnings.filterwarnings("ignore", ".*Grid size")
            launch = self._loop[blocks * len(self.batches), device_loop.BLOCK_THREADS, self._stream]
        return functools.partial(launch, count, blocks, stride)

    def _wait(self, seconds: float) -> None:
        """Wait for the launch without blocking other threads; `seconds` is a guess of how long."""
        self._event.record(self._stream)
        while not self._event.query():
            time.sleep(max(_POLL_SECONDS, min(seconds, _LAUNCH_SECONDS) / _POLLS_PER_LAUNCH))

    def _checkpoint_values(self, games: DeviceGames, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Pulls [pair, game, arm] and totals [pair, game], if every chosen arm exists."""
        faults, totals, pulls = (
            array.copy_to_host(stream=self._stream)
            for array in (games.faults, games.totals, games.states[device_loop.PULLS])
        )
        self._stream.synchronize()
        shape = len(self.batches), count
        for batch, rounds in zip(self.batches, faults.reshape(shape), strict=True):
            if rounds.any():
                raise no_such_arm(batch.label, int(rounds[rounds > 0].min()), batch.policy.arms)
        return np.ascontiguousarray(pulls.T).reshape(*shape, -1), totals.reshape(shape)

    def _games_at_once(self) -> int:
        """Games per pair that fit into this group's share of the memory."""
        share = self._memory.share(self._needed)
        most = min(int(share * self.batches[0].repetitions), _MOST_GAMES // len(self.batches))
        return max(1, most)


class OfferedGroup(LaunchGroup):
    """A batch whose arms come and leave: the host changes the states between two segments.

    Then the loop is compiled for another number of arms, and a change takes the host about a
    millisecond a game.
    """

    def play(self, report: Report = lambda _: None) -> list[list[Run]]:
        offers = self.batches[0].environment.arms_on_offer
        assert offers is not None
        self._next_arms = {start - 1: arms for start, arms in offers if start > 1}
        for arms in self._next_arms.values():
            try:
                replace(self.batches[0].policy, arms=len(arms))
            except ParameterError as error:  # an agent may be left with fewer arms
                raise device_error(str(error)) from None
        return super().play(report)

    def _set_up(self, count: int) -> DeviceGames:
        policy, environment = self._pairs[0]
        self._loop = compiled_loop(policy, environment, False)
        offers = environment.arms_on_offer
        whole = self.batches[0].policy
        self._segments = [ArmSegments(whole, offers[0][1]) for _ in range(count)] if offers else []
        return super()._set_up(count)

    def _advance(
        self, games: DeviceGames, first: int, count: int, since: int, until: int, report: Report
    ) -> DeviceGames:
        for end in [*(end for end in self._next_arms if since < end < until), until]:
            if since in self._next_arms:
                games = self._changed(games, first, count, since)
            games = super()._advance(games, first, count, since, end, report)
            since = end
        return games

    def _changed(self, games: DeviceGames, first: int, count: int, since: int) -> DeviceGames:
        """The games with the arms of the segment that begins after round `since`."""
        states = self._fetched(games.states)
        self._stream.synchronize()
        key, changed = philox_key(self._seeds[0]), []
        for game, segment in enumerate(self._segments):
            own = functools.partial(_column, game)
            segment.state = map_arrays(map_arrays(states[STATE], own), np.copy)
            stream = HostStream(key, (first + game) * STREAMS, map_arrays(states[0], own))
            segment.change(self._next_arms[since], since, stream)
            changed.append(segment.state)
        segment = self._segments[0]
        parts = [*states]
        parts[STATE] = _stacked_last(changed)
        policy, environment = segment.policy_in_play, self._pairs[0][1]
        with device_compiler, compiling(f"{policy.name} on {environment.name}, for the GPU,"):
            self._loop = compiled_loop(policy, environment, False)
            games = games._replace(
                params=map_arrays(segment.params, self._put),
                states=map_arrays(tuple(parts), self._put),
                offered=self._put(np.array(segment.arms)),
            )
            self._launcher(count)(first, since, since, *games)
        return games

    def _fetched(self, value: Any) -> Any:
        """The device's arrays in nested tuples, on the host."""
        if not isinstance(value, tuple):
            return value.copy_to_host(stream=self._stream)
        parts = [self._fetched(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)


def _column(game: int, array: np.ndarray) -> np.ndarray:
    return array[..., game]


def _stacked_last(states: Sequence[Any]) -> Any:
    """States of games, each array with a last axis for the games."""
    first = states[0]
    if isinstance(first, np.ndarray):
        return np.stack(states, axis=-1)
    return type(first)(*map(_stacked_last, zip(*states, strict=True)))


def group_kind(batches: Sequence[GameBatch]) -> type[LaunchGroup]:
    """The class that plays these batches."""
    return LaunchGroup if batches[0].environment.arms_on_offer is None else OfferedGroup


def _rehearse(batch: GameBatch) -> None:
    """Play some rounds of a user's kernels in Python: a GPU does not check indices."""
    policy, environment = batch.policy, batch.environment
    begin, choose, learn, _ = policy.kernels
    world = environment.draw, environment.advise, *environment.scene
    kernels = begin, choose, learn, policy.prepare(), *world
    fixed = policy.constants(), environment.constants(), environment.arms
    rehearse(make_play, kernels, fixed, batch.rounds, streams=3)


def thread_stride(games: int) -> int:
    """Threads per game: a power of two, at most the 32 of a warp.

    >>> thread_stride(90), thread_stride(2_000)
    (8, 1)
    """
    stride = 1
    while stride < 32 and 2 * stride * games <= _SPARSE_THREADS:
        stride *= 2
    return stride
