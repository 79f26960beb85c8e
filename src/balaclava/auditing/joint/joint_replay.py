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

from balaclava.auditing.joint.joint_games import JointGames, JointNeighbour, with_neighbour
from balaclava.auditing.replay.composed_loss import ComposedLoss, compose
from balaclava.auditing.replay.recorded_run import (
    DIFFERENT_DECISION,
    DIFFERENT_DISPLAY,
    DIVERGES,
    FAILS_HERE,
    FAILS_THERE,
    FEWER_QUERIES,
    IRREPRODUCIBLE,
    RecordedRun,
    ReplayOutcome,
    ScenarioRunner,
    record,
)
from balaclava.auditing.replay.replay_audit import ReplayAudit, audit_by_replay
from balaclava.auditing.replay.reward_choices import reward_limits
from balaclava.auditing.replay.scenario_kinds import START_KINDS, ScenarioKind, make_scenario
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


class UnprovedJointPair(NamedTuple):
    """A pair whose loss replay cannot account for."""

    run: RecordedRun
    neighbour: JointNeighbour
    fault: str
    excess: float


def replay_all_neighbours(
    policy: Policy,
    claim: Guarantee,
    *,
    kinds: tuple[ScenarioKind, ...] = START_KINDS,
    pairs: int,
    seconds: float = math.inf,
    **options: Any,
) -> ReplayAudit:
    """Replay neighbours that differ in a reward and, for scope "joint", in a participant.

    Args:
        policy: The policy to audit.
        claim: The guarantee to check.
        kinds: Kinds of scenarios.
        pairs: Neighbours of each sort to try.
        seconds: Processor time of each sort, after which no further scenario begins.
        **options: Further arguments of `audit_by_replay`.
    """
    result = audit_by_replay(policy, claim, kinds=kinds, pairs=pairs, seconds=seconds, **options)
    usable = tuple(kind for kind in kinds if not kind.start and not kind.long)
    if claim.scope != "joint" or result.fault or not usable:
        return result
    search = JointSearch(policy, claim, options["seed"], options.get("ended", lambda: False))
    search.try_kinds(usable, options["rounds"], pairs, seconds)
    return result.joined(search.conclude(options.get("games", False)))


class JointSearch:
    """Replays neighbours that differ in a participant, and collects what it cannot account for."""

    def __init__(
        self, policy: Policy, claim: Guarantee, seed: int, ended: Callable[[], bool]
    ) -> None:
        self.policy, self.claim, self.seed, self.ended = policy, claim, seed, ended
        self.rng = np.random.default_rng([seed, 1])
        self.tried = self.moved = 0
        self.worst = ComposedLoss()
        self.unproved: list[UnprovedJointPair] = []

    def try_kinds(
        self, kinds: tuple[ScenarioKind, ...], rounds: int, pairs: int, seconds: float
    ) -> None:
        """Try each kind once, and again while pairs and time are left."""
        deadline, limits = time.thread_time() + seconds, reward_limits(self.policy)
        for number in range(max(pairs // _PAIRS_PER_SCENARIO, len(kinds))):
            late = time.thread_time() > deadline and number >= len(kinds)
            if late or self.ended() or len(self.unproved) >= _MOST_UNPROVED:
                return
            kind = kinds[number % len(kinds)]
            scenario = make_scenario(self.policy, kind, number, rounds, limits, self.seed, self.rng)
            if scenario is None:
                continue
            run = record(self.policy, scenario, self.seed + number)
            neighbours = joint_neighbours(self.policy, run, limits, self.rng)
            for neighbour, outcome in replay_joint(self.policy, run, neighbours):
                self.judge(run, neighbour, outcome)

    def judge(self, run: RecordedRun, neighbour: JointNeighbour, outcome: ReplayOutcome) -> None:
        """Find a pair within the claim, or unproved."""
        self.tried += 1
        self.moved += bool(outcome.moves or outcome.fault)
        loss = compose(outcome.moves, self.claim) if outcome.moves else ComposedLoss()
        where = f"the participant of round {run.scenario.times[neighbour.slot]}"
        if outcome.fault:
            fault = f"{where}: {outcome.fault}"
            self.unproved.append(UnprovedJointPair(run, neighbour, fault, math.inf))
        elif not (loss.within(self.claim) and loss.declared_within(self.claim)):
            fault = f"{where}: {loss}; claimed is {self.claim}"
            self.unproved.append(UnprovedJointPair(run, neighbour, fault, loss.epsilon))
        elif loss.epsilon > self.worst.epsilon:
            self.worst = loss

    def conclude(self, games: bool) -> ReplayAudit:
        """The result; with `games`, they test the worst of the unproved pairs."""
        verdict, fault = "consistent" if self.moved else "not examined", ""
        if self.unproved:
            verdict, fault = _test_unproved(
                self.policy, self.claim, self.unproved, self.seed, games
            )
        return ReplayAudit(
            verdict, self.tried, self.moved, self.worst.epsilon, self.worst.delta, fault,
            self.worst.declared,
        )  # fmt: skip


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
    """Neighbours of some participants, in their order, also of those whose rewards never come."""
    rounds = run.scenario.rounds
    slots = rng.choice(rounds, min(rounds, _PAIRS_PER_SCENARIO), replace=False)
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
        try:
            runner.choose(state, i, replayer)
            runner.apply_events(state, i, run.decisions, replayer)
            state = runner.end_round(state, i, run.decisions, replayer)
        except Exception as error:
            outcome = ReplayOutcome([], IRREPRODUCIBLE.format(runner.failure(error)))
            yield from ((neighbour, outcome) for neighbour in waiting)
            return


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
            state = runner.end_round(state, i, decisions, replayer)
        except Divergence as divergence:
            return ReplayOutcome(replayer.moves, DIVERGES.format(t, divergence))
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
