"""Reruns with other answers: which observations depend on chance, and which on a release."""

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

# Errors that a policy may raise after an impossible answer.
_RERUN_ERRORS = (PrivacyError, ArithmeticError, IndexError, ValueError)
_RERUNS = 48  # with new answers: a dependence of probability 1/2 is missed once in 10^14
_FAR_SHIFT = 50.0  # noise scales by which an answer is moved, to change any decision


def rerun(
    policy: Policy, run: RecordedRun, rng: Any, rounds: int, neighbour: Neighbour | None = None
) -> Iterator[tuple[int, Observation]]:
    """Each round's decision with other answers, and after the last one what an agent displays.

    After each decision the run continues with the recorded one.
    """
    runner = ScenarioRunner(policy, run.scenario)
    state = runner.begin()
    for i in range(rounds):
        yield i, runner.choose(state, i, rng)
        runner.apply_events(state, i, run.decisions, rng, neighbour)
        state = runner.restore(state, i)
    yield rounds, runner.display(state, run.decisions[rounds - 1][0])


def depends_on_chance(
    policy: Policy, run: RecordedRun, neighbour: Neighbour, outcome: ReplayOutcome, seed: int
) -> bool:
    """Whether other answers change the observation in which two streams differ.

    Any plain draw before it counts as changing it.
    """
    at = outcome.round
    assert at is not None  # the caller has checked
    displayed = isinstance(outcome.seen, bytes)
    end, place = (run.round_starts[at + 1], at + 1) if displayed else (run.choice_ends[at], at)
    if any(entry.terms is None for entry in run.tape[:end]):
        return True
    before = run.displays[at] if displayed else run.decisions[at]
    for number in range(_RERUNS):
        side = number % 2
        expected = outcome.seen if side else before
        other = rerun(policy, run, Recorder(seed, number), at + 1, neighbour if side else None)
        try:
            if any(i == place and seen != expected for i, seen in other):
                return True
        except _RERUN_ERRORS:
            return True
    return False


def reading_rounds(
    policy: Policy, run: RecordedRun, position: int, seed: int, redraws: int = 3
) -> np.ndarray:
    """Whether each round's decision depends on one answer of the tape: [rounds] of bool."""
    entry, rounds = run.tape[position], run.scenario.rounds
    changed = np.zeros(rounds, bool)
    assert entry.terms is not None and entry.body is not None  # noqa: PT018
    span = _FAR_SHIFT * entry.terms.sensitivity / max(entry.terms.epsilon, 1e-3)
    answer = np.asarray(entry.answer, float)
    others = [answer + span, answer - span]
    noise = np.random.default_rng([seed, position]).laplace(0.0, span / _FAR_SHIFT, redraws)
    others += [answer + shift for shift in noise]
    for other in others:
        value = float(other) if other.ndim == 0 else tuple(other.tolist())
        tape = [*run.tape[:position], entry._replace(answer=value), *run.tape[position + 1 :]]
        try:
            for i, seen in rerun(policy, run, Replayer(tape, 0, any_terms=True), rounds):
                if i < rounds:
                    changed[i] |= seen != run.decisions[i]
        except Divergence:
            # The queries themselves depend on the release from here on.
            changed[int(np.searchsorted(run.round_starts, position, side="right")) :] = True
        except _RERUN_ERRORS:
            continue
    return changed
