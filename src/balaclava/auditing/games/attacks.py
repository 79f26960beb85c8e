"""Attacks: a neighbouring pair of reward streams, and an event that distinguishes them."""

import functools
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from balaclava.auditing.games.compiled_games import (
    OutputEvent,
    count_pulls_in_games,
    probe_rounds,
    tail_counts,
)
from balaclava.auditing.scenario import agent_accepts
from balaclava.auditing.tape import Recorder
from balaclava.auditing.two_sample_bounds import cautious_log_ratio
from balaclava.policies.base import Policy
from balaclava.simulation.engine import available_cores

Count = Callable[..., np.ndarray]  # `count_pulls_in_games`, or the same on a GPU

SEARCH_STAGE, CHOICE_STAGE, MEASURE_STAGE, BET_STAGE = range(4)  # of the seed: separate streams
SCREENING_GAMES = 2_000  # games that first compare two streams, at most
# Reward gaps between the first two arms that are tried; games of many rounds take longer.
_GAPS, _GAPS_IN_LONG_GAMES = 21, 11
_LONG_GAME_ROUNDS = 1_000
_GAP_BISECTIONS = 14  # so that a gap is accurate to 10^-4
_GAMES_FOR_LATE_CHANGES = 100_000  # planned games with which later changes are tried too
_BEYOND_RANGE = 3.0  # widths of the range, by which the changed reward exceeds it if accepted
_DEVIATIONS = 2.0  # subtracted while events are ranked, so that luck does not choose


class GameSetting(NamedTuple):
    """Settings of all games of an audit."""

    policy: Policy
    delta: float  # the claimed one
    rounds: int
    seed: int
    play: Count = count_pulls_in_games

    def counts(
        self, streams: np.ndarray, games: int, place: int, probes: np.ndarray, *path: int
    ) -> list[np.ndarray]:
        """Counts of pulls in `games` games on each of two streams."""
        return [
            self.play(self.policy, stream, games, place, probes, self.seed, *path, side)
            for side, stream in enumerate(streams)
        ]


class StreamPair(NamedTuple):
    """Two reward streams that differ in round `place` alone."""

    streams: np.ndarray  # [2, rounds, arms]
    place: int


class Attack(NamedTuple):
    """Two neighbouring streams and an event that is likelier on the first."""

    streams: np.ndarray  # [2, rounds, arms]
    event: OutputEvent
    place: int


class BestEvent(NamedTuple):
    """An event, its expected bound, and the stream (0 or 1) on which it is likelier."""

    bound: float
    event: OutputEvent
    side: int


def choose_attack(setting: GameSetting, pair: StreamPair, games: int, planned: int) -> Attack:
    """The event that distinguishes two streams best, found in separate games."""
    probes = probe_rounds(setting.rounds, pair.place)
    counts = setting.counts(pair.streams, games, pair.place, probes, CHOICE_STAGE)
    _, event, side = best_event(counts, games, probes, setting.delta, planned)
    streams = np.ascontiguousarray(pair.streams[[side, 1 - side]])
    return Attack(streams, event, pair.place)


def count_event(setting: GameSetting, attack: Attack, games: int, *path: int) -> list[int]:
    """The number of new games on each stream in which the event of an attack occurred."""
    event = attack.event
    probes = np.array([event.round])
    return [
        int(tail_counts(histogram, event.at_least)[event.branch, event.arm, 0, event.pulls])
        for histogram in setting.counts(attack.streams, games, attack.place, probes, *path)
    ]


def find_stream_pair(
    setting: GameSetting, planned: int, most_games: int = SCREENING_GAMES
) -> StreamPair:
    """The candidate pair that `planned` games on each stream will distinguish best.

    Arms 0 and 1 pay constant rewards. Their difference decides how much the outcome depends on the
    noise, and so on one reward. All candidates are screened with a few games, the best quarter
    again with four times as many, and so on until one is left.
    """
    policy, rounds = setting.policy, setting.rounds
    # The first rewards and, with many games, later ones: some batches start later.
    places = {1, min(2, rounds)}
    if planned >= _GAMES_FOR_LATE_CHANGES:
        places |= {max(rounds // part, 1) for part in (8, 4, 2)}
    candidates = [
        constant_pair(policy, gap, place, rounds)
        for gap in undecided_gaps(policy, rounds, setting.seed)
        for place in sorted(places)
    ]
    few = planned // (4 * len(candidates))  # the screening then costs about one stage
    least = min(max(planned // len(candidates), 50), 200)
    games, screening = min(max(few, least), most_games), 0

    def score(number: int) -> float:
        streams, place = candidates[number]
        probes = probe_rounds(rounds, place)
        counts = setting.counts(streams, games, place, probes, SEARCH_STAGE, screening, number)
        return best_event(counts, games, probes, setting.delta, planned).bound

    while len(candidates) > 1:
        numbers = range(len(candidates))
        if setting.play is count_pulls_in_games:
            with ThreadPoolExecutor(available_cores()) as pool:
                scores = list(pool.map(score, numbers))
        else:  # one candidate keeps a GPU busy
            scores = list(map(score, numbers))
        ranked = sorted(numbers, key=lambda i: -scores[i])
        candidates = [candidates[i] for i in ranked[: max(len(candidates) // 4, 1)]]
        games, screening = 4 * games, screening + 1
    return candidates[0]


def undecided_gaps(policy: Policy, rounds: int, seed: int) -> list[float]:
    """Reward gaps between the first two arms at which the outcome is uncertain."""
    games = 200 if rounds < _LONG_GAME_ROUNDS else 100
    probes = np.array([rounds])

    def share(gap: float) -> float:
        stream = constant_pair(policy, gap, 1, rounds).streams[0]
        counts = count_pulls_in_games(policy, stream, games, 1, probes, seed, SEARCH_STAGE)
        return float(counts[-1, 0, 0] @ np.arange(rounds + 1)) / (games * rounds)

    least, most = share(-1.0), share(1.0)

    def gap_at(level: float) -> float:
        target = least + level * (most - least)
        low, high = -1.0, 1.0
        for _ in range(_GAP_BISECTIONS):
            middle = (low + high) / 2
            low, high = (middle, high) if share(middle) < target else (low, middle)
        return (low + high) / 2

    # Also beyond the uncertain range: a single reward has more effect on a rarer outcome.
    first, last = gap_at(0.1), gap_at(0.9)
    centre, width = (first + last) / 2, max(last - first, 1e-4)
    gaps = _GAPS if rounds < _LONG_GAME_ROUNDS else _GAPS_IN_LONG_GAMES
    spread = np.linspace(centre - 2.5 * width, centre + 2.5 * width, gaps)
    return sorted({-1.0, 0.0, 1.0, *np.clip(spread, -1.0, 1.0).tolist()})


def constant_pair(policy: Policy, gap: float, place: int, rounds: int) -> StreamPair:
    """Constant rewards with that gap between arms 0 and 1, but the extremes in round `place`."""
    low, high = policy.accepts
    beyond = _BEYOND_RANGE if agent_accepts(policy, high + _BEYOND_RANGE * (high - low)) else 0.0
    if not (math.isfinite(low) and math.isfinite(high)):
        high = 1.0 if policy.rewards == "loss" else largest_counted_reward(policy, rounds)
        low, beyond = 0.0 if policy.rewards == "loss" else -high, 0.0
    unit = np.zeros((rounds, policy.arms))
    unit[:, 0] = 0.5 + gap / 2
    unit[:, 1:2] = 0.5 - gap / 2
    streams = np.stack([unit, unit])
    streams[0, place - 1], streams[1, place - 1] = -beyond, 1.0 + beyond
    return StreamPair(low + (high - low) * streams, place)


@functools.lru_cache(maxsize=64)
def largest_counted_reward(policy: Policy, rounds: int) -> float:
    """The largest power of two that passes truncation as a first reward; 1 if there is none."""
    params, prepare = policy.constants(), policy.prepare()
    begin, choose, learn, _ = policy.kernels
    for exponent in range(20, -41, -1):
        state, recorder = begin(params), Recorder(0)
        for t in range(1, rounds + 1):
            reward = prepare(params, 2.0**exponent if t <= policy.arms else 0.0)
            try:
                arm, phase = choose(params, state, t, policy.practice_context, recorder)
                learn(params, state, t, arm, reward, phase, recorder)
            except Exception:
                return 1.0  # replay reports it
            released = [entry.terms for entry in recorder.tape if entry.terms is not None]
            if any(terms.value != 0.0 for terms in released):
                return float(2.0**exponent)
            recorder.tape.clear()
    return 1.0


def best_event(
    counts: list[np.ndarray], games: int, probes: np.ndarray, delta: float, planned: int
) -> BestEvent:
    """The event with the highest expected bound from `planned` games on each stream."""
    left, right = counts
    best = BestEvent(-1.0, OutputEvent(left.shape[0] - 1, 0, int(probes[-1]), 0, True), 0)
    seen = np.flatnonzero((left[-1] + right[-1]).any(axis=(0, 1)))
    if not seen.size:  # every game failed
        return best
    left, right = left[..., seen], right[..., seen]
    for at_least in (True, False):
        # The fewest pulls of each event; it is the same between two numbers that occurred.
        least = np.append(seen[0], seen[:-1] + 1) if at_least else seen
        tails = [tail_counts(histogram, at_least) for histogram in (left, right)]
        for side in (0, 1):
            bounds = expected_bound(tails[side], tails[1 - side], games, delta, planned)
            branch, arm, probe, pulls = map(int, np.unravel_index(bounds.argmax(), bounds.shape))
            bound = float(bounds[branch, arm, probe, pulls])
            if bound > best.bound:
                pulls = min(int(least[pulls]), int(probes[probe]))  # at most all: always true
                event = OutputEvent(branch, arm, int(probes[probe]), pulls, at_least)
                best = BestEvent(bound, event, side)
    return best


def expected_bound(
    likely: np.ndarray, unlikely: np.ndarray, games: int, delta: float, planned: int
) -> np.ndarray:
    """An estimate of `epsilon_lower` after `planned` games, with a margin for luck."""
    p, q = likely / games, np.minimum((unlikely + 1.0) / games, 1.0)
    possible = p > delta
    margin = _DEVIATIONS / math.sqrt(planned) + _DEVIATIONS / math.sqrt(games)
    bound = cautious_log_ratio(np.where(possible, p, 1.0), q, delta, margin)
    return np.where(possible, bound, 0.0)
