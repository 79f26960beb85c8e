"""The search for faults in long runs: other streams, neighbours, and budgets that add up."""

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.number_format import rounded_up
from balaclava.auditing.compiled_tape import CODE, EPSILON, FURTHER_PART, MOVES, SENSITIVITY
from balaclava.auditing.laws.tape_draws import tape_fault
from balaclava.auditing.rare_answers import code_numbers
from balaclava.auditing.replay.composed_loss import (
    INGREDIENTS,
    ComposedLoss,
    compose,
    composed,
    ingredients,
)
from balaclava.auditing.replay.long_runs import LongRun, record_long_run
from balaclava.auditing.replay.reward_choices import reward_limits, reward_stream
from balaclava.auditing.scenario import Neighbour
from balaclava.auditing.tape import MovedInput
from balaclava.policies.base import Policy
from balaclava.privacy.guarantee import Guarantee

_LONGEST_RUN = 300_000  # rounds
_SCRIPTED_SHARE = 0.6  # of answers
_RECORDING_SHARE = 1 / 16  # of the time; a slower recording shortens the next run
_SHORTEST_LONG_RUN = 4_000  # rounds to which they are shortened
_ROUNDS_BEYOND = 200  # after a policy's horizon
_MOST_READ = 2_000  # moved indices whose loss is computed, by decision
_GROWTH_MOVES = 8  # releases of one reward; with fewer, their sum is not extrapolated
_DOUBLINGS = 5  # of the rounds, or of releases, by which growth is judged
_SIXTEEN = 2 ** (_DOUBLINGS - 1)
_POWER_GROWTH = 3  # times as many releases in sixteen times the rounds: a power of the rounds
_UNBOUNDED_RUN = 2.0**60  # rounds of a policy without a horizon
_CONSTANT_GROWTH, _FASTEST_GROWTH = 1e-3, 4.0  # of the factor of growth per doubling
# Relative error of an extrapolated loss, since the factor is measured on whole releases. A guess.
_EXTRAPOLATION_ERROR = 0.1


class LongRunKind(NamedTuple):
    stream: int  # kind of `reward_stream`
    share: float = _SCRIPTED_SHARE  # of answers that are scripted
    late: bool = False  # whether rewards are late, and some decisions cancelled
    neighbours: bool = False  # whether single rewards are changed too
    special: bool = False  # whether rewards are special values
    times: int = 1  # as long


_KINDS = (
    LongRunKind(4, share=0.0, neighbours=True),
    LongRunKind(6),
    LongRunKind(8, late=True, neighbours=True),
    LongRunKind(0, share=0.0, late=True, neighbours=True),
    LongRunKind(1, share=0.9, special=True),
    LongRunKind(3),
    LongRunKind(6, share=0.3, times=3),
)


@dataclass
class LongReplay:
    """What long runs have shown so far."""

    policy: Policy
    claim: Guarantee
    seed: int
    fault: str = ""
    fault_round: int = 0  # of a decision that rewards reach past the mechanisms
    longest: int = 0  # rounds
    pairs: int = 0

    def search(self, seconds: float, ended: Callable[[], bool]) -> None:
        """Record a run of each kind while time is left."""
        limit = self.policy.horizon or 10 * _LONGEST_RUN
        rounds, script = min(limit + _ROUNDS_BEYOND, _LONGEST_RUN), code_numbers(self.policy)
        limits = reward_limits(self.policy)
        first = np.full((1, self.policy.arms), limits[0])
        record_long_run(self.policy, first, seed=0, script=script, share=0.0)  # compiles
        deadline = time.thread_time() + seconds
        runs: list[tuple[LongRun, np.random.Generator]] = []
        for number, kind in enumerate(_KINDS):
            rng = np.random.default_rng([self.seed, number, 9])
            length = max(min(kind.times * rounds, limit + _ROUNDS_BEYOND), 1)
            rewards = reward_stream(self.policy, length, kind.stream, limits, rng, kind.special)
            begun = time.thread_time()
            run = record_long_run(
                self.policy, rewards, seed=self.seed + number, script=script, share=kind.share,
                late=kind.late,
            )  # fmt: skip
            most = _RECORDING_SHARE * seconds / max(time.thread_time() - begun, 1e-9)
            rounds = max(int(min(most, 1.0) * rounds), min(rounds, _SHORTEST_LONG_RUN))
            failure, played = run.failure, run.rounds
            self.examine_streams(run, kind, limits, rng)
            if failure and not self.fault:
                self.fault = f"round {played + 1} of a long run: it fails with {failure}"
                self.fault_round = played + 1
            if kind.neighbours:
                runs.append((run, rng))
            if time.thread_time() > deadline or self.fault or ended():
                break
        for number, (run, rng) in enumerate(runs if self.claim.private else []):
            if self.fault or ended() or (number and time.thread_time() > deadline):
                return
            self.examine_neighbours(run, limits, rng)

    def examine_streams(
        self,
        run: LongRun,
        kind: LongRunKind,
        limits: tuple[float, float],
        rng: np.random.Generator,
    ) -> None:
        """Test the draws of a run, and replay it with other streams."""
        rewards, (low, high) = run.scenario.rewards, limits
        self.longest = max(self.longest, run.rounds)
        if not kind.share and (fault := tape_fault(run.tape.entries)):
            self.fault = fault
            return
        mirrored, states = np.clip(low + high - rewards, low, high), dict[int, Any]()
        for other, kept in ((mirrored, states), (rng.permutation(rewards), None)):
            if run.replay(other, states=kept)[0]:
                self.bisect(run, other)
                return
        fault, at = run.amplified_fault(states)
        if fault:
            self.fault, self.fault_round = f"a long run: {fault}", at + 1

    def bisect(self, run: LongRun, other: np.ndarray) -> None:
        """Find the reward with which the fault begins."""
        rewards = run.scenario.rewards
        few, many = 0, run.rounds  # rewards changed: without a fault, with one
        while many - few > 1:
            middle = (few + many) // 2
            if run.replay(np.concatenate([other[:middle], rewards[middle:]]))[0]:
                many = middle
            else:
                few = middle
        fault, at = run.replay(np.concatenate([other[:many], rewards[many:]]))
        self.fault, self.fault_round = f"round {many} of a long run: {fault}", at + 1

    def examine_neighbours(
        self, run: LongRun, limits: tuple[float, float], rng: np.random.Generator
    ) -> None:
        """Compare the losses of single rewards with the claim."""
        losses: list[tuple[int, float]] = []
        for slot in chosen_slots(run, rng):
            neighbour = Neighbour(slot, other_reward(run, slot, limits, rng))
            fault, _ = run.replay(run.scenario.rewards, neighbour)
            self.pairs += 1
            moves = run.moved()
            if not fault and moves:
                fault = self.loss_fault(run, moves)
                losses.append((slot, sum(move.loss.epsilon for move in moves)))
            if fault:
                self.fault = f"round {slot + 1} of a long run: {fault}"
                return
        if self.claim.scope != "decision":
            self.fault = self.budget_fault(run, losses)

    def loss_fault(self, run: LongRun, moves: list[MovedInput]) -> str:
        if self.claim.scope == "decision":
            return self.decision_fault(run, moves)
        loss = compose(moves, self.claim)
        if exceeds(loss, self.claim):
            return f"{loss}; claimed are {terms_of(self.claim)}"
        return self.growth_fault(run, moves)

    def decision_fault(self, run: LongRun, moves: list[MovedInput]) -> str:
        """The loss of the mechanisms between two choices: what one decision reads."""
        by_decision: dict[int, list[MovedInput]] = {}
        ends = run.places[: run.rounds, 0]
        for move in moves[:_MOST_READ]:
            by_decision.setdefault(int(np.searchsorted(ends, move.position, "right")), []).append(
                move
            )
        for i, mine in by_decision.items():
            loss = compose(mine, self.claim)
            if exceeds(loss, self.claim):
                return f"decision {i + 1}: {loss}; claimed are {terms_of(self.claim)}"
        return ""

    def growth_fault(self, run: LongRun, moves: list[MovedInput]) -> str:
        """Whether the loss of a reward that is released again and again outgrows the claim.

        The sums that it follows from are extrapolated, each by its own growth: advanced composition
        of all releases may converge while the plain sum does not.
        """
        horizon, most = self.policy.horizon or _UNBOUNDED_RUN, len(moves)
        rounds = np.searchsorted(run.places[: run.rounds, 1], [m.position for m in moves], "right")
        last = int(rounds[-1]) + 1
        seen = last if run.tape.cursor[MOVES] == len(run.tape.moves) else run.rounds
        if most < _GROWTH_MOVES or horizon <= seen:
            return ""  # all of it was played
        codes = run.tape.entries[: moves[0].position, CODE]
        before = np.count_nonzero((codes > 0.0) & (codes % 1.0 != FURTHER_PART))
        if most < (_SIXTEEN - 1) * (before + 0.5):
            return ""  # a late reward: at first its loss grows as its age does
        # By the logarithm of the place of each among all releases, so that a power of their number
        # stays one; its sum is an integral from half a place before to half a place after.
        places = np.arange(most + 1) + before + 0.5
        cuts = np.log(places[-1] / 2.0 ** np.arange(_DOUBLINGS - 1, -1, -1))
        sums = np.vstack([np.zeros(INGREDIENTS), ingredients(moves).cumsum(axis=0)])
        parts = [np.interp(cuts, np.log(places), column) for column in sums.T]
        ahead = math.log2(releases_until(horizon, rounds) / most)
        slack, claim = 1 + _EXTRAPOLATION_ERROR, self.claim
        loss = composed(np.array([extrapolated(part, ahead) for part in parts]), claim, most)
        epsilon = max(loss.epsilon, loss.declared)
        if epsilon <= claim.epsilon * slack and loss.delta <= claim.delta * slack:
            return ""
        half, whole = compose(moves[: most // 2], claim), compose(moves, claim)
        return (
            f"its loss grows with the run: {half} after {rounds[most // 2 - 1] + 1:,} rounds, "
            f"{whole} after {last:,}; claimed are {terms_of(claim)}"
        )

    def budget_fault(self, run: LongRun, losses: list[tuple[int, float]]) -> str:
        """Whether releases spend ever more, so that later rewards will outgrow the claim."""
        entries = run.tape.entries
        rounds = np.searchsorted(run.places[: run.rounds, 1], np.arange(len(entries)), "right")
        cuts = [run.rounds >> j for j in range(_DOUBLINGS, -1, -1)]
        spent = [
            float(entries[(rounds >= first) & (rounds < end) & (entries[:, CODE] > 0.0), EPSILON]
                  .max(initial=0.0))
            for first, end in itertools.pairwise(cuts)
        ]  # fmt: skip
        if (self.policy.horizon or _UNBOUNDED_RUN) <= run.rounds or (np.diff(spent) <= 0.0).any():
            return ""
        doublings = math.log2((self.policy.horizon or _UNBOUNDED_RUN) / run.rounds)
        most = extrapolated(np.array(spent), doublings)
        late = [loss for slot, loss in losses if slot >= cuts[-2]]
        if not late or max(late) / spent[-1] * most <= self.claim.epsilon * (1 + 1e-6):
            return ""
        return (
            f"its releases spend ever more: epsilon {spent[-2]:.4g} by round {cuts[-2]:,}, "
            f"{spent[-1]:.4g} by round {cuts[-1]:,}; claimed are {terms_of(self.claim)}"
        )


def releases_until(horizon: float, rounds: np.ndarray) -> float:
    """The number of releases by the horizon; those in these rounds have been seen.

    It grows as since a sixteenth of the rounds: by so many a doubling, or by a factor.
    """
    most, last = len(rounds), int(rounds[-1]) + 1
    early, doublings = int(np.searchsorted(rounds, last / _SIXTEEN)), math.log2(_SIXTEEN)
    ahead = math.log2(horizon / last)
    if most < _POWER_GROWTH * early:
        return most + (most - early) / doublings * ahead
    return float(most * min((most / max(early, 1)) ** (1 / doublings), 2.0) ** ahead)


def extrapolated(losses: np.ndarray, doublings: float) -> float:
    """The loss after further doublings, if its growth keeps changing by the same factor."""
    *_, before, growth = np.diff(losses)
    if not (growth > 0.0 and before > 0.0):
        return losses[-1]
    factor = min(growth / before, _FASTEST_GROWTH)
    if abs(factor - 1.0) < _CONSTANT_GROWTH:
        return float(losses[-1] + growth * doublings)
    return float(losses[-1] + growth * factor * (1 - factor**doublings) / (1 - factor))


def exceeds(loss: ComposedLoss, claim: Guarantee) -> bool:
    return not loss.within(claim) or not loss.declared_within(claim)


def terms_of(claim: Guarantee) -> str:
    epsilon, delta = rounded_up(claim.epsilon, ".4g"), rounded_up(claim.delta, ".3g")
    return f"epsilon {epsilon} and delta {delta}"


def chosen_slots(run: LongRun, rng: np.random.Generator) -> list[int]:
    """Early rewards, rewards about the widest gaps between queries, and random ones."""
    slots_told = np.unique(run.scenario.event_items[run.scenario.event_items > 0]) - 1
    slots_told = slots_told[slots_told < run.rounds]
    if not slots_told.size:
        return []
    ends = np.flatnonzero(np.diff(run.places[: run.rounds, 1], prepend=0))
    wide = ends[np.argsort(np.diff(ends, prepend=0))[-2:]] if ends.size else ends
    places = [0, run.policy.arms, *wide, *(wide - 1), *rng.integers(0, run.rounds, 3)]
    slots = slots_told[np.minimum(np.searchsorted(slots_told, places), slots_told.size - 1)]
    return np.unique(slots).tolist()


def other_reward(
    run: LongRun, slot: int, limits: tuple[float, float], rng: np.random.Generator
) -> float:
    """The far end of the range; for unbounded rewards, also about as far as truncation allows."""
    low, high = limits
    now = run.scenario.rewards[slot, run.decisions[0, slot]]
    if run.policy.rewards == "real" and rng.random() < 0.5:
        sizes = run.tape.entries[run.tape.entries[:, CODE] > 0.0, SENSITIVITY]
        if sizes.size:
            high = float(rng.choice(sizes)) * 0.5
            low = -high
    return float(high if now < (low + high) / 2 else low)
