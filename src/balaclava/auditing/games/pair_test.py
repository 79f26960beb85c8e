"""Games on one very pair of streams: whether they refute what replay could not account for."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from balaclava._core.number_format import rounded_down
from balaclava.auditing.games.compiled_games import GameCounts, play_scenario
from balaclava.auditing.scenario import Neighbour, Scenario
from balaclava.auditing.two_sample_bounds import epsilon_lower
from balaclava.policies.base import Policy
from balaclava.privacy.guarantee import Guarantee

ERROR = 1e-4  # with which a claim is called violated though it holds
_STEPS = 2_000_000  # rounds of a stage on one stream
_MOST, _LEAST, _AHEAD = 40_000, 400, 600  # games
_PROBES = 24
_TRAIN, _TEST = 20, 21  # names of random streams


class PairTest(NamedTuple):
    """What games on a pair showed."""

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
    """Choose an event with some games on both streams, and measure it with others."""
    life, slot = scenario, neighbour.slot
    games = min(max(_STEPS // life.rounds, _LEAST), _MOST)
    if life.start is not None:
        games = min(games, _AHEAD)
    other = life.rewards.copy()
    other[slot] = neighbour.reward
    streams = [life.rewards, other]
    place = slot + 1 if slot < life.rounds else 1
    spaced = place + np.ceil(np.geomspace(1, max(life.rounds - place, 1), _PROBES))
    probes = np.unique(np.clip(spaced, 1, life.rounds)).astype(np.int64)
    decision = claim.scope == "decision"

    def play(stage: int) -> list[tuple[np.ndarray, np.ndarray]]:
        counts = [
            play_scenario(policy, life, stream, games, place, probes, reference, seed, stage, side)
            for side, stream in enumerate(streams)
        ]
        return [events(each, games, decision) for each in counts]

    (left, n), (right, m) = play(_TRAIN)
    best, bound = (0, 0), -1.0
    for side, (p, a, q, b) in enumerate(((left, n, right, m), (right, m, left, n))):
        promise = promised(p, a, q, b, claim.delta)
        if promise.size and promise.max() > bound:
            best, bound = (side, int(promise.argmax())), float(promise.max())
    side, event = best
    if bound < 0.0:
        return PairTest(False, 0.0, 2 * games)
    fresh = play(_TEST)
    (likely, a), (unlikely, b) = fresh[side], fresh[1 - side]
    low = float(
        epsilon_lower(likely[event], unlikely[event], a[event], claim.delta, error, b[event])
    )
    return PairTest(low > claim.epsilon, low, 4 * games)


def events(counts: GameCounts, games: int, decision: bool) -> tuple[np.ndarray, np.ndarray]:
    """How often each event happened, and out of how many games.

    For a claim on single decisions: that a round was decided as in the reference, or not, given
    that all earlier ones were. For one on whole trajectories every event will do.
    """
    if decision:
        out_of = np.concatenate([[games], counts.prefix[:-1]])
        both = np.concatenate([counts.prefix, out_of - counts.prefix])
        return both, np.concatenate([out_of, out_of])
    plain = np.concatenate([counts.same, counts.prefix])
    falling = counts.pulls.cumsum(axis=-1).ravel()
    rising = counts.pulls[..., ::-1].cumsum(axis=-1)[..., ::-1].ravel()
    happened = np.concatenate([plain, games - plain, falling, rising])
    return happened, np.full(happened.size, games)


def promised(
    p: np.ndarray, a: np.ndarray, q: np.ndarray, b: np.ndarray, delta: float
) -> np.ndarray:
    """About the bound that as many fresh games would give, doubted by what was seen by luck."""
    a, b = np.maximum(a, 1), np.maximum(b, 1)
    high, low = p / a, np.minimum((q + 2.0) / b, 1.0)
    possible = high > delta
    high = np.where(possible, high, 1.0)
    spread = np.sqrt((1 - high) * high / (a * (high - delta) ** 2) + (1 - low) / (low * b))
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.log((high - delta) / low) - 4.0 * spread
    return np.where(possible & (p >= 10), value, -math.inf)
