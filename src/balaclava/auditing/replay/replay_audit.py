"""The grey-box audit: replay a neighbouring stream with the same mechanism answers.

If the decisions agree, the privacy loss is that of the mechanisms whose inputs moved. If it is at
most the claim on every tape, the pair is *within the claim*: this is the privacy proof of every
policy here, checked on real runs. If it is more, or if the policy made other queries to the
randomness, nothing is refuted: on one tape the sum only bounds the loss from above. Such a pair is
*unproved*, and games test it. A claim is *violated* if these games refute it. It is also violated
if decisions differ although every mechanism answered alike and no other randomness reaches them.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from balaclava.auditing.games.compiled_games import warm_up
from balaclava.auditing.games.pair_tests import PairGames
from balaclava.auditing.rare_answers import RareAnswers, code_numbers
from balaclava.auditing.replay.amplified_states import amplified_fault
from balaclava.auditing.replay.answer_dependence import depends_on_chance, reading_rounds
from balaclava.auditing.replay.composed_loss import ComposedLoss, compose
from balaclava.auditing.replay.long_replay import LongReplay, terms_of
from balaclava.auditing.replay.recorded_run import (
    RecordedRun,
    ReplayOutcome,
    find_leaking_pair,
    record,
    replay_all,
)
from balaclava.auditing.replay.report_replay import report_fault
from balaclava.auditing.replay.reward_choices import (
    choose_neighbours,
    different_streams,
    latest_neighbour,
    limits_near_truncation,
    reward_limits,
)
from balaclava.auditing.replay.scenario_kinds import (
    RARE_ANSWER_KINDS,
    START_KINDS,
    UNSCALED_KINDS,
    ScenarioKind,
    applies,
    kind_around,
    make_scenario,
)
from balaclava.auditing.scenario import Neighbour, agent_accepts
from balaclava.auditing.tape import MovedInput, TapeEntry, untrusted_fault
from balaclava.auditing.two_sample_bounds import VIOLATION_ERROR
from balaclava.errors import PrivacyError, SavedStateError
from balaclava.policies.base import Policy
from balaclava.privacy.guarantee import Guarantee

# Guesses that divide the seconds of a default audit.
_ROUNDS_AFTER_RELEASE = 32  # recorded after the first release that follows a fast-forward
_MOST_UNPROVED = 6  # pairs, after which the search ends
_TESTED_PAIRS = 3  # unproved pairs that games test
_SURE_STREAMS = 2  # different streams that are replayed even after the deadline
_SCENARIOS_PER_LEAK = 3  # about each round that the leak scan found
_PAIRS_PER_RARE_SCENARIO, _RARE_PAIRS = 10, 2  # one such scenario per 10 pairs, with 2 of them
_PAIRS_PER_SCENARIO = 20
_KINDS_SHARE, _RARE_SHARE = 3 / 4, 1 / 2  # of the time, after which each kind is tried only once
_LONG_RUN_SHARE = 1 / 2  # of the time
_SHORTEST_SHARE = 0.05  # seconds for a scenario
_READING_ROUNDS = 1_200  # rounds that are run again to find which decisions read a release
_KEPT_ENTRIES = 64  # of the tape, for the test of laws
_DIFFERENT_DECISION_EXCESS = 1e9  # ranks above every finite loss
NOT_CLIPPED = (
    "`prepare` does not clip rewards: the claim holds while an agent refuses those outside the "
    "range, and not with outside='clip'"
)


@dataclass(frozen=True)
class ReplayAudit:
    """The result of replaying neighbouring streams."""

    verdict: str  # "consistent" | "unproved" | "violated" | "not examined"
    pairs: int
    moved: int  # pairs in which some mechanism's input moved; without those of finished trials
    epsilon: float  # the largest loss
    delta: float
    fault: str  # or ""
    declared: float = 0.0  # the largest sum of declared losses
    reached: tuple[str, ...] = ()  # conditions under which a reward moved something
    missed: tuple[str, ...] = ()  # conditions under which nothing moved
    untried: int = 0  # pairs for which the time did not suffice

    def joined(self, other: ReplayAudit) -> ReplayAudit:
        """Merge two replays without a fault; if the other has one, return the other."""
        if other.fault:
            return other
        moved, reached = self.moved + other.moved, {*self.reached, *other.reached}
        return dataclasses.replace(
            self,
            pairs=self.pairs + other.pairs,
            moved=moved,
            epsilon=max(self.epsilon, other.epsilon),
            declared=max(self.declared, other.declared),
            verdict="consistent" if moved else "not examined",
            reached=tuple(sorted(reached)),
            missed=tuple(sorted({*self.missed, *other.missed} - reached)),
        )

    def __str__(self) -> str:
        if self.fault:
            return f"{self.verdict} ({self.pairs:,} pairs tried): {self.fault}"
        if self.verdict == "not examined":
            return f"not examined: in {self.pairs:,} pairs no mechanism's input moved"
        delta = f", delta {self.delta:.3g}" if self.delta else ""
        untried = f" ({self.untried:,} fewer than planned: time was up)" if self.untried else ""
        return (
            f"{self.verdict}: {self.pairs:,} neighbouring pairs{untried}; in {self.moved:,} a "
            f"mechanism's input moved; decisions agreed; largest loss epsilon {self.epsilon:.4g}"
            f"{delta} (declared {self.declared:.4g})"
        )


class UnprovedPair(NamedTuple):
    """A neighbouring pair whose loss replay cannot account for."""

    run: RecordedRun
    neighbour: Neighbour
    fault: str
    excess: float


class PairAuditor:
    """Replays neighbouring pairs, and collects evidence against the claim."""

    def __init__(
        self, policy: Policy, claim: Guarantee, seed: int, games: bool, ended: Callable[[], bool]
    ) -> None:
        self.policy, self.claim, self.seed, self.games = policy, claim, seed, games
        self.ended = ended
        self.tried = self.moved = 0
        self.worst = ComposedLoss()
        self.delta = self.declared = 0.0
        self.unproved: list[UnprovedPair] = []
        self.violation = ""
        self.reached: set[str] = set()
        self.conditions: set[str] = set()
        self.entries: dict[tuple[object, ...], TapeEntry] = {}
        self.long: LongReplay | None = None
        self.failed: list[RecordedRun] = []  # runs that fail on every stream tried

    @property
    def done(self) -> bool:
        """Whether there is enough evidence, or the caller has ended the audit."""
        enough = max(len(self.unproved), len(self.failed)) >= _MOST_UNPROVED
        return bool(self.violation) or enough or self.ended()

    def examine(
        self,
        run: RecordedRun,
        neighbours: list[Neighbour],
        streams: list[np.ndarray],
        deadline: float,
    ) -> None:
        """Replay the run with different streams, then with its neighbours, and judge each."""
        before = len(self.unproved)
        self.compare(run, neighbours, streams, deadline)
        if run.error is not None and not self.violation and len(self.unproved) == before:
            self.failed.append(run)

    def compare(
        self,
        run: RecordedRun,
        neighbours: list[Neighbour],
        streams: list[np.ndarray],
        deadline: float,
    ) -> None:
        reading: dict[int, np.ndarray] = {}
        enlarged = False
        if latest := latest_neighbour(self.policy, run):
            self.enlarge(run, latest)
        self.conditions |= set(run.scenario.conditions)
        for entry in run.tape:
            if entry.terms is not None and len(self.entries) < _KEPT_ENTRIES:
                self.entries.setdefault((entry.name, *entry.terms[1:]), entry)
        for number, rewards in enumerate(streams):
            if self.done or (number >= _SURE_STREAMS and time.thread_time() > deadline):
                break
            leak = find_leaking_pair(self.policy, run, rewards)
            if leak is not None:
                self.reached |= set(run.scenario.conditions)
                self.judge(*leak, {})
                if self.violation:
                    return
        for neighbour, outcome in replay_all(self.policy, run, neighbours):
            self.tried += 1
            if outcome.moves or outcome.fault:
                self.moved += not run.scenario.ends  # the end releases what no round did
                self.reached |= set(run.scenario.conditions)
            self.judge(run, neighbour, outcome, reading)
            if outcome.moves and not outcome.fault and not enlarged:
                enlarged = True  # one neighbour of each run is enough
                self.enlarge(run, neighbour)
            if self.done or time.thread_time() > deadline:
                return

    def enlarge(self, run: RecordedRun, neighbour: Neighbour) -> None:
        """Whether a decision reads what the neighbour leaves in the state, however small."""
        if fault := amplified_fault(self.policy, run, neighbour):
            self.unproved.append(UnprovedPair(run, neighbour, fault, 0.0))

    def judge(
        self,
        run: RecordedRun,
        neighbour: Neighbour,
        outcome: ReplayOutcome,
        reading: dict[int, np.ndarray],
    ) -> None:
        """Find a pair within the claim, unproved, or violated."""
        where = f"round {run.scenario.times[neighbour.slot]}"
        if outcome.fault:
            certain = outcome.round is not None and not depends_on_chance(
                self.policy, run, neighbour, outcome, self.seed
            )
            # On a rare tape, the answers before it may have a probability below delta.
            if certain and (self.claim.delta == 0.0 or not run.rare):
                self.violation = f"{where}: {outcome.fault}, and no randomness reaches it"
            else:
                fault = f"{where}: {outcome.fault}"
                pair = UnprovedPair(run, neighbour, fault, _DIFFERENT_DECISION_EXCESS)
                self.unproved.append(pair)
            return
        if fault := untrusted_fault(self.claim, outcome.moves):
            self.violation = f"{where}: {fault}"
            return
        for loss in self.losses(run, outcome.moves, reading):
            self.declared = max(self.declared, loss.declared)
            self.delta = max(self.delta, loss.delta)
            if loss.epsilon > self.worst.epsilon:
                self.worst = loss
            if not loss.within(self.claim) or not loss.declared_within(self.claim):
                fault = f"{where}: {loss}; claimed are {terms_of(self.claim)}"
                self.unproved.append(UnprovedPair(run, neighbour, fault, loss.epsilon))
                return

    def losses(
        self, run: RecordedRun, moves: list[MovedInput], reading: dict[int, np.ndarray]
    ) -> list[ComposedLoss]:
        """The loss of a run or, for scope "decision", of each decision."""
        if not moves or self.claim.scope != "decision":
            return [compose(moves, self.claim)]
        most = max(_READING_ROUNDS // run.scenario.rounds, 2)
        for move in moves:
            if move.position not in reading and len(reading) < most:
                reading[move.position] = reading_rounds(self.policy, run, move.position, self.seed)
        losses = []
        for i in range(run.scenario.rounds):
            recent = run.choice_ends[i - 1] if i else 0
            read, weights = [], []
            for move in moves:
                earlier = move.position < recent and move.position in reading
                if recent <= move.position < run.choice_ends[i]:
                    read.append(move)
                    weights.append(1.0)
                elif earlier and reading[move.position][i]:
                    read.append(move)
                    weights.append(2.0)  # earlier decisions, which are known, depend on it too
            if read:
                losses.append(compose(read, self.claim, weights))
        return losses

    def conclude(self) -> ReplayAudit:
        """Test unproved pairs by games, and return the result."""
        verdict, fault = "consistent", ""
        if self.violation:
            verdict, fault = "violated", self.violation
        elif self.unproved:
            verdict, fault = self.test_unproved()
        elif self.failed:
            verdict, fault = "unproved", self.failed_everywhere()
        elif self.long is not None and self.long.fault:
            verdict, fault = "unproved", self.long.fault
        elif self.moved == 0:
            verdict = "not examined"
        return ReplayAudit(
            verdict, self.tried, self.moved, self.worst.epsilon, self.delta, fault, self.declared,
            tuple(sorted(self.reached)), tuple(sorted(self.conditions - self.reached)),
        )  # fmt: skip

    def failed_everywhere(self) -> str:
        """The fault of runs that fail on every stream; raises the error if it is no fault."""
        ranked = sorted(self.failed, key=lambda run: run.rare)
        error = ranked[0].error
        assert error is not None  # as it failed
        if isinstance(error, PrivacyError | SavedStateError):
            return str(error)
        if not ranked[0].rare:
            raise error
        return f"it fails after an answer that is rare but possible: {type(error).__name__}"

    def test_unproved(self) -> tuple[str, str]:
        """The verdict of games on the pair that promises most, of the worst, and its fault."""
        ranked = sorted(self.unproved, key=lambda pair: -pair.excess)
        if not self.games:
            return "unproved", ranked[0].fault
        best = (-math.inf, 0)
        candidates = []
        for number, pair in enumerate(ranked[:_TESTED_PAIRS]):
            scenario = pair.run.scenario
            reference = np.array(pair.run.decisions[: scenario.rounds], np.int64).reshape(-1, 2)
            seed = self.seed + number
            games = PairGames(self.policy, scenario, reference, pair.neighbour, self.claim, seed)
            candidates.append(games)
            best = max(best, (games.search(), -number))
        chosen = -best[1]
        result = candidates[chosen].test(VIOLATION_ERROR)
        verdict = "violated" if result.refuted else "unproved"
        return verdict, f"{ranked[chosen].fault}; {result}"


class ScenarioSearch:
    """Makes scenarios and lets an auditor examine their neighbours."""

    def __init__(
        self,
        auditor: PairAuditor,
        rounds: int,
        pairs: int,
        rare_scenarios: int,
        seed: int,
        seconds: float,
    ) -> None:
        self.auditor, self.rounds, self.pairs = auditor, rounds, pairs
        self.rare_scenarios, self.seed, self.seconds = rare_scenarios, seed, seconds
        self.number = 0  # of scenarios so far
        self.rng = np.random.default_rng([seed, 0])
        self.sensitivities: list[float] = []  # of unbounded rewards after truncation

    def try_kinds(self, kinds: tuple[ScenarioKind, ...]) -> None:
        """Try each kind that applies once, and again while pairs and time are left."""
        kinds = tuple(kind for kind in kinds if applies(self.auditor.policy, kind))
        scenarios = max(len(kinds), self.pairs // _PAIRS_PER_SCENARIO)
        end = time.thread_time() + _KINDS_SHARE * self.seconds
        share = max(self.seconds / scenarios, _SHORTEST_SHARE)
        pairs = self.pairs - _RARE_PAIRS * self.rare_scenarios
        for number in range(scenarios):
            wanted = max(-((self.auditor.tried - pairs) // (scenarios - number)), 1)
            late = time.thread_time() > end and number >= len(kinds)
            if not self.auditor.done and not late:
                self.try_scenario(kinds[number % len(kinds)], wanted, share)
            else:
                self.number += 1

    def try_rare_answers(self) -> None:
        """Try scenarios with rare answers: few neighbours each, but many tapes."""
        kinds, end = RARE_ANSWER_KINDS, time.thread_time() + _RARE_SHARE * self.seconds
        numbers = code_numbers(self.auditor.policy)
        for number in range(self.rare_scenarios):
            late = time.thread_time() > end and number >= len(kinds)
            if not self.auditor.done and not late:
                answers = RareAnswers(numbers, number, self.seed)
                share = self.seconds / self.rare_scenarios
                self.try_scenario(kinds[number % len(kinds)], _RARE_PAIRS, share, answers)

    def try_rounds(self, rounds: list[int]) -> None:
        """Try scenarios around rounds in which rewards may bypass the mechanisms."""
        share = max(self.seconds / (self.pairs // _PAIRS_PER_SCENARIO + 1), _SHORTEST_SHARE)
        for round_ in _SCENARIOS_PER_LEAK * rounds:
            if not self.auditor.done:
                wanted = max(self.pairs - self.auditor.tried, 1)
                self.try_scenario(kind_around(round_), wanted, share)

    def try_scenario(
        self, kind: ScenarioKind, wanted: int, seconds: float, rare: RareAnswers | None = None
    ) -> None:
        """Record a scenario, and examine some neighbours of the run."""
        policy, rng, number = self.auditor.policy, self.rng, self.number
        self.number += 1
        near = self.sensitivities and number % 2
        limits = limits_near_truncation(self.sensitivities, rng) if near else reward_limits(policy)
        deadline = time.thread_time() + seconds
        seed = self.seed + number
        try:
            scenario = make_scenario(policy, kind, number, self.rounds, limits, seed, rng)
        except Exception:
            return  # it failed before the scenario; recorded runs say where
        if scenario is None:
            return
        beyond = _ROUNDS_AFTER_RELEASE if kind.start and not kind.quiet else None
        with np.errstate(all="ignore"):  # of a policy's own arithmetic on extreme values
            run = record(policy, scenario, seed, beyond, rare)
            neighbours = choose_neighbours(policy, run, wanted, limits, rng)
            streams = different_streams(policy, run, limits, rng)
            first = number % len(streams)
            self.auditor.examine(run, neighbours, streams[first:] + streams[:first], deadline)
        if policy.rewards == "real" and not np.isfinite(policy.accepts).all():
            terms = [entry.terms for entry in run.tape if entry.terms]
            self.sensitivities = sorted({each.sensitivity for each in terms})


def audit_by_replay(
    policy: Policy,
    claim: Guarantee,
    *,
    rounds: int,
    pairs: int,
    seed: int,
    seconds: float = math.inf,
    kinds: tuple[ScenarioKind, ...] = START_KINDS,
    games: bool = False,
    entries: dict[tuple[object, ...], TapeEntry] | None = None,
    ended: Callable[[], bool] = lambda: False,
) -> ReplayAudit:
    """Try `pairs` neighbours, spread over many scenarios.

    Args:
        policy: The policy to audit.
        claim: The guarantee to check.
        rounds: Rounds of most scenarios.
        pairs: Neighbours to try.
        seed: Seed of all draws.
        seconds: Processor time, after which no further scenario begins.
        kinds: Kinds of scenarios; by default those without a fast-forward.
        games: Whether games test unproved pairs.
        entries: Receives one tape entry for each mechanism and its terms.
        ended: Called often; once it returns true, the audit ends with the evidence so far.
    """
    if claim.scope == "report" and policy.report_kernel is None:
        fault = "claims that devices report their rewards, but has no report_kernel"
        return ReplayAudit("violated", 0, 0, 0.0, 0.0, fault)
    if policy.report_kernel is not None:
        verdict, fault = report_fault(policy, claim, seed)
        if verdict != "consistent":
            return ReplayAudit(verdict, 0, 0, 0.0, 0.0, fault)
    ahead = any(kind.start for kind in kinds)
    if ahead:
        warm_up(policy)  # compiling does not count
    auditor = PairAuditor(policy, claim, seed, games, ended)
    rare = 0 if kinds is UNSCALED_KINDS else pairs // _PAIRS_PER_RARE_SCENARIO
    search = ScenarioSearch(auditor, rounds, pairs, rare, seed, seconds)
    try:
        search.try_kinds(kinds)
        search.try_rare_answers()
        if ahead and not auditor.done:
            auditor.long = LongReplay(policy, claim, seed)
            auditor.long.search(_LONG_RUN_SHARE * seconds, ended)
            if auditor.long.fault_round:
                search.try_rounds([auditor.long.fault_round])
    except (PrivacyError, SavedStateError) as error:
        return ReplayAudit("unproved", auditor.tried, auditor.moved, 0.0, 0.0, str(error))
    if entries is not None:
        entries |= auditor.entries
    result = auditor.conclude()
    if result.verdict == "consistent" and not clips_rewards(policy):
        return dataclasses.replace(result, verdict="unproved", fault=NOT_CLIPPED)
    return result


def clips_rewards(policy: Policy) -> bool:
    """Whether `prepare` clips what an agent refuses; true if there is no range, or no such option.

    A policy that takes `outside` must be right at "clip" too.
    """
    low, high = policy.accepts
    far = high - low
    if "outside" not in policy.annotations or agent_accepts(policy, high + far):
        return True  # with rewards that an agent accepts, neighbours tell
    params, prepare = policy.constants(), policy.prepare()
    pairs = ((low - far, low), (high + far, high))
    return all(prepare(params, out) == prepare(params, end) for out, end in pairs)
