"""Enlarge what a reward leaves in the state, to see whether decisions read it.

A raw value in the low digits of a score rarely changes a decision. So the difference that one
reward makes in the state is enlarged, and the run continues with the recorded answers. If rewards
enter only through mechanisms, whose answers are recorded, the decisions stay the same.
"""

from typing import Any

import numpy as np

from balaclava.auditing.replay.recorded_run import (
    DIVERGES,
    FAILS_HERE,
    RecordedRun,
    ScenarioRunner,
)
from balaclava.auditing.scenario import Neighbour
from balaclava.auditing.state_copies import arrays_of, copy_state
from balaclava.auditing.tape import Divergence, Replayer
from balaclava.policies.base import Policy

AMPLIFIED_DECISION = (
    "the decision of round {} reads what a reward left in the state, if that is enlarged, although "
    "every mechanism answered alike"
)
_AMPLIFIED = 1e9  # the enlarged difference, in units of the largest entry of its array
_ROUNDS_AHEAD = 24  # in which decisions are compared
_PLACES = 3  # releases after which the state is enlarged


def amplified_fault(policy: Policy, run: RecordedRun, neighbour: Neighbour) -> str:
    """How the neighbour's run differs, or a decision that the enlargement changes, or ""."""
    runner = ScenarioRunner(policy, run.scenario)
    if run.scenario.restore_rounds or run.failure:
        return ""
    states = [runner.begin(), runner.begin()]
    replayers = [Replayer(run.tape, 0, any_terms=True, note_moves=False) for _ in states]
    changed = places = 0
    for i in range(run.scenario.rounds):
        try:
            for side, (state, replayer) in enumerate(zip(states, replayers, strict=True)):
                runner.choose(state, i, replayer)
                other = neighbour if side else None
                runner.apply_events(state, i, run.decisions, replayer, other)
        except Divergence as divergence:
            return DIVERGES.format(run.scenario.times[i], divergence)
        except Exception as error:
            return FAILS_HERE.format(run.scenario.times[i], type(error).__name__)
        changed += neighbour.slot + 1 in run.scenario.events(i)
        if changed and i in run.release_rounds:
            for sign in (1.0, -1.0):
                larger = amplified(states[0], states[1], sign)
                if fault := decisions_fault(runner, larger, run, i + 1):
                    return fault
            places += 1
            if places == _PLACES:
                break
    return ""


def amplified(state: Any, other: Any, sign: float) -> Any:
    """A copy of a state whose differences to another one are enlarged, array by array."""
    result = copy_state(state)
    for array, one, two in zip(*map(arrays_of, (result, state, other)), strict=True):
        if array.dtype.kind != "f" or not array.size:
            continue
        with np.errstate(invalid="ignore", over="ignore"):  # inf - inf
            difference = two - one
        largest = float(np.abs(difference).max())
        if largest > 0.0 and np.isfinite(difference).all():
            finite = one[np.isfinite(one)]
            size = 1.0 + float(np.abs(finite).max() if finite.size else 0.0)
            array += sign * _AMPLIFIED * size / largest * difference
    return result


def decisions_fault(runner: ScenarioRunner, state: Any, run: RecordedRun, first: int) -> str:
    """The first of the next decisions that differs from the recorded one, or ""."""
    replayer = Replayer(run.tape, run.round_starts[first], any_terms=True, note_moves=False)
    last = min(first + _ROUNDS_AHEAD, run.scenario.rounds)
    try:
        for i in range(first, last):
            if runner.choose(state, i, replayer) != run.decisions[i]:
                return AMPLIFIED_DECISION.format(run.scenario.times[i])
            runner.apply_events(state, i, run.decisions, replayer)
    except Exception:
        return ""  # the enlarged state is not one that a run could have
    return ""
