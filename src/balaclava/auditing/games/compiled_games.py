"""Compiled games on a life: the raw material of the statistical audit, and the way far ahead.

A game is summarised by how often each arm was pulled up to some rounds (the probes), and by how
long its decisions were those of a reference. What tells two reward streams apart is then an event
such as "by round 40 arm 1 was pulled at most 3 times", or "round 40 was decided as in the
reference". Games are only counted, never stored, so memory does not depend on their number.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.kernels import compiled, compiling, kernel
from balaclava.auditing.scenario import Scenario, pack_state, plain_scenario
from balaclava.errors import no_such_arm
from balaclava.policies.base import Policy
from balaclava.privacy.randomness import seeded
from balaclava.simulation.engine import available_cores

COUNTED_ARMS = 4  # arms whose pulls are counted: the streams differ in the first two
_BLOCKS = 16  # a random stream serves a block of games
_FEW_STEPS = 300_000  # that are not worth a thread
_BEGINNING = 100  # steps that the beginning of a game costs, about
_NOTHING, _EMPTY = np.zeros(0, np.int64), np.zeros(0, np.uint64)


class OutputEvent(NamedTuple):
    """Arm `arm` was pulled at least (or at most) `pulls` times in the first `round` rounds.

    And arm `branch` was pulled in the round that differs, unless that is the number of arms that
    are watched, which stands for any.
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
    """What is counted over games."""

    pulls: np.ndarray  # [branch, arm, probe, n]: games with n pulls of the arm by the probe
    same: np.ndarray  # [rounds]: games that decided the round as the reference did
    prefix: np.ndarray  # [rounds]: and all rounds up to it


@kernel
def no_context(contexts: Any, i: int) -> Any:
    """For policies that take none."""
    return None


@kernel
def context_of_round(contexts: np.ndarray, i: int) -> np.ndarray:
    """For policies that take one."""
    row: np.ndarray = contexts[i]
    return row


@kernel(borrows=True)
def count_pulls(histogram: Any, pulls: Any) -> None:
    """One game more with so many pulls of each arm."""
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
    """A loop over games of one life.

    Each begins anew if `fresh`, or else with the state's memory as in `origin`, or, if that is
    empty, where the state is. The decisions of the first `quiet` rounds are those in `arms` and
    `phases`, and the state is what came of them.
    """

    def play(
        params: Any,
        given_state: Any,
        memory: np.ndarray,
        origin: np.ndarray,
        fresh: bool,
        quiet: int,
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
        rng: Any,
    ) -> int:
        rounds, watched = offsets.size - 1, histogram.shape[1]
        pulls = np.zeros(rewards.shape[1], np.int64)
        for _ in range(games):
            memory[: origin.size] = origin
            state = begin(params) if fresh else given_state
            pulls[:] = 0
            probe, branch, alike = 0, 0, True
            for i in range(rounds):
                if i >= quiet:
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
                    count_pulls(histogram[min(branch, watched), :, probe], pulls)
                    probe += 1
        return 0

    return play


def compiled_loop(policy: Policy) -> Callable[..., int]:
    """The compiled loop of a policy."""
    context = no_context if policy.practice_context is None else context_of_round
    loop: Callable[..., int] = compiled(make_play, *policy.kernels, policy.prepare(), context)
    return loop


class GameStart(NamedTuple):
    """Where games begin: a state, and the rounds that led to it and need not be played again."""

    params: Any
    state: Any
    memory: np.ndarray  # in which the state lies
    origin: np.ndarray  # what the memory holds at the start of each game; empty to play on
    decisions: np.ndarray  # [2, slots]
    fresh: bool = False  # whether each game begins at the policy's beginning
    quiet: int = 0  # rounds that are already in the state

    def copied(self) -> GameStart:
        """The same with memory of its own."""
        state, memory = pack_state(self.state)
        return self._replace(state=state, memory=memory, decisions=self.decisions.copy())

    @classmethod
    def of(cls, policy: Policy, life: Scenario) -> GameStart:
        """At the beginning of a life; every game begins there."""
        params = policy.constants()
        origin = policy.kernels.begin(params) if life.start is None else life.start
        state, memory = pack_state(origin)
        fresh = life.start is None  # untouched memory costs nothing, a copy of it would
        begun = memory[:0] if fresh else memory.copy()
        return cls(params, state, memory, begun, decisions_of(life), fresh)

    @classmethod
    def going_on(cls, params: Any, state: Any, life: Scenario) -> GameStart:
        """In a state that is to be changed: one game, which goes on from there."""
        return cls(params, state, _EMPTY, _EMPTY, decisions_of(life))

    def after_quiet(self, policy: Policy, life: Scenario, rewards: np.ndarray) -> GameStart:
        """Past the rounds in which nothing is drawn: they are the same in every game.

        They are looked for if they fill at least half of the life.
        """
        start, last = self, life.rounds
        step = (last + 1) // 2
        while step:
            step = min(step, last - start.quiet)
            part = dataclasses.replace(life, offsets=life.offsets[: start.quiet + step + 1])
            further, rng = start.copied()._replace(fresh=False), seeded(0)
            before = str(rng.bit_generator.state)
            play_block(policy, part, rewards, 1, 1, _NOTHING, None, further, rng)
            if str(rng.bit_generator.state) == before:
                quiet, origin = part.rounds, further.memory.copy()
                start = further._replace(quiet=quiet, origin=origin)
            elif start.quiet == 0:
                break
            step //= 2
        return start


def decisions_of(life: Scenario) -> np.ndarray:
    """Room for the decisions of a life, with those that were made before it."""
    decisions = np.zeros((2, len(life.times)), np.int64)
    decisions[:, life.rounds :] = life.held.T
    return decisions


def play_block(
    policy: Policy,
    life: Scenario,
    rewards: np.ndarray,
    games: int,
    place: int,
    probes: np.ndarray,
    reference: np.ndarray | None,
    start: GameStart,
    rng: Any,
) -> GameCounts:
    """Some games on one random stream; the decisions of the last are in `start`."""
    return play_blocks(policy, life, rewards, [(games, rng)], place, probes, reference, start)


def play_blocks(
    policy: Policy,
    life: Scenario,
    rewards: np.ndarray,
    blocks: list[tuple[int, Any]],
    place: int,
    probes: np.ndarray,
    reference: np.ndarray | None,
    start: GameStart,
) -> GameCounts:
    """Blocks of games, each on a random stream of its own, all counted together."""
    watched = min(policy.arms, COUNTED_ARMS)
    deepest = int(probes[-1]) + 1 if probes.size else 1
    counts = GameCounts(
        np.zeros((watched + 1, watched, probes.size, deepest), np.int64),
        np.zeros(life.rounds, np.int64),
        np.zeros(life.rounds, np.int64),
    )
    columns = (_NOTHING, _NOTHING) if reference is None else np.ascontiguousarray(reference.T)
    loop = compiled_loop(policy)
    for games, rng in blocks:
        lost = loop(
            start.params, start.state, start.memory, start.origin, start.fresh, start.quiet,
            life.contexts, life.times, rewards, life.offsets, life.items, *start.decisions, games,
            place, probes, *columns, *counts, rng,
        )  # fmt: skip
        if lost:
            raise no_such_arm(policy.name, lost, policy.arms)
    counts.pulls[-1] = counts.pulls.sum(axis=0)
    return counts


def warm_up(policy: Policy) -> None:
    """Compile the loop of a policy."""
    life = plain_scenario(policy, np.full((1, policy.arms), float(np.clip(0.0, *policy.accepts))))
    start = GameStart.of(policy, life)
    with compiling(policy.name):
        play_block(policy, life, life.rewards, 1, 1, _NOTHING, None, start, seeded(0))


def play_scenario(
    policy: Policy,
    life: Scenario,
    rewards: np.ndarray,
    games: int,
    place: int,
    probes: np.ndarray,
    reference: np.ndarray | None,
    seed: int,
    *path: int,
) -> GameCounts:
    """Many games on a life with these rewards. No probe comes before `place`."""
    start = GameStart.of(policy, life).after_quiet(policy, life, rewards)
    sizes = np.full(_BLOCKS, games // _BLOCKS)
    sizes[: games % _BLOCKS] += 1
    blocks = [(int(size), seeded(seed, *path, number)) for number, size in enumerate(sizes)]

    def part(own: GameStart, mine: list[tuple[int, Any]]) -> GameCounts:
        return play_blocks(policy, life, rewards, mine, place, probes, reference, own)

    if games * (_BEGINNING + life.rounds - start.quiet) < _FEW_STEPS:
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
    """How many of `games` games had n pulls of an arm by a probe: counts[branch, arm, probe, n].

    `branch` is the arm that was pulled in round `place`; the last row is the sum over all of them.
    No probe comes before `place`.
    """
    life = plain_scenario(policy, rewards[: int(probes[-1])])
    counts = play_scenario(policy, life, life.rewards, games, place, probes, None, seed, *path)
    return counts.pulls
