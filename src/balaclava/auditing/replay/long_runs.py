"""Long compiled runs on a tape: the checks of a replay, a hundred times as deep.

Faults may wait for long batches, ties, old rewards, or budgets that add up slowly. A run of
hundreds of thousands of rounds is recorded (`long_replay`). It is replayed with most rewards
changed: every decision must agree. It is also replayed with single rewards changed: their losses
must be within the claim.
"""

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from balaclava._core.kernels import compiled
from balaclava.auditing.compiled_tape import (
    ANSWER,
    CODE,
    FAULT,
    FURTHER_PART,
    MOVES,
    PLACE,
    REPLAYING,
    ROUND,
    SENSITIVITY,
    VALUE,
    CompiledTape,
    mechanisms_by_code,
    new_tape,
    register_draws,
)
from balaclava.auditing.games.compiled_games import (
    context_of_round,
    no_context,
    of_the_compiler,
)
from balaclava.auditing.replay.amplified_states import AMPLIFIED_DECISION, amplified
from balaclava.auditing.replay.recorded_run import (
    DIFFERENT_DECISION,
    DIFFERENT_DISPLAY,
    FAILS_HERE,
    FEWER_QUERIES,
    ScenarioRunner,
)
from balaclava.auditing.scenario import (
    Neighbour,
    Scenario,
    delayed_events,
    event_arrays,
    scenario_contexts,
)
from balaclava.auditing.state_copies import copy_state
from balaclava.auditing.tape import MovedInput
from balaclava.errors import no_such_arm
from balaclava.policies.base import Policy
from balaclava.privacy.mechanisms.base import Loss, Terms, distance
from balaclava.privacy.randomness import seeded

DIFFERENT_QUERIES = "in round {} a query to the randomness depends on a reward"
_QUERIES, _MOST_MOVES = 600_000, 20_000  # on a tape
_DISPLAY_STOPS = 12  # rounds at which displays are compared
_EVENT_CHUNK, _LONG_RUN_DELAY = 4_000, 8  # rounds
_LATEST_BY = 1_000  # rounds by which a few rewards are late at most
_LATEST_REWARDS = 16  # of a chunk, that are so late
_LONG_ROUNDS_AHEAD = 256  # in which decisions are compared, after a difference was enlarged


def make_long_play(
    choose: Callable[..., Any],
    learn: Callable[..., Any],
    forget: Callable[..., Any],
    prepare: Callable[..., Any],
    context: Callable[..., Any],
) -> Callable[..., Any]:
    """A loop over the rounds of one run; a replay ends where it differs."""

    def play(
        params: Any,
        state: Any,
        first: int,
        last: int,
        contexts: Any,
        rewards: np.ndarray,
        slot: int,
        other: float,
        offsets: np.ndarray,
        items: np.ndarray,
        arms: np.ndarray,
        phases: np.ndarray,
        places: np.ndarray,
        tape: Any,
    ) -> int:
        replaying = tape.cursor[REPLAYING] != 0
        for i in range(first, last):
            tape.cursor[ROUND] = i
            arm, phase = choose(params, state, i + 1, context(contexts, i), tape)
            if arm < 0 or arm >= rewards.shape[1]:
                return -i - 1
            if replaying and (arm != arms[i] or phase != phases[i]):
                return i
            arms[i], phases[i] = arm, phase
            if not replaying:
                places[i, 0] = tape.cursor[PLACE]
            for item in items[offsets[i] : offsets[i + 1]]:
                s = abs(item) - 1
                if item > 0:
                    value = other if s == slot else rewards[s, arms[s]]
                    learn(params, state, s + 1, arms[s], prepare(params, value), phases[s], tape)
                else:
                    forget(params, state, s + 1, arms[s], phases[s], tape)
            if replaying and (tape.cursor[FAULT] != 0 or tape.cursor[PLACE] != places[i, 1]):
                return i
            places[i, 1] = tape.cursor[PLACE]
            if tape.cursor[PLACE] >= tape.entries.shape[0]:
                return i
        return last

    return play


@dataclass
class LongRun:
    """A run of many rounds on a tape."""

    policy: Policy
    scenario: Scenario
    tape: CompiledTape
    decisions: np.ndarray  # [2, rounds]
    places: np.ndarray  # [rounds, 2]: length of the tape after each choice, and after the round
    rounds: int  # that were played
    displays: dict[int, bytes] = field(default_factory=dict)
    states: dict[int, Any] = field(default_factory=dict)  # where displays are compared
    failure: str = ""  # the error with which the last play ended

    @functools.cached_property
    def runner(self) -> ScenarioRunner:
        return ScenarioRunner(self.policy, self.scenario)

    def play(
        self,
        rewards: np.ndarray,
        neighbour: Neighbour | None,
        replaying: bool,
        states: dict[int, Any] | None = None,
    ) -> tuple[int, bool]:
        """Play until something differs: the rounds that agree, and whether a display differs.

        `states` receives those at which displays are compared.
        """
        self.tape.cursor[:], self.failure = 0, ""
        self.tape.cursor[REPLAYING] = replaying
        state, done = self.runner.begin(), 0
        planned = np.geomspace(1, self.scenario.rounds, _DISPLAY_STOPS).astype(int)
        for stop in np.unique(np.minimum(planned, self.rounds)).tolist():
            ended = self.advance(state, done, stop, rewards, neighbour)
            if ended < stop:
                return ended, False
            done, seen = stop, self.runner.display(state, int(self.decisions[0, stop - 1]))
            if self.displays.setdefault(stop, seen) != seen:
                return stop - 1, True
            if states is not None:
                states[stop] = copy_state(state)
        return done, False

    def advance(
        self, state: Any, first: int, last: int, rewards: np.ndarray, neighbour: Neighbour | None
    ) -> int:
        """Play the rounds from `first` to `last`: the round that differs, or `last`."""
        policy, scenario = self.policy, self.scenario
        slot, other = neighbour or (-1, 0.0)
        context = no_context if policy.practice_context is None else context_of_round
        loop = compiled(make_long_play, *policy.kernels[1:], policy.prepare(), context)
        try:
            ended: int = loop(
                self.runner.params, state, first, last, scenario.contexts, rewards, slot, other,
                scenario.event_offsets, scenario.event_items, *self.decisions, self.places,
                self.tape,
            )  # fmt: skip
            if ended < 0:
                raise no_such_arm(policy.name, -ended, policy.arms)
        except Exception as error:
            if of_the_compiler(error):
                raise
            self.failure = type(error).__name__
            return int(self.tape.cursor[ROUND])
        return ended

    def amplified_fault(self, states: dict[int, Any]) -> tuple[str, int]:
        """The decision that changes if what other rewards left in `states` is enlarged, or ""."""
        stops = [stop for stop in states if stop in self.states and stop < self.rounds]
        for stop, sign in itertools.product(stops, (1.0, -1.0)):
            self.tape.cursor[:], self.failure = 0, ""
            self.tape.cursor[REPLAYING], self.tape.cursor[PLACE] = 1, self.places[stop - 1, 1]
            larger = amplified(self.states[stop], states[stop], sign)
            last = min(stop + _LONG_ROUNDS_AHEAD, self.rounds)
            i = self.advance(larger, stop, last, self.scenario.rewards, None)
            if i >= last or self.failure or self.tape.cursor[FAULT]:
                continue
            if self.tape.cursor[PLACE] <= self.places[i, 0]:  # not another query
                return AMPLIFIED_DECISION.format(i + 1), i
        return "", 0

    def replay(
        self,
        rewards: np.ndarray,
        neighbour: Neighbour | None = None,
        states: dict[int, Any] | None = None,
    ) -> tuple[str, int]:
        """The fault of a replay with other rewards, or "", and its round from 0; see `play`."""
        ended, displayed = self.play(rewards, neighbour, True, states)
        if ended >= self.rounds:
            return "", ended
        if self.failure:
            return FAILS_HERE.format(ended + 1, self.failure), ended
        if displayed:
            return DIFFERENT_DISPLAY.format(ended + 1), ended
        if self.tape.cursor[FAULT]:
            return DIFFERENT_QUERIES.format(ended + 1), ended
        if self.tape.cursor[PLACE] <= self.places[ended, 0]:
            return DIFFERENT_DECISION.format(ended + 1), ended
        return FEWER_QUERIES.format(ended + 1), ended

    def moved(self) -> list[MovedInput]:
        """The mechanisms whose inputs moved in the last replay, by place on the tape."""
        return moved_inputs(self.tape.entries, self.tape.moves[: self.tape.cursor[MOVES]])


def record_long_run(
    policy: Policy,
    rewards: np.ndarray,
    *,
    seed: int,
    script: tuple[float, ...],
    share: float,
    late: bool = False,
) -> LongRun:
    """Record a run with these rewards; a share of the answers is scripted."""
    register_draws()
    rng, rounds = np.random.default_rng([seed, 5]), len(rewards)
    offsets, items = long_events(rounds, late, rng)
    contexts = scenario_contexts(policy, rounds, rng)
    scenario = Scenario(np.arange(1, rounds + 1), rewards, contexts, offsets, items)
    tape = new_tape(seeded(seed, 5), _QUERIES, _MOST_MOVES, script, share)
    places, decisions = np.zeros((rounds, 2), np.int64), np.zeros((2, rounds), np.int64)
    run = LongRun(policy, scenario, tape, decisions, places, rounds)
    run.rounds, _ = run.play(rewards, None, False, run.states)
    run.displays = {stop: seen for stop, seen in run.displays.items() if stop <= run.rounds}
    return run


def long_events(rounds: int, late: bool, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Prompt rewards; or rewards up to 8 rounds late with a tenth of the decisions cancelled.

    Then a few rewards are up to a thousand rounds late.
    """
    if not late:
        return np.arange(rounds + 1), np.arange(1, rounds + 1)
    events = delayed_events(_EVENT_CHUNK, _LONG_RUN_DELAY, 0.1, rng)
    for round_ in rng.integers(0, _EVENT_CHUNK - _LATEST_BY, _LATEST_REWARDS).tolist():
        late_ones = [item for item in events[round_] if item > 0][:1]
        events[round_] = [item for item in events[round_] if item not in late_ones]
        events[round_ + int(rng.integers(_LATEST_BY))] += late_ones
    offsets, items = event_arrays(events)
    chunks = -(-rounds // _EVENT_CHUNK)
    starts = [offsets[:-1] + number * offsets[-1] for number in range(chunks)]
    moved = [items + np.sign(items) * number * _EVENT_CHUNK for number in range(chunks)]
    whole = np.append(np.concatenate(starts), chunks * offsets[-1])[: rounds + 1]
    return whole, np.concatenate(moved)


def moved_inputs(entries: np.ndarray, moves: np.ndarray) -> list[MovedInput]:
    """Moved inputs with their losses; the moved parts of an array are one input."""
    table, known = mechanisms_by_code(), dict[Any, Loss]()
    results: list[MovedInput] = []
    i, further = 0, entries[:, CODE] % 1.0 == FURTHER_PART
    while i < len(moves):
        first = int(moves[i, 0])
        while further[first]:
            first -= 1
        end = first + 1
        while end < len(further) and further[end]:
            end += 1
        now = entries[first:end, VALUE].copy()
        while i < len(moves) and moves[i, 0] < end:
            now[int(moves[i, 0]) - first] = moves[i, 1]
            i += 1
        mechanism = table[int(entries[first, CODE])]
        rest = entries[first, SENSITIVITY:ANSWER].tolist()
        one, other = (
            Terms(tuple(part.tolist()) if "out" in mechanism.arguments else float(part[0]), *rest)
            for part in (entries[first:end, VALUE], now)
        )
        apart = distance(one.value, other.value, mechanism.norm)
        key = (mechanism.name, *rest, *((one, other) if mechanism.loss_between else (apart,)))
        if key not in known:
            known[key] = mechanism.loss(one, other)
        results.append(
            MovedInput(
                mechanism.name, other, known[key], mechanism.local, first, apart / rest[0],
                mechanism.views is not None,
            )
        )  # fmt: skip
    return results
