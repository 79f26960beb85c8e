"""The grey-box audit: replay a neighbouring stream with the same mechanism answers.

If the decisions agree, privacy is what the mechanisms say, each charged by what its moved input
costs. Where that is the claim or less on every tape, the pair is *within the claim*: that is the
proof of privacy of every policy here, checked on real runs. Where it is more, or where the policy
asked other questions of the randomness, nothing is refuted, as on one tape the sum only bounds the
loss from above: such a pair is *unproved*, and is played as a game. *Violated* is a claim only if
such games refute it, or if decisions differ though every mechanism answered alike and no other
randomness reaches them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from balaclava._core.number_format import rounded_up
from balaclava.auditing.games.compiled_games import warm_up
from balaclava.auditing.games.pair_test import ERROR, test_pair
from balaclava.auditing.rare_answers import RareAnswers, code_numbers
from balaclava.auditing.replay.answer_dependence import depends_on_chance, reading_rounds
from balaclava.auditing.replay.composed_loss import ComposedLoss, compose
from balaclava.auditing.replay.leak_scan import scan_for_leaks
from balaclava.auditing.replay.recorded_run import (
    RecordedRun,
    ReplayOutcome,
    find_leaking_pair,
    record,
    replay_all,
)
from balaclava.auditing.replay.report_replay import report_fault
from balaclava.auditing.replay.scenario_kinds import (
    RARE_ANSWER_KINDS,
    START_KINDS,
    UNSCALED_KINDS,
    ScenarioKind,
    about_truncation,
    choose_neighbours,
    kind_around,
    make_scenario,
    other_streams,
    reward_limits,
)
from balaclava.auditing.scenario import Neighbour
from balaclava.auditing.tape import Entry, MovedInput
from balaclava.errors import PolicyError, PrivacyError, SavedStateError
from balaclava.policies.base import Policy
from balaclava.privacy.guarantee import Guarantee

_BEYOND = 32  # rounds that are recorded after the first release, far ahead
_ENOUGH = 6  # unproved pairs after which the search ends
_DUELS = 3  # of them that are played
_STREAMS = 2  # streams with all rewards changed that are replayed however long a life is
_EACH = 3  # lives about a round in which rewards may go around the mechanisms
_RARE, _RARE_PAIRS = 10, 2  # a life with rare answers for so many pairs, and pairs in it
_KINDS_SHARE, _RARE_SHARE = 3 / 4, 1 / 2  # of the time, which others may exceed
_READ = 1_200  # rounds that are played anew to see who reads a release


@dataclass(frozen=True)
class ReplayAudit:
    """What replaying neighbouring streams showed."""

    verdict: str  # "consistent" | "unproved" | "violated" | "not examined"
    pairs: int
    moved: int  # pairs in which some mechanism's input moved
    epsilon: float  # the largest loss found
    delta: float
    fault: str  # what was wrong, or ""
    declared: float = 0.0  # the largest sum of declared losses
    reached: tuple[str, ...] = ()  # where a reward moved something that was then examined
    missed: tuple[str, ...] = ()  # where nothing moved

    def __str__(self) -> str:
        if self.fault:
            return f"{self.verdict} ({self.pairs:,} pairs tried): {self.fault}"
        if self.verdict == "not examined":
            return f"not examined: in {self.pairs:,} pairs no mechanism's input moved"
        delta = f", delta {self.delta:.3g}" if self.delta else ""
        return (
            f"{self.verdict}: {self.pairs:,} neighbouring pairs, {self.moved:,} of which moved a "
            f"mechanism's input; decisions agreed; largest loss epsilon {self.epsilon:.4g}{delta} "
            f"(declared {self.declared:.4g})"
        )


class UnprovedPair(NamedTuple):
    """An unproved pair."""

    game: RecordedRun
    neighbour: Neighbour
    fault: str
    excess: float


class PairAuditor:
    """What was found so far."""

    def __init__(
        self, policy: Policy, claim: Guarantee, seed: int, games: bool, ended: Callable[[], bool]
    ) -> None:
        self.policy, self.claim, self.seed, self.games = policy, claim, seed, games
        self.ended = ended
        self.tried = self.moved = 0
        self.worst = ComposedLoss()
        self.delta = self.declared = 0.0
        self.doubts: list[UnprovedPair] = []
        self.violation = ""
        self.reached: set[str] = set()
        self.tried_features: set[str] = set()
        self.entries: dict[tuple[object, ...], Entry] = {}

    @property
    def done(self) -> bool:
        """Whether enough was found, or nobody waits for it."""
        return bool(self.violation) or len(self.doubts) >= _ENOUGH or self.ended()

    def examine(
        self,
        game: RecordedRun,
        neighbours: list[Neighbour],
        others: list[np.ndarray],
        deadline: float,
    ) -> None:
        """Replay the game with all rewards changed, then its neighbours, and judge each."""
        reading: dict[int, np.ndarray] = {}
        self.tried_features |= set(game.life.features)
        for entry in game.tape:
            if entry.terms is not None and len(self.entries) < 64:
                self.entries.setdefault((entry.name, *entry.terms[1:]), entry)
        for number, rewards in enumerate(others):
            if self.done or (number >= _STREAMS and time.thread_time() > deadline):
                break
            stray = find_leaking_pair(self.policy, game, rewards)
            if stray is not None:
                self.reached |= set(game.life.features)
                self.judge(*stray, {})
                if self.violation:
                    return
        for neighbour, outcome in replay_all(self.policy, game, neighbours):
            self.tried += 1
            self.moved += bool(outcome.moves or outcome.fault)
            if outcome.moves or outcome.fault:
                self.reached |= set(game.life.features)
            self.judge(game, neighbour, outcome, reading)
            if self.done or time.thread_time() > deadline:
                return

    def judge(
        self,
        game: RecordedRun,
        neighbour: Neighbour,
        outcome: ReplayOutcome,
        reading: dict[int, np.ndarray],
    ) -> None:
        """Within the claim, unproved, or violated."""
        where = f"round {game.life.times[neighbour.slot]}"
        if outcome.fault:
            deterministic = outcome.differs is not None and not depends_on_chance(
                self.policy, game, neighbour, outcome, self.seed
            )
            # What comes before it may have less than delta's probability, on a rare tape.
            if deterministic and (self.claim.delta == 0.0 or not game.rare):
                self.violation = f"{where}: {outcome.fault}, and no randomness reaches it"
            else:
                self.doubts.append(UnprovedPair(game, neighbour, f"{where}: {outcome.fault}", 1e9))
            return
        if fault := self.foreign(game, neighbour, outcome.moves):
            self.violation = f"{where}: {fault}"
            return
        for cost in self.charges(game, outcome.moves, reading):
            self.declared = max(self.declared, cost.declared)
            self.delta = max(self.delta, cost.delta)
            if cost.epsilon > self.worst.epsilon:
                self.worst = cost
            if not cost.within(self.claim) or not cost.declared_within(self.claim):
                terms = rounded_up(self.claim.epsilon, ".4g"), rounded_up(self.claim.delta, ".3g")
                fault = f"{where}: {cost}; claimed are {' and '.join(terms)}"
                self.doubts.append(UnprovedPair(game, neighbour, fault, cost.epsilon))
                return

    def foreign(self, game: RecordedRun, neighbour: Neighbour, moves: list[MovedInput]) -> str:
        """What a reward moved beside its owner's report of it, for scope "report"."""
        if self.claim.scope == "report":
            for move in moves:
                if not move.local:
                    return f"a reward moved {move.name}, which is not its owner's report of it"
        return ""

    def charges(
        self, game: RecordedRun, moves: list[MovedInput], reading: dict[int, np.ndarray]
    ) -> list[ComposedLoss]:
        """The loss of a run, or that of each decision."""
        if not moves or self.claim.scope != "decision":
            return [compose(moves, self.claim)]
        most = max(_READ // game.life.rounds, 2)
        for move in moves:
            if move.place not in reading and len(reading) < most:
                reading[move.place] = reading_rounds(self.policy, game, move.place, self.seed)
        costs = []
        for i in range(game.life.rounds):
            fresh = game.chosen[i - 1] if i else 0
            read, weights = [], []
            for move in moves:
                if fresh <= move.place < game.chosen[i]:
                    read.append(move)
                    weights.append(1.0)
                elif move.place < fresh and move.place in reading and reading[move.place][i]:
                    read.append(move)
                    weights.append(2.0)  # earlier decisions, which are known, tell of it too
            if read:
                costs.append(compose(read, self.claim, weights))
        return costs

    def verdict(self) -> ReplayAudit:
        """Play what is in doubt, and sum up."""
        verdict, fault = "consistent", ""
        if self.violation:
            verdict, fault = "violated", self.violation
        elif self.doubts:
            verdict, fault = self.duels()
        elif self.moved == 0:
            verdict = "not examined"
        missed = sorted(self.tried_features - self.reached)
        return ReplayAudit(
            verdict, self.tried, self.moved, self.worst.epsilon, self.delta, fault, self.declared,
            tuple(sorted(self.reached)), tuple(missed),
        )  # fmt: skip

    def duels(self) -> tuple[str, str]:
        """The verdict of games on the worst pairs, and what is wrong with the worst."""
        ranked = sorted(self.doubts, key=lambda doubt: -doubt.excess)
        fault = ranked[0].fault
        if not self.games:
            return "unproved", fault
        for number, doubt in enumerate(ranked[:_DUELS]):
            duel = test_pair(
                self.policy,
                doubt.game.life,
                np.array(doubt.game.decisions[: doubt.game.life.rounds], np.int64).reshape(-1, 2),
                doubt.neighbour,
                self.claim,
                self.seed + number,
                ERROR / _DUELS,
            )
            if duel.refuted:
                return "violated", f"{doubt.fault}; {duel}"
            if number == 0:
                fault = f"{doubt.fault}; {duel}"
        return "unproved", fault


class ScenarioSearch:
    """Lives, one after the other, for a search."""

    def __init__(
        self,
        search: PairAuditor,
        rounds: int,
        pairs: int,
        rare_lives: int,
        seed: int,
        seconds: float,
    ) -> None:
        self.search, self.rounds, self.pairs, self.rare_lives = search, rounds, pairs, rare_lives
        self.seed, self.seconds = seed, seconds
        self.number = 0  # of lives so far
        self.rng = np.random.default_rng([seed, 0])
        self.widths: list[float] = []  # sensitivities that rewards of any size were truncated for

    def all_kinds(self, kinds: tuple[ScenarioKind, ...]) -> None:
        """Each kind once, and again as long as there are pairs and time."""
        lives, end = (
            max(len(kinds), self.pairs // 20),
            time.thread_time() + _KINDS_SHARE * self.seconds,
        )
        share, pairs = max(self.seconds / lives, 0.05), self.pairs - _RARE_PAIRS * self.rare_lives
        for number in range(lives):
            wanted = max(-((self.search.tried - pairs) // (lives - number)), 1)
            late = time.thread_time() > end and number >= len(kinds)
            if not self.search.done and not late:
                self.live(kinds[number % len(kinds)], wanted, share)
            else:
                self.number += 1

    def rare_answers(self) -> None:
        """Lives with answers that seldom come: few neighbours each, but many tapes."""
        lives, end = self.rare_lives, time.thread_time() + _RARE_SHARE * self.seconds
        numbers = code_numbers(self.search.policy)
        for number in range(lives):
            late = time.thread_time() > end and number >= len(RARE_ANSWER_KINDS)
            if not self.search.done and not late:
                answers = RareAnswers(numbers, number, self.seed)
                self.live(
                    RARE_ANSWER_KINDS[number % len(RARE_ANSWER_KINDS)],
                    _RARE_PAIRS,
                    self.seconds / lives,
                    answers,
                )

    def around(self, rounds: list[int]) -> None:
        """Lives about rounds in which rewards may go around the mechanisms."""
        for round_ in _EACH * rounds:
            if not self.search.done:
                wanted = max(self.pairs - self.search.tried, 1)
                self.live(
                    kind_around(round_), wanted, max(self.seconds / (self.pairs // 20 + 1), 0.05)
                )

    def live(
        self, kind: ScenarioKind, wanted: int, seconds: float, rare: RareAnswers | None = None
    ) -> None:
        """Record a life, and examine some neighbours of it."""
        policy, search, rng, number = self.search.policy, self.search, self.rng, self.number
        self.number += 1
        aimed = self.widths and number % 2
        limits = about_truncation(self.widths, rng) if aimed else reward_limits(policy)
        deadline = time.thread_time() + seconds
        seed = self.seed + number
        life = make_scenario(policy, kind, number, self.rounds, limits, seed, rng)
        if life is None:
            return
        beyond = _BEYOND if kind.start and not kind.quiet else None
        try:
            with np.errstate(all="ignore"):  # of a policy's own arithmetic on extreme values
                game = record(policy, life, seed, beyond, rare)
                neighbours = choose_neighbours(policy, game, wanted, limits, rng)
                streams = other_streams(policy, game, limits, rng)
                first = number % len(streams)
                others = streams[first:] + streams[:first]
                search.examine(game, neighbours, others, deadline)
        except (ArithmeticError, IndexError, ValueError, PolicyError) as error:
            if rare is None:
                raise
            fault = f"it fails after an answer that is rare but possible: {type(error).__name__}"
            raise PrivacyError(fault) from error
        if policy.rewards == "real" and not np.isfinite(policy.accepts).all():
            self.widths = sorted({entry.terms.sensitivity for entry in game.tape if entry.terms})


def audit_by_replay(
    policy: Policy,
    claim: Guarantee,
    *,
    rounds: int,
    pairs: int,
    seed: int,
    seconds: float = float("inf"),
    kinds: tuple[ScenarioKind, ...] = START_KINDS,
    games: bool = False,
    entries: dict[tuple[object, ...], Entry] | None = None,
    ended: Callable[[], bool] = lambda: False,
) -> ReplayAudit:
    """Try `pairs` neighbours spread over many lives: what one hides another shows.

    Args:
        policy: what to audit.
        claim: what it must keep.
        rounds: of most lives.
        pairs: neighbours to try.
        seed: of everything drawn.
        seconds: of processor time, after which no further life is begun.
        kinds: of lives; by default those that need no compiled play.
        games: whether what is unproved is played.
        entries: takes one entry of the tape for each mechanism and terms in use.
        ended: is asked often; once it says so, what was found by then is given.
    """
    if claim.scope == "report" and policy.report_kernel is None:
        fault = "claims that each reward is reported by its owner, but has no report_kernel"
        return ReplayAudit("violated", 0, 0, 0.0, 0.0, fault)
    if policy.report_kernel is not None:
        verdict, fault = report_fault(policy, claim, seed)
        if verdict != "consistent":
            return ReplayAudit(verdict, 0, 0, 0.0, 0.0, fault)
    far = any(kind.start for kind in kinds)
    if far:
        warm_up(policy)  # compiling does not count
    search = PairAuditor(policy, claim, seed, games, ended)
    rare = 0 if kinds is UNSCALED_KINDS else pairs // _RARE
    tour = ScenarioSearch(search, rounds, pairs, rare, seed, seconds)
    try:
        tour.all_kinds(kinds)
        tour.rare_answers()
        if far and not search.done:
            tour.around(scan_for_leaks(policy, seed, seconds / 4))
    except (PrivacyError, SavedStateError) as error:
        return ReplayAudit("unproved", search.tried, search.moved, 0.0, 0.0, str(error))
    if entries is not None:
        entries |= search.entries
    return search.verdict()
