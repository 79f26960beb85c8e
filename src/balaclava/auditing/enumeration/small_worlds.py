"""Small worlds: short scenarios of a variant of a policy, and their worst neighbouring pair."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.number_format import rounded_down, rounded_up
from balaclava.auditing.audit_plan import first_release
from balaclava.auditing.enumeration.branching import BranchCounts, NotEnumerable
from balaclava.auditing.enumeration.sequence_laws import Enumeration
from balaclava.auditing.games.pair_tests import PairGames, PairTest
from balaclava.auditing.replay.recorded_run import record
from balaclava.auditing.replay.reward_choices import reward_limits
from balaclava.auditing.scenario import Neighbour, event_arrays, plain_scenario
from balaclava.auditing.two_sample_bounds import VIOLATION_ERROR
from balaclava.errors import ParameterError
from balaclava.policies.base import Policy

_FREE_REWARDS, _FEWER_REWARDS = 6, 3  # that vary: 192 pairs; fewer if nothing depends on one
_SMALL_ROUNDS = 6  # of a world in which all rewards vary
_UNRELEASED_ROUNDS = 30  # of a world without a first release
_LONGEST_WORLD = 60  # rounds in which a first release is awaited
_EARLY_RELEASE = 3  # rounds: no parameter is changed to release earlier
_MOST_RUNS = 5_000  # of kernels in a world: about a third of a second
# Tried if nothing depends on a reward otherwise. Larger claims are lowered to it: probabilities
# would vanish in floats.
_LARGE_EPSILON = 8.0
# Smaller ones are not compared: their neighbours' may have vanished in floats, below 1e-308.
_LEAST_PROBABILITY = 1e-250
_EXACT_TOLERANCE = 1e-9  # of sums of probabilities: float rounding
# Parameters of a small variant, each where the policy takes it.
_SMALL = {"arms": 2, "outstanding": 32, "features": 1, "experts": 2, "learning_rate_scale": 20.0}
_BATCH_SIZES = ("batch", "first_batch", "first_episode")
# Further ones, together, as long as releases become earlier.
_SHORTER: tuple[dict[str, Any], ...] = (
    {"batch_ratio": 2.0, "first_batch": 1},
    {"first_batch": 1},
    {"batch": 1},
    {"first_episode": 1},
    {"radius_scale": 0.01},
    {"horizon": 6},
    {"radius_scale": 0.01, "horizon": 6},
)
_NOT_SIZES = {"arms", "horizon", "features", "experts", "outstanding"}


class WorstPair(NamedTuple):
    """The pair of assignments with the largest loss, and the sequence that shows it."""

    loss: float  # epsilon, or delta if the claim has one
    likely: int  # assignments of the rewards
    unlikely: int
    slot: int
    history: int


def enumerated_worlds(policy: Policy) -> tuple[list[SmallWorld], int]:
    """The small worlds of a variant; with a large epsilon if nothing depends on a reward.

    Returns them, and how many more could not be enumerated.
    """
    if policy.guarantee.epsilon > _LARGE_EPSILON:
        policy = with_parameters(policy, {"epsilon": _LARGE_EPSILON})
    variant, first = small_variant(policy)
    if variant.guarantee.epsilon > _LARGE_EPSILON:
        raise NotEnumerable(f"epsilon is above {_LARGE_EPSILON:g}")
    for each in (variant, with_parameters(variant, {"epsilon": _LARGE_EPSILON})):
        worlds, refusals = [], []
        # A single reward and coarser answers leave runs for further releases.
        few = [SmallWorld(each, first, 1, longer=3)]
        few.append(SmallWorld(each, first, 1, late=True, alone=True))
        sizes = (_FREE_REWARDS, _FEWER_REWARDS)
        many = [[SmallWorld(each, first, n, late=late) for n in sizes] for late in (False, True)]
        two = with_batches_of_two(each)
        if two is not each:
            many.append([SmallWorld(two, first_release(two, _LONGEST_WORLD), n) for n in sizes])
        for group in (*many, *([world] for world in few)):
            for world in group:  # the next of a group if nothing depends on a reward
                try:
                    world.enumerate()
                except NotEnumerable as error:
                    refusals.append(error)
                    continue
                worlds.append(world)
                if world.moved:
                    break
        if not worlds:
            raise refusals[0]
        if any(world.moved for world in worlds):
            break
        first = first_release(each, _LONGEST_WORLD)
    if refusals and not any(world.moved or world.counts.errors for world in worlds):
        raise refusals[0]
    return worlds, len(refusals)


def small_variant(policy: Policy) -> tuple[Policy, int | None]:
    """A variant that releases early, and the round of its first release."""
    for name, value in _SMALL.items():
        policy = with_parameters(policy, {name: value})
    first = first_release(policy, _LONGEST_WORLD)
    for changes in _SHORTER:
        if first is not None and first <= _EARLY_RELEASE:
            break
        policy, first = min(
            (policy, first), released_first(with_parameters(policy, changes)), key=_release_round
        )
    for name, value in policy.parameters.items():  # an author's own name of a batch size
        if first is not None and first <= _SMALL_ROUNDS:
            break
        if type(value) is int and value > 1 and name not in _NOT_SIZES:
            changed = released_first(with_parameters(policy, {name: 1}))
            policy, first = min((policy, first), changed, key=_release_round)
    return policy, first


def with_batches_of_two(policy: Policy) -> Policy:
    """The policy with batches of 2 where they have 1: a sum of one reward hides wrong weights."""
    single = [name for name in _BATCH_SIZES if policy.parameters.get(name) == 1]
    return with_parameters(policy, dict.fromkeys(single, 2)) if single else policy


def released_first(policy: Policy) -> tuple[Policy, int | None]:
    return policy, first_release(policy, _LONGEST_WORLD)


def _release_round(candidate: tuple[Policy, int | None]) -> float:
    return math.inf if candidate[1] is None else candidate[1]


def with_parameters(policy: Policy, changes: dict[str, Any]) -> Policy:
    """The policy with other parameters, or itself if it does not take them."""
    if not changes.keys() <= policy.annotations.keys():
        return policy
    try:
        return type(policy).create({**policy.parameters, **changes})
    except ParameterError:
        return policy


def extreme_rewards(policy: Policy, rounds: int) -> tuple[float, float]:
    """The smallest and the largest reward; if there are none, those that pass truncation."""
    if policy.rewards != "real" or np.isfinite(policy.accepts).all():
        return reward_limits(policy)
    run = record(policy, plain_scenario(policy, np.zeros((rounds, policy.arms))), 0)
    level = min((0.5 * each.terms.sensitivity for each in run.tape if each.terms), default=1.0)
    return -level, level


class SmallWorld:
    """A scenario of few rounds, in which some rewards vary; enumerated as far as runs allow."""

    def __init__(
        self,
        policy: Policy,
        first: int | None,
        rewards: int,
        late: bool = False,
        longer: int = 1,
        alone: bool = False,  # whether only the rewards that vary arrive
    ) -> None:
        self.policy, self.claim = policy, policy.guarantee
        rounds, end = _UNRELEASED_ROUNDS, _SMALL_ROUNDS
        if first is not None:
            end = max(first, _SMALL_ROUNDS)
            rounds = 2 * first + 2 if first >= _SMALL_ROUNDS else _SMALL_ROUNDS
        rounds = min(rounds * longer, longer * _LONGEST_WORLD)
        slots = range(max(end - _FREE_REWARDS, 0), end)[:rewards]
        self.scenario = plain_scenario(policy, np.zeros((rounds, policy.arms)))
        self.limits = extreme_rewards(policy, rounds)
        lost = slots[1:2] if late and not alone else slots[:0]
        self.free = tuple(slot for slot in slots if slot not in lost)
        self.lost = set(range(rounds)) - set(self.free) if alone else set(lost)
        if late:
            self.scenario.event_offsets, self.scenario.event_items = event_arrays(
                [[self.event(i - 1)] if i else [] for i in range(rounds)]
            )
        self.enumeration = Enumeration(
            policy, self.scenario, self.free, self.limits, _MOST_RUNS, few_cells=longer > 1
        )
        self.worst = WorstPair(0.0, 0, 0, 0, -1)
        self.played = self.sequences = 0
        self.moved = False  # whether a reward changes the law

    def event(self, slot: int) -> int:
        return -(slot + 1) if slot in self.lost else slot + 1

    def enumerate(self) -> None:
        """Follow all branches, round by round, and keep the worst pair of what is complete."""
        earlier = {-1: np.ones(2 ** len(self.free))}
        try:
            for laws in self.enumeration.rounds():
                self.played, self.sequences = self.played + 1, len(laws)
                if self.claim.scope == "decision":
                    self.compare(laws, earlier)
                earlier = laws
        except NotEnumerable:
            if self.played < 2:
                raise
        if self.claim.scope != "decision":
            self.compare(earlier, None)

    def compare(self, laws: dict[int, np.ndarray], earlier: dict[int, np.ndarray] | None) -> None:
        """Update the worst pair by the laws of sequences, or of a decision given earlier ones."""
        self.moved |= any(np.ptp(row) > _EXACT_TOLERANCE * row.max() for row in laws.values())
        histories = np.array(list(laws))
        matrix = np.array(list(laws.values()))
        parents = np.full(len(histories), -1)
        if earlier is not None:
            parents = np.array([self.enumeration.sequences.parent(each) for each in histories])
            matrix = matrix / np.array([earlier[parent] for parent in parents])
        assignments = np.arange(matrix.shape[1])
        for k, slot in enumerate(self.free):
            for likely in assignments:
                unlikely = int(likely ^ 1 << k)
                p, q = matrix[:, likely], matrix[:, unlikely]
                loss, place = self.loss(p, q, parents)
                if loss > self.worst.loss * (1.0 + _EXACT_TOLERANCE):
                    self.worst = WorstPair(loss, int(likely), unlikely, slot, int(histories[place]))

    def loss(self, p: np.ndarray, q: np.ndarray, parents: np.ndarray) -> tuple[float, int]:
        """Epsilon, or delta at the claimed epsilon, and the sequence with the largest part."""
        if self.claim.delta == 0.0:
            certain = (p > _LEAST_PROBABILITY) & (q >= 0.0)
            ratios = np.where(certain, np.log(p) - np.log(q), -np.inf)
            place = int(ratios.argmax())
            return float(ratios[place]), place
        factor = math.exp(self.claim.epsilon * (1.0 + _EXACT_TOLERANCE))
        excess = np.maximum(np.nan_to_num(p - factor * q), 0.0)
        _, groups = np.unique(parents, return_inverse=True)
        sums = np.bincount(groups, excess)
        inside = np.where(groups == sums.argmax(), excess, -1.0)
        return float(sums.max()), int(inside.argmax())

    @property
    def counts(self) -> BranchCounts:
        return self.enumeration.counts

    @property
    def exceeds_claim(self) -> bool:
        pure = self.claim.delta == 0.0
        limit = self.claim.epsilon if pure else self.claim.delta
        return self.worst.loss > limit * (1.0 + _EXACT_TOLERANCE) + _EXACT_TOLERANCE

    def describe(self) -> str:
        """How the worst pair exceeds the claim."""
        worst, claim = self.worst, self.claim
        arms = "".join(str(arm) for arm, _ in self.decisions())
        exact = rounded_down(worst.loss, ".4g") if math.isfinite(worst.loss) else "infinite"
        named = "delta" if claim.delta else "epsilon"
        limit = claim.delta if claim.delta else claim.epsilon
        return (
            f"exact {named} {exact}, claimed {rounded_up(limit, '.4g')}: the decisions {arms} "
            f"(arms in order) reveal the reward of round {worst.slot + 1}"
        )

    def decisions(self) -> list[tuple[int, int]]:
        """The decisions of the worst sequence."""
        sequence = self.enumeration.sequences.sequence(self.worst.history)
        return [each for each in sequence if isinstance(each, tuple) and isinstance(each[0], int)]

    def play_games(self, seed: int) -> PairTest:
        """Games with the real noise on the worst pair."""
        rewards = np.full(self.scenario.rewards.shape, self.limits[0])
        for k, slot in enumerate(self.free):
            rewards[slot] = self.limits[self.worst.likely >> k & 1]
        scenario = dataclasses.replace(self.scenario, rewards=rewards)
        decisions = self.decisions()
        decisions += [(0, 0)] * (scenario.rounds - len(decisions))
        changed = self.limits[self.worst.unlikely >> self.free.index(self.worst.slot) & 1]
        neighbour = Neighbour(self.worst.slot, changed)
        reference = np.array(decisions, np.int64)
        games = PairGames(self.policy, scenario, reference, neighbour, self.claim, seed)
        games.search()
        return games.test(VIOLATION_ERROR)
