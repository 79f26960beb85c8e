"""Games for claims of scope "joint": one participant differs, and events are of all others."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from balaclava.auditing.games.compiled_games import (
    COUNTED_ARMS,
    GameCounts,
    play_scenario,
    tail_counts,
)
from balaclava.auditing.games.pair_tests import Counts, PairGames
from balaclava.auditing.games.statistical_audit import StatisticalAudit, bounds_verdict
from balaclava.auditing.scenario import Neighbour, Scenario, plain_scenario
from balaclava.auditing.two_sample_bounds import VIOLATION_ERROR
from balaclava.policies.base import Policy
from balaclava.privacy.guarantee import Guarantee

_SEARCHED_ROUNDS = 3  # participants that are changed: the first ones of the first batch


class JointNeighbour(NamedTuple):
    """Another participant in one slot of a scenario."""

    slot: int
    context: np.ndarray
    rewards: np.ndarray  # [arm]


def with_neighbour(scenario: Scenario, neighbour: JointNeighbour) -> Scenario:
    """The scenario with that participant."""
    contexts, rewards = scenario.contexts.copy(), scenario.rewards.copy()
    contexts[neighbour.slot], rewards[neighbour.slot] = neighbour.context, neighbour.rewards
    return dataclasses.replace(scenario, contexts=contexts, rewards=rewards)


class JointGames(PairGames):
    """Games on two runs that differ in one participant, with the rewards that tell them best."""

    def __init__(
        self,
        policy: Policy,
        scenario: Scenario,
        reference: np.ndarray,
        participant: JointNeighbour,
        claim: Guarantee,
        seed: int,
    ) -> None:
        """`reference` has the decisions, [rounds, 2], with which those of games are compared."""
        place = Neighbour(participant.slot, float(participant.rewards[0]))
        super().__init__(policy, scenario, reference, place, claim, seed)
        self.participant = participant

    def play(self, rewards: np.ndarray, games: int, *path: int) -> list[Counts]:
        """How often each event of the others occurred in games on both runs."""
        scenario = dataclasses.replace(self.scenario, rewards=rewards)
        counts = [
            play_scenario(
                self.policy, each, each.rewards, games, self.place, self.probes, self.reference,
                self.seed, *path, side,
            )
            for side, each in enumerate((scenario, with_neighbour(scenario, self.participant)))
        ]  # fmt: skip
        slot = self.participant.slot
        return [counts_of_others(each, games, slot, self.policy) for each in counts]


def counts_of_others(counts: GameCounts, games: int, slot: int, policy: Policy) -> Counts:
    """How often each event of the decisions of all but one participant occurred."""
    same = np.delete(counts.same, slot)
    parts = [same, games - same]
    if policy.arms <= COUNTED_ARMS:
        pulls = pulls_of_others(counts.pulls, policy.arms)
        parts += [tail_counts(pulls, at_least).ravel() for at_least in (False, True)]
    happened = np.concatenate(parts)
    return happened, np.full(happened.size, games)


def pulls_of_others(pulls: np.ndarray, arms: int) -> np.ndarray:
    """Games with n pulls of an arm by all others: the changed participant's own is taken off."""
    others = np.zeros_like(pulls[0])
    for own in range(arms):
        mine = pulls[own].copy()
        mine[own] = np.roll(mine[own], -1, axis=-1)  # never 0 pulls of the arm that it got
        others += mine
    return others


def audit_joint_games(
    policy: Policy, claim: Guarantee, rounds: int, seed: int, confidence: float
) -> StatisticalAudit:
    """Bound epsilon from below by games on participants with opposite features and rewards."""
    low, high = policy.accepts
    scenario = plain_scenario(policy, np.full((rounds, policy.arms), low))
    reference = np.zeros((rounds, 2), np.int64)
    practice = scenario.context(0)
    axis = np.zeros_like(practice)
    axis[:, 0] = policy.feature_bound
    candidates = list[tuple[float, int, JointGames]]()
    for slot in range(min(_SEARCHED_ROUNDS, rounds - 1)):
        for context in (-practice, axis):
            neighbour = JointNeighbour(slot, context, np.full(policy.arms, high))
            games = JointGames(policy, scenario, reference, neighbour, claim, seed)
            candidates.append((games.search(), -len(candidates), games))
    _, _, games = max(candidates, key=lambda each: each[:2])
    certain = games.test(VIOLATION_ERROR)
    measured = games.measure(games.games, 2, 1.0 - confidence)
    bound = certain.epsilon_lower if certain.refuted else 0.0
    return StatisticalAudit(
        verdict=bounds_verdict(bound, claim.epsilon),
        epsilon_lower=measured.epsilon_lower,
        confidence=confidence,
        games=certain.games + measured.games,
        event="of the decisions of all others",
        place=games.participant.slot + 1,
        claimed=claim.epsilon,
    )
