"""The same life with other answers: what chance reaches, and who reads a release."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from balaclava.auditing.replay.recorded_run import (
    Observation,
    RecordedRun,
    ReplayOutcome,
    ScenarioRunner,
)
from balaclava.auditing.scenario import Neighbour
from balaclava.auditing.tape import Divergence, Recorder, Replayer
from balaclava.errors import PrivacyError
from balaclava.policies.base import Policy

_FAILURES = (PrivacyError, ArithmeticError, IndexError, ValueError)


def rerun(
    policy: Policy, game: RecordedRun, rng: Any, rounds: int, neighbour: Neighbour | None = None
) -> Iterator[tuple[int, Observation]]:
    """Each round's decision with other answers, and after the last one what an agent shows.

    Whatever is decided, it goes on by the recorded decisions.
    """
    course = ScenarioRunner(policy, game.life)
    state = course.begin()
    for i in range(rounds):
        yield i, course.choose(state, i, rng)
        for item in game.life.happenings(i):
            changed = neighbour is not None and item == neighbour.slot + 1
            reward = neighbour.reward if neighbour is not None and changed else None
            course.happen(state, item, game.decisions[abs(item) - 1], rng, reward)
        state = course.restore(state, i)
    yield rounds, course.shown(state, game.decisions[rounds - 1][0])


def depends_on_chance(
    policy: Policy,
    game: RecordedRun,
    neighbour: Neighbour,
    outcome: ReplayOutcome,
    seed: int,
    times: int = 48,
) -> bool:
    """Whether randomness reaches what was seen: with other answers something else is.

    A plain draw anywhere before it counts as reaching it.
    """
    at = outcome.differs
    assert at is not None  # the caller has looked
    beside = isinstance(outcome.seen, bytes)
    end, place = (game.marks[at + 1], at + 1) if beside else (game.chosen[at], at)
    if any(entry.terms is None for entry in game.tape[:end]):
        return True
    before = game.shown[at] if beside else game.decisions[at]
    for number in range(times):
        side = number % 2
        expected = outcome.seen if side else before
        other = rerun(policy, game, Recorder(seed, number), at + 1, neighbour if side else None)
        try:
            if any(i == place and seen != expected for i, seen in other):
                return True
        except _FAILURES:
            return True
    return False


def reading_rounds(
    policy: Policy, game: RecordedRun, place: int, seed: int, redraws: int = 3
) -> np.ndarray:
    """Which rounds' decisions change when one answer of the tape is another: [rounds] of bool."""
    entry, rounds = game.tape[place], game.life.rounds
    changed = np.zeros(rounds, bool)
    assert entry.terms is not None and entry.body is not None  # noqa: PT018
    span = 50.0 * entry.terms.sensitivity / max(entry.terms.epsilon, 1e-3)
    answer = np.asarray(entry.answer, float)
    others = [answer + span, answer - span]
    noise = np.random.default_rng([seed, place]).laplace(0.0, span / 50.0, redraws)
    others += [answer + shift for shift in noise]
    for other in others:
        value = float(other) if other.ndim == 0 else tuple(other.tolist())
        tape = [*game.tape[:place], entry._replace(answer=value), *game.tape[place + 1 :]]
        try:
            for i, seen in rerun(policy, game, Replayer(tape, 0, lenient=True), rounds):
                if i < rounds:
                    changed[i] |= seen != game.decisions[i]
        except Divergence:
            # From here on it asks other things: what was released steers what is asked.
            changed[int(np.searchsorted(game.marks, place, side="right")) :] = True
        except _FAILURES:
            continue
    return changed
