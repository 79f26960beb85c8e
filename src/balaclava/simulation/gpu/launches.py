"""The launches: pairs that are alike in one, the others side by side on streams of their own.

A launch plays so many rounds that it lasts a few tenths of a second: progress moves, and Ctrl-C is
heard. Between launches states and random streams stay on the device; at a checkpoint the counts of
pulls come back. Results depend on the seed alone.

A hundred games leave a device idle. So all that is to be played is played at once: games of pairs
that differ only in numbers and in the sizes of arrays share launches.
"""

from __future__ import annotations

import functools
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.kernels import compiling
from balaclava.environments.base import Environment
from balaclava.errors import no_such_arm
from balaclava.policies.base import Policy
from balaclava.simulation.gpu import device_loop
from balaclava.simulation.gpu.device import compiler, on_device
from balaclava.simulation.gpu.device_loop import Games, likeness, loop_of, set_up, state_of
from balaclava.simulation.gpu.device_memory import DeviceMemory, laying_out
from balaclava.simulation.gpu.device_states import bytes_of, spread_on_device
from balaclava.simulation.loops import make_play, rehearse
from balaclava.simulation.results import Results, Run
from balaclava.simulation.task_threads import run_tasks

DEVICE_STREAMS = 32  # streams: as many as a device takes from a process without letting them wait
_SECONDS = 0.2  # that a launch should last
_FIRST_LAUNCH = 64  # rounds, to see how fast it is
_LOOK = 0.001  # seconds from one look at a launch to the next, at least
_LOOKS = 50  # in the time that a launch should take, at most
_MOST_GAMES = 1 << 21
_SPREAD = 1 << 10  # threads: where there are few games, a warp plays few, and waits for few

Progress = Callable[[int, int], None]
Report = Callable[[int], None]  # is told of how many further rounds were played, all games together

_slots = threading.BoundedSemaphore(DEVICE_STREAMS)  # of the whole process


class Order(NamedTuple):
    """A pair that is to be played."""

    label: str
    policy: Policy
    environment: Environment
    rounds: np.ndarray  # checkpoints
    repetitions: int
    seed: int
    first: int = 0  # repetition


def fill(trials: Sequence[tuple[Results, int]], progress: Progress | None) -> None:
    """Play as many repetitions as are asked for of what each `Results` describes, all at once."""
    owners, orders = [], []
    for results, repetitions in trials:
        for label, policy in results.policies.items():
            pair = label, policy, results.environment
            owners.append(results)
            orders.append(Order(*pair, results.checkpoints, repetitions, results.seed))
    whole = sum(order.repetitions * int(order.rounds[-1]) for order in orders)
    total = 0

    def report(rounds: int) -> None:
        nonlocal total
        total += rounds
        if progress is not None:
            progress(total, whole)

    for number, run in play_orders(orders, report):
        owners[number].add(run)


def play_orders(orders: Sequence[Order], report: Report) -> Iterator[tuple[int, Run]]:
    """Each repetition of each order with the order's number, as they come."""
    from numba import cuda

    lock = threading.Lock()
    groups = alike(orders)
    memory = DeviceMemory(bytes_of_games(orders))
    with compiler:
        cuda.current_context()  # made once, before many threads ask for it

    def task(numbers: list[int]) -> Callable[[Callable[[], None]], list[list[Run]]]:
        def play(raise_if_stopped: Callable[[], None]) -> list[list[Run]]:
            def report_in_turn(rounds: int) -> None:
                raise_if_stopped()
                with lock:
                    report(rounds)

            with _slots:
                raise_if_stopped()
                mine = [orders[number] for number in numbers]
                with on_device():
                    return Group(mine, memory, raise_if_stopped).play(report_in_turn)

        return play

    with closing(memory):
        for at, runs in run_tasks([task(numbers) for numbers in groups], DEVICE_STREAMS):
            for number, runs_of_order in zip(groups[at], runs, strict=True):
                yield from ((number, run) for run in runs_of_order)


def alike(orders: Sequence[Order]) -> list[list[int]]:
    """The numbers of the orders, those together that one launch can play; the longest first."""
    groups: dict[Any, list[int]] = {}
    for number, order in enumerate(orders):
        how = order.rounds.tobytes(), order.repetitions, order.first
        groups.setdefault((*likeness(order.policy, order.environment), *how), []).append(number)

    def length(numbers: list[int]) -> int:
        order = orders[numbers[0]]
        return int(order.rounds[-1]) * bytes_of_game(order)

    return sorted(groups.values(), key=length, reverse=True)


def bytes_of_game(order: Order) -> int:
    """The memory that one game takes on the device, its total and its fault among it."""
    return bytes_of(state_of(order.policy)) + 16


def bytes_of_games(orders: Sequence[Order]) -> int:
    """The memory that all their games would take at once, with what they read."""
    constants = [order.policy.constants() for order in orders]
    constants += [order.environment.constants() for order in orders]
    games = sum(order.repetitions * bytes_of_game(order) for order in orders)
    return games + sum(bytes_of(each) for each in constants)


def some_on_device(
    label: str,
    policy: Policy,
    environment: Environment,
    rounds: np.ndarray,
    seed: int,
    repetitions: Sequence[int],
) -> Iterator[Run]:
    """These repetitions of a pair, one stretch after the other."""
    for order in orders_of(label, policy, environment, rounds, seed, repetitions):
        with on_device():
            (runs,) = Group([order]).play()
        yield from runs


def orders_of(
    label: str,
    policy: Policy,
    environment: Environment,
    rounds: np.ndarray,
    seed: int,
    repetitions: Sequence[int],
) -> list[Order]:
    """These repetitions of a pair, which ascend; what was left out was played before."""
    return [
        Order(label, policy, environment, rounds, count, seed, first)
        for first, count in stretches(repetitions)
    ]


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


class Group:
    """Orders that are alike, on a stream of their own.

    Args:
        orders: what is to be played.
        memory: what it shares with the groups that are played beside it.
        raise_if_stopped: is called before it compiles, and raises an error if it is to end.
    """

    def __init__(
        self,
        orders: Sequence[Order],
        memory: DeviceMemory | None = None,
        raise_if_stopped: Callable[[], None] = lambda: None,
    ) -> None:
        from numba import cuda

        self.orders = orders
        self._needed = bytes_of_games(orders)
        self._memory = memory or DeviceMemory(self._needed)
        self._pairs = [(order.policy, order.environment) for order in orders]
        self._seeds = [order.seed for order in orders]
        self._stream, self._event = cuda.stream(), cuda.event(timing=False)
        policy, environment = self._pairs[0]
        for order in orders:
            _rehearse(order)
        with compiler, compiling(f"{policy.name} on {environment.name}, for the GPU,"):
            raise_if_stopped()  # others may have compiled for a minute
            self._loop = loop_of(policy, environment, len(orders) > 1)
            games = self._set_up(1)
            self._launcher(1)(0, 0, 0, *games)
        self._memory.keep(games)

    def play(self, report: Report = lambda _: None) -> list[list[Run]]:
        """The repetitions of each order, as many at once as fit."""
        _, _, _, rounds, repetitions, _, start = self.orders[0]
        runs: list[list[Run]] = [[] for _ in self.orders]
        first = start
        while first < start + repetitions:
            with laying_out:
                count = min(self._games_at_once(), start + repetitions - first)
                games = self._set_up(count)
                if first + count == start + repetitions:
                    self._memory.laid_out(self._needed)
            regret, pulls = self._play_together(games, rounds, first, count, report)
            self._memory.keep(games)
            del games  # if they are not kept, the next take their place
            for pair, order in enumerate(self.orders):
                runs[pair] += [
                    Run(order.label, first + game, regret[pair, game], pulls[pair, game])
                    for game in range(count)
                ]
            first += count
        return runs

    def _play_together(
        self, games: Games, rounds: np.ndarray, first: int, count: int, report: Report
    ) -> tuple[np.ndarray, np.ndarray]:
        """Regret at each checkpoint and pulls at the end, of each pair and game."""
        launch = self._launcher(count)
        regret = np.empty((len(self.orders), count, rounds.size))
        rounds_so_far, chunk, rate = 0, _FIRST_LAUNCH, np.inf
        self._wait(0.0)  # for the games to be laid out
        for c, checkpoint in enumerate(rounds.tolist()):
            while rounds_so_far < checkpoint:
                until = min(checkpoint, rounds_so_far + chunk)
                began = time.perf_counter()
                launch(first, rounds_so_far, until, *games)
                self._wait((until - rounds_so_far) / rate)
                rate = (until - rounds_so_far) / max(time.perf_counter() - began, 1e-6)
                chunk = max(1, min(int(rate * _SECONDS), 8 * chunk))
                report((until - rounds_so_far) * count * len(self.orders))
                rounds_so_far = until
            pulls, totals = self._looked_at(games, count)
            for pair, (_, environment) in enumerate(self._pairs):
                at = np.full(count, checkpoint)
                regret[pair, :, c] = environment.regret(at, pulls[pair], totals[pair])
        return regret, pulls

    def _set_up(self, count: int) -> Games:
        from numba import cuda

        def put(array: np.ndarray) -> Any:
            return cuda.to_device(array, stream=self._stream)

        def spread(array: np.ndarray, games: int) -> Any:
            return spread_on_device(array, games, self._stream, self._memory.keep)

        return set_up(self._pairs, self._seeds, count, put, spread)

    def _launcher(self, count: int) -> Callable[..., None]:
        """What plays so many games of each pair, given the rounds and the games."""
        apart = apart_of(count * len(self.orders))
        blocks = -(-count * apart // device_loop.THREADS)
        with compiler, warnings.catch_warnings():
            # Of few games, whose number is the user's choice.
            warnings.filterwarnings("ignore", ".*Grid size")
            launch = self._loop[blocks * len(self.orders), device_loop.THREADS, self._stream]
        return functools.partial(launch, count, blocks, apart)

    def _wait(self, seconds: float) -> None:
        """Until what was launched is done, in about so many seconds: others play meanwhile."""
        self._event.record(self._stream)
        while not self._event.query():
            time.sleep(max(_LOOK, min(seconds, _SECONDS) / _LOOKS))

    def _looked_at(self, games: Games, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Pulls [pair, game, arm] and totals [pair, game]; an error if there is no such arm."""
        faults, totals, pulls = (
            array.copy_to_host(stream=self._stream)
            for array in (games.faults, games.totals, games.states[device_loop.PULLS])
        )
        self._stream.synchronize()
        shape = len(self.orders), count
        for order, rounds in zip(self.orders, faults.reshape(shape), strict=True):
            if rounds.any():
                raise no_such_arm(order.label, int(rounds[rounds > 0].min()), order.policy.arms)
        return np.ascontiguousarray(pulls.T).reshape(*shape, -1), totals.reshape(shape)

    def _games_at_once(self) -> int:
        """Of each pair, as many as its share of the free memory holds: all, if all games fit."""
        share = self._memory.share(self._needed)
        most = min(int(share * self.orders[0].repetitions), _MOST_GAMES // len(self.orders))
        return max(1, most)


def _rehearse(order: Order) -> None:
    """As on the CPU; a device would write anywhere."""
    policy, environment = order.policy, order.environment
    begin, choose, learn, _ = policy.kernels
    kernels = begin, choose, learn, policy.prepare(), environment.draw, environment.advise
    fixed = policy.constants(), environment.constants(), environment.arms
    rehearse(make_play, kernels, fixed, order.rounds, streams=3)


def apart_of(games: int) -> int:
    """Threads from one game to the next: a power of two, at most a warp's 32.

    >>> apart_of(90), apart_of(2_000)
    (8, 1)
    """
    apart = 1
    while apart < 32 and 2 * apart * games <= _SPREAD:
        apart *= 2
    return apart
