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
_PAIR_CHOICE_STAGE, _PAIR_MEASURE_STAGE = 20, 21  # of the seed: not those of `attacks`
_LEAST_OCCURRENCES = 10  # of an event in the choice stage: rarer ones are luck
_PAIR_DEVIATIONS = 4.0  # subtracted while events are ranked, so that luck does not choose


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


def test_pair(
    policy: Policy,
    scenario: Scenario,
    reference: np.ndarray,
    neighbour: Neighbour,
    claim: Guarantee,
    seed: int,
    error: float,
) -> PairTest:
    """Choose an event with some games on both streams, and measure it with others.

    `reference` has the decisions, [rounds, 2], with which those of the games are compared.
    """
    slot, rounds = neighbour.slot, scenario.rounds
    games = min(max(_STAGE_ROUNDS // rounds, _FEWEST_STAGE_GAMES), _MOST_STAGE_GAMES)
    if scenario.initial_state is not None:
        games = min(games, _MOST_GAMES_AHEAD)
    other = scenario.rewards.copy()
    other[slot] = neighbour.reward
    streams = [scenario.rewards, other]
    place = slot + 1 if slot < rounds else 1
    probes = probe_rounds(rounds, place)
    by_decision = claim.scope == "decision"

    def play(stage: int) -> list[tuple[np.ndarray, np.ndarray]]:
        counts = [
            play_scenario(
                policy, scenario, stream, games, place, probes, reference, seed, stage, side
            )
            for side, stream in enumerate(streams)
        ]
        return [event_counts(each, games, by_decision) for each in counts]

    chosen = choose_event(play(_PAIR_CHOICE_STAGE), claim.delta)
    if chosen is None:
        return PairTest(False, 0.0, 2 * games)
    side, event = chosen
    measured = play(_PAIR_MEASURE_STAGE)
    (likely, a), (unlikely, b) = measured[side], measured[1 - side]
    low = float(
        epsilon_lower(likely[event], unlikely[event], a[event], claim.delta, error, b[event])
    )
    return PairTest(low > claim.epsilon, low, 4 * games)


def choose_event(
    counts: list[tuple[np.ndarray, np.ndarray]], delta: float
) -> tuple[int, int] | None:
    """The stream on which the best event is likelier, and that event; None if all are too rare."""
    best, highest = None, -1.0
    for side in (0, 1):
        bounds = expected_pair_bound(*counts[side], *counts[1 - side], delta)
        if bounds.size and bounds.max() > highest:
            best, highest = (side, int(bounds.argmax())), float(bounds.max())
    return best if highest >= 0.0 else None


def event_counts(
    counts: GameCounts, games: int, by_decision: bool
) -> tuple[np.ndarray, np.ndarray]:
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
