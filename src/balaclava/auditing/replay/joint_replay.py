"""Replay for claims of scope "joint": neighbours differ in one participant's features and rewards.

An observer sees the decisions of all others, their phases and what an agent displays, but not the
changed participant's own decision. Its phase is compared all the same: the members of a batch must
not depend on features. A pair that replay cannot account for is tested by games on the outputs of
all others.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from balaclava.auditing.games.joint_games import JointGames, JointNeighbour, with_neighbour
from balaclava.auditing.replay.composed_loss import ComposedLoss, compose
from balaclava.auditing.replay.recorded_run import (
    DIFFERENT_DECISION,
    DIFFERENT_DISPLAY,
    FAILS_HERE,
    FAILS_THERE,
    FEWER_QUERIES,
    RecordedRun,
    ReplayOutcome,
    ScenarioRunner,
    record,
)
from balaclava.auditing.replay.reward_choices import reward_limits
from balaclava.auditing.replay.scenario_kinds import ScenarioKind, make_scenario
from balaclava.auditing.state_copies import copy_state
from balaclava.auditing.tape import Divergence, Replayer
from balaclava.auditing.two_sample_bounds import VIOLATION_ERROR
from balaclava.errors import ContextError
from balaclava.policies.base import Policy
from balaclava.privacy.guarantee import Guarantee

DIFFERENT_PHASE = "the phase of the decision of round {} depends on that participant's features"
_PAIRS_PER_SCENARIO = 20
_TESTED_PAIRS = 3  # unproved pairs that games test
_MOST_UNPROVED = 6  # pairs, after which the search ends


class JointReplay(NamedTuple):
    """What the replay of joint neighbours found."""

    verdict: str  # "consistent" | "unproved" | "violated" | "not examined"
    pairs: int
    moved: int
    worst: ComposedLoss
    fault: str


class UnprovedJointPair(NamedTuple):
    """A pair whose loss replay cannot account for."""

    run: RecordedRun
    neighbour: JointNeighbour
    fault: str
    excess: float


def audit_joint_by_replay(
    policy: Policy,
    claim: Guarantee,
    kinds: tuple[ScenarioKind, ...],
    *,
    rounds: int,
    pairs: int,
    seed: int,
    seconds: float,
    games: bool,
    ended: Callable[[], bool],
) -> JointReplay:
    """Try `pairs` neighbours that differ in a participant, spread over scenarios of all kinds."""
    rng, deadline = np.random.default_rng([seed, 1]), time.thread_time() + seconds
    limits, tried, moved = reward_limits(policy), 0, 0
    worst, unproved = ComposedLoss(), list[UnprovedJointPair]()
    usable = [kind for kind in kinds if not kind.start and not kind.long]
    for number in range(max(pairs // _PAIRS_PER_SCENARIO, len(usable))):
        late = time.thread_time() > deadline and number >= len(usable)
        if late or ended() or len(unproved) >= _MOST_UNPROVED:
            break
        kind = usable[number % len(usable)]
        scenario = make_scenario(policy, kind, number, rounds, limits, seed, rng)
        if scenario is None:
            continue
        run = record(policy, scenario, seed + number)
        neighbours = joint_neighbours(policy, run, limits, rng)
        for neighbour, outcome in replay_joint(policy, run, neighbours):
            tried += 1
            moved += bool(outcome.moves or outcome.fault)
            loss = compose(outcome.moves, claim) if outcome.moves else ComposedLoss()
            where = f"the participant of round {run.scenario.times[neighbour.slot]}"
            if outcome.fault:
                fault = f"{where}: {outcome.fault}"
                unproved.append(UnprovedJointPair(run, neighbour, fault, math.inf))
            elif not (loss.within(claim) and loss.declared_within(claim)):
                fault = f"{where}: {loss}; claimed is {claim}"
                unproved.append(UnprovedJointPair(run, neighbour, fault, loss.epsilon))
            elif loss.epsilon > worst.epsilon:
                worst = loss
    if not unproved:
        return JointReplay("consistent" if moved else "not examined", tried, moved, worst, "")
    verdict, fault = _test_unproved(policy, claim, unproved, seed, games)
    return JointReplay(verdict, tried, moved, worst, fault)


def _test_unproved(
    policy: Policy, claim: Guarantee, unproved: list[UnprovedJointPair], seed: int, games: bool
) -> tuple[str, str]:
    """The verdict of games on the pair that promises most, and its fault."""
    ranked = sorted(unproved, key=lambda pair: -pair.excess)
    if not games:
        return "unproved", ranked[0].fault
    candidates = []
    for number, pair in enumerate(ranked[:_TESTED_PAIRS]):
        scenario = pair.run.scenario
        reference = np.array(pair.run.decisions[: scenario.rounds], np.int64).reshape(-1, 2)
        played = JointGames(policy, scenario, reference, pair.neighbour, claim, seed + number)
        candidates.append((played.search(), number, played))
    _, chosen, played = max(candidates, key=lambda each: each[:2])
    result = played.test(VIOLATION_ERROR)
    return "violated" if result.refuted else "unproved", f"{ranked[chosen].fault}; {result}"


def joint_neighbours(
    policy: Policy, run: RecordedRun, limits: tuple[float, float], rng: np.random.Generator
) -> list[JointNeighbour]:
    """Neighbours of some participants whose rewards come, in the order of their rounds."""
    arrived = sorted({int(item) - 1 for item in run.scenario.event_items if item > 0})
    rounds = [slot for slot in arrived if slot < run.scenario.rounds]
    slots = rng.choice(rounds, min(len(rounds), _PAIRS_PER_SCENARIO), replace=False)
    low, high = limits
    neighbours = []
    for slot in sorted(slots.tolist()):
        context = extreme_context(policy, run.scenario.context(slot), rng)
        rewards = rng.choice([low, high, rng.uniform(low, high)], run.scenario.rewards.shape[1])
        neighbours.append(JointNeighbour(slot, context, rewards))
    return neighbours


def extreme_context(policy: Policy, context: Any, rng: np.random.Generator) -> np.ndarray:
    """Other features: opposite, orthogonal, on an axis, none, or drawn; as long as is allowed."""
    rows = np.array(context, dtype=np.float64)
    bound = policy.feature_bound
    kind = rng.integers(0, 5)
    if kind == 0:
        other = -rows
    elif kind == 1:
        other = np.zeros_like(rows)
        other[:, rng.integers(0, rows.shape[1])] = rng.choice([-bound, bound])
    elif kind == 2:
        other = np.zeros_like(rows)
    else:
        other = rng.normal(size=rows.shape)
        if kind == 3:  # orthogonal to what it replaces
            square = np.maximum((rows * rows).sum(axis=1, keepdims=True), 1e-300)
            other -= (other * rows).sum(axis=1, keepdims=True) / square * rows
        lengths = np.linalg.norm(other, axis=1, keepdims=True)
        other *= bound / np.maximum(lengths, 1e-300)
    try:
        return np.asarray(policy.checked_context(other))
    except ContextError:
        return rows


def replay_joint(
    policy: Policy, run: RecordedRun, neighbours: list[JointNeighbour]
) -> Iterator[tuple[JointNeighbour, ReplayOutcome]]:
    """Replay each neighbour, in the order of their rounds, with the recorded answers."""
    runner, replayer = ScenarioRunner(policy, run.scenario), Replayer(run.tape, 0)
    state, waiting = runner.begin(), list(neighbours)
    for i in range(run.scenario.rounds):
        while waiting and waiting[0].slot == i:
            neighbour = waiting.pop(0)
            other = ScenarioRunner(policy, with_neighbour(run.scenario, neighbour))
            branch = Replayer(run.tape, replayer.position)
            yield neighbour, _replay_others(other, copy_state(state), run, branch, i)
        if not waiting or run.failure_in(i):
            return
        runner.choose(state, i, replayer)
        runner.apply_events(state, i, run.decisions, replayer)
        state = runner.restore(state, i)


def _replay_others(
    runner: ScenarioRunner, state: Any, run: RecordedRun, replayer: Replayer, slot: int
) -> ReplayOutcome:
    """Replay from the round of the changed participant on; all others must see the same."""
    decisions = list(run.decisions)
    for i in range(slot, run.scenario.rounds):
        t, failure = run.scenario.times[i], run.failure_in(i)
        try:
            decision = runner.choose(state, i, replayer)
            if i == slot:
                if decision[1] != decisions[i][1]:
                    return ReplayOutcome(replayer.moves, DIFFERENT_PHASE.format(t), i, decision)
                decisions[i] = decision
            elif decision != decisions[i]:
                return ReplayOutcome(replayer.moves, DIFFERENT_DECISION.format(t), i, decision)
            runner.apply_events(state, i, decisions, replayer)
            state = runner.restore(state, i)
        except Divergence as divergence:
            return ReplayOutcome(replayer.moves, f"in round {t} {divergence}")
        except Exception as error:
            if runner.failure(error) == failure:
                break
            fault = FAILS_HERE.format(t, type(error).__name__)
            return ReplayOutcome(replayer.moves, fault, i, runner.failure(error))
        if failure:
            return ReplayOutcome(replayer.moves, FAILS_THERE.format(t, failure), i, "")
        if replayer.position != run.round_starts[i + 1]:
            return ReplayOutcome(replayer.moves, FEWER_QUERIES.format(t))
        if i in run.displays and i > slot:
            display = runner.display(state, run.decisions[i][0])
            if display != run.displays[i]:
                return ReplayOutcome(replayer.moves, DIFFERENT_DISPLAY.format(t), i, display)
    return ReplayOutcome(replayer.moves)
