"""Compiled games: many runs of a scenario, summarised by counts.

Counted are the pulls of each arm up to some rounds (the probes), and the decisions that equal those
of a reference. An event such as "by round 40 arm 1 was pulled at most 3 times" then distinguishes
two reward streams. Games are not stored, so memory does not grow with their number.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.kernels import compiled, compiling, kernel
from balaclava.auditing.scenario import Scenario, plain_scenario
from balaclava.auditing.state_copies import pack_state
from balaclava.errors import no_such_arm
from balaclava.policies.base import Policy
from balaclava.privacy.randomness import seeded
from balaclava.simulation.engine import available_cores

COUNTED_ARMS = 4  # arms whose pulls are counted: the streams differ in the first two
_GAME_STREAMS = 16  # random streams of a call; fixed, so results do not depend on the cores
_SINGLE_THREAD_ROUNDS = 300_000  # rounds, below which starting threads costs more than it saves
_ROUNDS_PER_START = 100  # rounds that take about as long as the beginning of a game
_PROBES = 24  # rounds at which games are counted; a guess
_NO_ROUNDS, _NO_MEMORY = np.zeros(0, np.int64), np.zeros(0, np.uint64)


class OutputEvent(NamedTuple):
    """Arm `arm` was pulled at least (or at most) `pulls` times in the first `round` rounds.

    In the round that differs, arm `branch` was pulled; the number of counted arms means any arm.
    """

    branch: int
    arm: int
    round: int
    pulls: int
    at_least: bool

    def __str__(self) -> str:
        how = "at least" if self.at_least else "at most"
        return f"arm {self.arm} is pulled {how} {self.pulls} times in the first {self.round} rounds"


class GameCounts(NamedTuple):
    pulls: np.ndarray  # [branch, arm, probe, n]: games with n pulls of the arm by the probe
    same: np.ndarray  # [rounds]: games whose decision in the round equals the reference
    prefix: np.ndarray  # [rounds]: and in all rounds before it


@kernel
def no_context(contexts: Any, i: int) -> Any:
    return None


@kernel
def context_of_round(contexts: np.ndarray, i: int) -> np.ndarray:
    row: np.ndarray = contexts[i]
    return row


@kernel(borrows=True)
def count_pulls(histogram: Any, pulls: Any) -> None:
    """Count one game with these pulls of each arm."""
    for arm in range(histogram.shape[0]):
        histogram[arm, pulls[arm]] += 1


def make_play(
    begin: Callable[..., Any],
    choose: Callable[..., Any],
    learn: Callable[..., Any],
    forget: Callable[..., Any],
    prepare: Callable[..., Any],
    context: Callable[..., Any],
) -> Callable[..., Any]:
    """A loop over games of one scenario; `GameStart` has the first arguments."""

    def play(
        params: Any,
        given_state: Any,
        memory: np.ndarray,
        origin: np.ndarray,
        from_scratch: bool,
        skipped: int,
        contexts: Any,
        times: np.ndarray,
        rewards: np.ndarray,
        offsets: np.ndarray,
        items: np.ndarray,
        arms: np.ndarray,
        phases: np.ndarray,
        games: int,
        place: int,
        probes: np.ndarray,
        reference_arms: np.ndarray,
        reference_phases: np.ndarray,
        histogram: np.ndarray,
        same: np.ndarray,
        prefix: np.ndarray,
        finished: np.ndarray,
        rng: Any,
    ) -> int:
        rounds, counted = offsets.size - 1, histogram.shape[1]
        pulls = np.zeros(rewards.shape[1], np.int64)
        for game in range(games):
            finished[0] = game
            memory[: origin.size] = origin
            state = begin(params) if from_scratch else given_state
            pulls[:] = 0
            probe, branch, alike = 0, 0, True
            for i in range(rounds):
                if i >= skipped:
                    arm, phase = choose(params, state, times[i], context(contexts, i), rng)
                    if arm < 0 or arm >= pulls.size:  # compiled code would write anywhere
                        return times[i]
                    arms[i], phases[i] = arm, phase
                    for item in items[offsets[i] : offsets[i + 1]]:
                        s = abs(item) - 1
                        if item > 0:
                            reward = prepare(params, rewards[s, arms[s]])
                            learn(params, state, times[s], arms[s], reward, phases[s], rng)
                        else:
                            forget(params, state, times[s], arms[s], phases[s], rng)
                arm, phase = arms[i], phases[i]
                pulls[arm] += 1
                if i + 1 == place:
                    branch = arm
                if reference_arms.size > 0:
                    as_before = arm == reference_arms[i] and phase == reference_phases[i]
                    alike &= as_before
                    same[i] += as_before
                    prefix[i] += alike
                if probe < probes.size and i + 1 == probes[probe]:
                    count_pulls(histogram[min(branch, counted), :, probe], pulls)
                    probe += 1
        return 0

    return play


def compiled_loop(policy: Policy) -> Callable[..., int]:
    context = no_context if policy.practice_context is None else context_of_round
    loop: Callable[..., int] = compiled(make_play, *policy.kernels, policy.prepare(), context)
    return loop


class GameStart(NamedTuple):
    """The state in which games begin, and the rounds that it already contains."""

    params: Any
    state: Any
    memory: np.ndarray  # holds the state
    origin: np.ndarray  # the memory's content at the start of each game; empty to continue
    decisions: np.ndarray  # [2, slots]
    from_scratch: bool = False  # whether each game begins with the policy's own `begin`
    skipped: int = 0  # rounds that are already in the state

    def copied(self) -> GameStart:
        """A deep copy."""
        state, memory = pack_state(self.state)
        return self._replace(state=state, memory=memory, decisions=self.decisions.copy())

    @classmethod
    def of(cls, policy: Policy, scenario: Scenario) -> GameStart:
        """A start for games that begin where the scenario does."""
        params = policy.constants()
        from_scratch = scenario.initial_state is None
        origin = policy.kernels.begin(params) if from_scratch else scenario.initial_state
        state, memory = pack_state(origin)
        begun = memory[:0] if from_scratch else memory.copy()  # `begin` is cheaper than a copy
        return cls(params, state, memory, begun, decision_array(scenario), from_scratch)

    @classmethod
    def continuing(cls, params: Any, state: Any, scenario: Scenario) -> GameStart:
        """A start for one game that continues from a state, and changes it."""
        return cls(params, state, _NO_MEMORY, _NO_MEMORY, decision_array(scenario))

    def skip_deterministic(
        self, policy: Policy, scenario: Scenario, rewards: np.ndarray
    ) -> GameStart:
        """Skip the first rounds without a random draw: they are the same in every game.

        Nothing is skipped if they fill less than half of the scenario.
        """
        start, last = self, scenario.rounds
        step = (last + 1) // 2
        while step:
            step = min(step, last - start.skipped)
            offsets = scenario.event_offsets[: start.skipped + step + 1]
            part = dataclasses.replace(scenario, event_offsets=offsets)
            further, rng = start.copied()._replace(from_scratch=False), seeded(0)
            before, fails = str(rng.bit_generator.state), False
            try:
                continue_game(policy, part, rewards, further, rng)
            except Exception:
                fails = True  # games count the round
            if not fails and str(rng.bit_generator.state) == before:
                start = further._replace(skipped=part.rounds, origin=further.memory.copy())
            elif start.skipped == 0:
                break
            step //= 2
        return start


def decision_array(scenario: Scenario) -> np.ndarray:
    """An array for the decisions of a scenario, followed by the pending ones."""
    decisions = np.zeros((2, len(scenario.times)), np.int64)
    decisions[:, scenario.rounds :] = scenario.pending.T
    return decisions


def play_blocks(
    policy: Policy,
    scenario: Scenario,
    rewards: np.ndarray,
    blocks: list[tuple[int, Any]],
    place: int,
    probes: np.ndarray,
    reference: np.ndarray | None,
    start: GameStart,
    may_fail: bool = False,
) -> GameCounts:
    """Play blocks of games, each on its own random stream, and count them together.

    Afterwards `start` has the decisions of the last game. If games `may_fail`, one whose kernels
    raise an error ends there, and counts up to that round only.
    """
    counted = min(policy.arms, COUNTED_ARMS)
    deepest = int(probes[-1]) + 1 if probes.size else 1
    counts = GameCounts(
        np.zeros((counted + 1, counted, probes.size, deepest), np.int64),
        np.zeros(scenario.rounds, np.int64),
        np.zeros(scenario.rounds, np.int64),
    )
    columns = (_NO_ROUNDS, _NO_ROUNDS) if reference is None else np.ascontiguousarray(reference.T)
    loop, finished = compiled_loop(policy), np.zeros(1, np.int64)
    for games, rng in blocks:
        left = games
        while left > 0:
            try:
                failed = loop(
                    start.params, start.state, start.memory, start.origin, start.from_scratch,
                    start.skipped, scenario.contexts, scenario.times, rewards,
                    scenario.event_offsets, scenario.event_items, *start.decisions, left, place,
                    probes, *columns, *counts, finished, rng,
                )  # fmt: skip
                if failed:
                    raise no_such_arm(policy.name, failed, policy.arms)
                break
            except Exception as error:
                if not may_fail or of_the_compiler(error):
                    raise
                left -= int(finished[0]) + 1
    counts.pulls[-1] = counts.pulls.sum(axis=0)
    return counts


def of_the_compiler(error: Exception) -> bool:
    """Whether an error is of compiling a kernel, and not of running it."""
    return type(error).__module__.split(".")[0] == "numba"


def continue_game(
    policy: Policy, scenario: Scenario, rewards: np.ndarray, start: GameStart, rng: Any
) -> None:
    """Play one game for its state and its decisions, which are in `start` afterwards."""
    play_blocks(policy, scenario, rewards, [(1, rng)], 1, _NO_ROUNDS, None, start)


def warm_up(policy: Policy) -> None:
    rewards = np.full((1, policy.arms), float(np.clip(0.0, *policy.accepts)))
    scenario = plain_scenario(policy, rewards)
    start = GameStart.of(policy, scenario)
    with compiling(policy.name):
        play_blocks(
            policy, scenario, scenario.rewards, [(1, seeded(0))], 1, _NO_ROUNDS, None, start, True
        )


def play_scenario(
    policy: Policy,
    scenario: Scenario,
    rewards: np.ndarray,
    games: int,
    place: int,
    probes: np.ndarray,
    reference: np.ndarray | None,
    seed: int,
    *path: int,
) -> GameCounts:
    """Play many games of a scenario with these rewards. All probes are after round `place`."""
    start = GameStart.of(policy, scenario).skip_deterministic(policy, scenario, rewards)
    sizes = np.full(_GAME_STREAMS, games // _GAME_STREAMS)
    sizes[: games % _GAME_STREAMS] += 1
    blocks = [(int(size), seeded(seed, *path, number)) for number, size in enumerate(sizes)]

    def part(own: GameStart, mine: list[tuple[int, Any]]) -> GameCounts:
        return play_blocks(policy, scenario, rewards, mine, place, probes, reference, own, True)

    if games * (_ROUNDS_PER_START + scenario.rounds - start.skipped) < _SINGLE_THREAD_ROUNDS:
        return part(start, blocks)
    cores = available_cores()
    starts = [start.copied() for _ in range(cores)]
    with ThreadPoolExecutor(cores) as pool:
        parts = list(pool.map(part, starts, [blocks[i::cores] for i in range(cores)]))
    return GameCounts(*(functools.reduce(np.add, each) for each in zip(*parts, strict=True)))


def count_pulls_in_games(
    policy: Policy,
    rewards: np.ndarray,
    games: int,
    place: int,
    probes: np.ndarray,
    seed: int,
    *path: int,
) -> np.ndarray:
    """Number of games with n pulls of an arm by a probe: counts[branch, arm, probe, n].

    `branch` is the arm that was pulled in round `place`; the last row is the sum over all of them.
    All probes are after round `place`.
    """
    scenario = plain_scenario(policy, rewards[: int(probes[-1])])
    counts = play_scenario(
        policy, scenario, scenario.rewards, games, place, probes, None, seed, *path
    )
    return counts.pulls


def probe_rounds(rounds: int, place: int) -> np.ndarray:
    """The rounds at which games are counted: from the changed round on, with growing distance."""
    spaced = np.geomspace(1, max(rounds - place, 1), _PROBES)
    return np.unique(np.clip(place + np.ceil(spaced), 1, rounds)).astype(np.int64)


def tail_counts(histogram: np.ndarray, at_least: bool) -> np.ndarray:
    """Games with at least (or at most) n pulls, for each n."""
    if at_least:
        return histogram[..., ::-1].cumsum(axis=-1)[..., ::-1]
    return histogram.cumsum(axis=-1)
