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
from balaclava.policies.base import Policy

_RERUNS = 48  # with new answers: a dependence of probability 1/2 is missed once in 10^14
_FAR_SHIFT = 50.0  # noise scales by which an answer is moved, to change any decision


def rerun(policy: Policy, run: RecordedRun, rng: Any) -> Iterator[tuple[int, int]]:
    """Each round's decision with other answers; the run continues with the recorded one."""
    runner = ScenarioRunner(policy, run.scenario)
    state = runner.begin()
    for i in range(run.scenario.rounds):
        yield runner.choose(state, i, rng)
        runner.apply_events(state, i, run.decisions, rng)
        state = runner.end_round(state, i, run.decisions, rng)


def depends_on_chance(
    policy: Policy, run: RecordedRun, neighbour: Neighbour, outcome: ReplayOutcome, seed: int
) -> bool:
    """Whether other answers change the observation in which two streams differ.

    Any plain draw before it counts as changing it.
    """
    at, seen = outcome.round, outcome.seen
    assert at is not None  # the caller has checked
    before: Observation = run.decisions[at]
    if isinstance(seen, bytes):
        before = run.displays[at]
    elif isinstance(seen, str):
        before = run.failure_in(at)
    end = run.choice_ends[at] if isinstance(seen, tuple) else run.round_starts[at + 1]
    if any(entry.terms is None for entry in run.tape[:end]):
        return True
    for number in range(_RERUNS):
        side, rng = number % 2, Recorder(seed, number)
        expected = seen if side else before
        if seen_again(policy, run, rng, outcome, neighbour if side else None) != expected:
            return True
    return False


def seen_again(
    policy: Policy, run: RecordedRun, rng: Any, outcome: ReplayOutcome, neighbour: Neighbour | None
) -> Observation:
    """What an observer sees with other answers in place of an outcome; or an earlier failure."""
    runner, at = ScenarioRunner(policy, run.scenario), outcome.round
    assert at is not None  # the caller has checked
    state = runner.begin()
    try:
        for i in range(at + 1):
            decision = runner.choose(state, i, rng)
            if i == at and isinstance(outcome.seen, tuple):
                return decision
            runner.apply_events(state, i, run.decisions, rng, neighbour)
            state = runner.end_round(state, i, run.decisions, rng)
        shown = isinstance(outcome.seen, bytes)
        return runner.display(state, run.decisions[at][0]) if shown else ""
    except Exception as error:
        return runner.failure(error)


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
            again = rerun(policy, run, Replayer(tape, 0, any_terms=True))
            for i, decision in enumerate(again):
                changed[i] |= decision != run.decisions[i]
        except Divergence:
            # The queries themselves depend on the release from here on.
            changed[int(np.searchsorted(run.round_starts, position, side="right")) :] = True
        except Exception:
            continue  # a policy may fail after an impossible answer
    return changed
