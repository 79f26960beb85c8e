"""Games on one neighbouring pair, which may refute a claim that replay could not prove."""

import math
from typing import NamedTuple

import numpy as np

from balaclava._core.number_format import rounded_down
from balaclava.auditing.games.compiled_games import (
    GameCounts,
    play_scenario,
    probe_rounds,
    tail_counts,
)
from balaclava.auditing.scenario import Neighbour, Scenario
from balaclava.auditing.two_sample_bounds import cautious_log_ratio, epsilon_lower
from balaclava.policies.base import Policy
from balaclava.privacy.guarantee import Guarantee

_STAGE_ROUNDS = 2_000_000  # rounds of compiled play in a stage on one stream; a guess
_FEWEST_STAGE_GAMES, _MOST_STAGE_GAMES = 400, 40_000  # in a stage on one stream
_MOST_GAMES_AHEAD = 600  # the same if each game begins by copying a large state
_PAIR_SEARCH_STAGE, _PAIR_CHOICE_STAGE, _PAIR_MEASURE_STAGE = 19, 20, 21  # of the seed
# Gaps between the first two arms, as shares of the range, of the constant rewards that are tried in
# place of the recorded ones; and how many times fewer games screen each. Guesses.
_BACKGROUND_GAPS = (-1.0, -0.5, -0.25, -0.1, 0.0, 0.1, 0.25, 0.5, 1.0)
_FEWER_IN_SEARCH = 20
# Share of the claim from which a bound is close to it, and how many times more games follow.
_CLOSE_SHARE, _TIMES_MORE_IF_CLOSE = 0.7, 4
_LEAST_OCCURRENCES = 10  # of an event in the choice stage: rarer ones are luck
_PAIR_DEVIATIONS = 4.0  # subtracted while events are ranked, so that luck does not choose

Counts = tuple[np.ndarray, np.ndarray]  # of each event: occurrences, and games


class PairTest(NamedTuple):
    """The result of games on a pair."""

    refuted: bool
    epsilon_lower: float
    games: int

    def __str__(self) -> str:
        how = "refute the claim" if self.refuted else "refute nothing"
        return (
            f"{self.games:,} games on this pair {how}: epsilon is at least "
            f"{rounded_down(self.epsilon_lower, '.3f')}"
        )


class PairGames:
    """Games on two neighbouring streams, with the rewards that distinguish them best."""

    def __init__(
        self,
        policy: Policy,
        scenario: Scenario,
        reference: np.ndarray,
        neighbour: Neighbour,
        claim: Guarantee,
        seed: int,
    ) -> None:
        """`reference` has the decisions, [rounds, 2], with which those of games are compared."""
        self.policy, self.scenario, self.reference = policy, scenario, reference
        self.neighbour, self.claim, self.seed = neighbour, claim, seed
        self.rewards, rounds = scenario.rewards, scenario.rounds
        self.games = min(max(_STAGE_ROUNDS // rounds, _FEWEST_STAGE_GAMES), _MOST_STAGE_GAMES)
        if scenario.initial_state is not None:
            self.games = min(self.games, _MOST_GAMES_AHEAD)
        self.place = neighbour.slot + 1 if neighbour.slot < rounds else 1
        self.probes = probe_rounds(rounds, self.place)

    def play(self, rewards: np.ndarray, games: int, *path: int) -> list[Counts]:
        """How often each event occurred in games on both streams."""
        other = rewards.copy()
        other[self.neighbour.slot] = self.neighbour.reward
        counts = [
            play_scenario(
                self.policy, self.scenario, stream, games, self.place, self.probes, self.reference,
                self.seed, *path, side,
            )
            for side, stream in enumerate((rewards, other))
        ]  # fmt: skip
        return [event_counts(each, games, self.claim.scope == "decision") for each in counts]

    def search(self) -> float:
        """Choose the other rewards: the scenario's, or constants that show more in few games.

        Returns the bound that they promise.
        """
        best = -1.0
        for number, rewards in enumerate(backgrounds(self.policy, self.scenario, self.neighbour)):
            few = self.games // _FEWER_IN_SEARCH
            counts = self.play(rewards, few, _PAIR_SEARCH_STAGE, number)
            bound, _, _ = choose_event(counts, self.claim.delta)
            if bound > best:
                best, self.rewards = bound, rewards
        return best

    def test(self, error: float) -> PairTest:
        """Choose an event with some games, and measure it with others; again if it is close."""
        result = self.measure(self.games, 0, error / 2)
        if _CLOSE_SHARE * self.claim.epsilon < result.epsilon_lower <= self.claim.epsilon:
            result = self.measure(_TIMES_MORE_IF_CLOSE * self.games, 1, error / 2)
        return result

    def measure(self, games: int, attempt: int, error: float) -> PairTest:
        delta = self.claim.delta
        counts = self.play(self.rewards, games, _PAIR_CHOICE_STAGE, attempt)
        bound, side, event = choose_event(counts, delta)
        if bound < 0.0:
            return PairTest(False, 0.0, 2 * games)
        counts = self.play(self.rewards, games, _PAIR_MEASURE_STAGE, attempt)
        (likely, a), (unlikely, b) = counts[side], counts[1 - side]
        low = float(epsilon_lower(likely[event], unlikely[event], a[event], delta, error, b[event]))
        return PairTest(low > self.claim.epsilon, low, 4 * games)


def backgrounds(policy: Policy, scenario: Scenario, neighbour: Neighbour) -> list[np.ndarray]:
    """The rewards of a scenario, and constant ones with a gap between arms 0 and 1.

    The gap decides how much a decision depends on the noise, and so on one reward. A scenario that
    continues from a state has its own only: constants would contradict what came before.
    """
    if scenario.initial_state is not None:
        return [scenario.rewards]
    low, high = policy.accepts
    if not np.isfinite(high - low):
        low, high = scenario.rewards.min(), scenario.rewards.max()
    results = [scenario.rewards]
    for gap in _BACKGROUND_GAPS:
        constant = np.full_like(scenario.rewards, low)
        constant[:, 0] = low + (high - low) * (0.5 + gap / 2)
        constant[:, 1:2] = low + (high - low) * (0.5 - gap / 2)
        constant[neighbour.slot] = scenario.rewards[neighbour.slot]
        results.append(constant)
    return results


def choose_event(counts: list[Counts], delta: float) -> tuple[float, int, int]:
    """The expected bound of the best event, the stream on which it is likelier, and the event.

    The bound is negative if all events are too rare.
    """
    best = (-1.0, 0, 0)
    for side in (0, 1):
        bounds = expected_pair_bound(*counts[side], *counts[1 - side], delta)
        if bounds.size:
            best = max(best, (float(bounds.max()), side, int(bounds.argmax())))
    return best


def event_counts(counts: GameCounts, games: int, by_decision: bool) -> Counts:
    """How often each event occurred, and out of how many games.

    A claim on single decisions is about one decision, given all earlier ones. Its events are that a
    round's decision equals the reference or not, among games whose earlier decisions do.
    """
    if by_decision:
        trials = np.concatenate([[games], counts.prefix[:-1]])
        both = np.concatenate([counts.prefix, trials - counts.prefix])
        return both, np.concatenate([trials, trials])
    plain = np.concatenate([counts.same, counts.prefix])
    tails = [tail_counts(counts.pulls, at_least).ravel() for at_least in (False, True)]
    happened = np.concatenate([plain, games - plain, *tails])
    return happened, np.full(happened.size, games)


def expected_pair_bound(
    likely: np.ndarray,
    likely_trials: np.ndarray,
    unlikely: np.ndarray,
    unlikely_trials: np.ndarray,
    delta: float,
) -> np.ndarray:
    """An estimate of the bound from as many further games, with a margin for luck."""
    a, b = np.maximum(likely_trials, 1), np.maximum(unlikely_trials, 1)
    p, q = likely / a, np.minimum((unlikely + 2.0) / b, 1.0)
    possible = p > delta
    bound = cautious_log_ratio(np.where(possible, p, 1.0), q, delta, _PAIR_DEVIATIONS, a, b)
    return np.where(possible & (likely >= _LEAST_OCCURRENCES), bound, -math.inf)
