"""The black-box audit: play neighbouring streams many times and tell them apart.

Three stages, each on games of its own: look for the neighbouring streams that differ most, choose
the event that tells them apart best, and measure that event on fresh games. Only the last stage
enters the bound, so the search costs no confidence.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from balaclava._core.number_format import rounded_down
from balaclava.auditing.games.compiled_games import OutputEvent, count_pulls_in_games
from balaclava.auditing.tape import Recorder
from balaclava.auditing.two_sample_bounds import epsilon_lower, log_wealth
from balaclava.errors import PrivacyError
from balaclava.policies.base import Policy
from balaclava.simulation.engine import available_cores

Count = Callable[..., np.ndarray]  # `count_pulls_in_games`, or the same on a GPU

_SEARCH, _TRAIN, _TEST, _BET = range(4)  # names of random streams
_GAPS, _FEW_GAPS = 21, 11
_LONG = 1_000  # rounds of a game, from which on fewer gaps are tried
_STEPS = 14  # of bisection: enough to find a threshold known to one part in 10^4
_PROBES = 24
_FEW_GAMES = 500
_HEAT = 4 * _FEW_GAMES  # games with which two streams are compared at first, at most
_CHOICE = 25_000_000  # games on each stream that choose an event, at most: the rest measure it
VIOLATED = 1e-4  # the error with which a claim is called violated though it holds
_MANY_GAMES = 100_000
_BLOCK = 1_000  # pairs between two looks at the bettor's wealth


class BestEvent(NamedTuple):
    """An event, the bound it promises, and the stream (0 or 1) on which it is likelier."""

    bound: float
    event: OutputEvent
    side: int


class Attack(NamedTuple):
    """Two neighbouring streams and an event that is likelier on the first."""

    streams: np.ndarray  # [2, rounds, arms]
    event: OutputEvent
    place: int


class StreamPair(NamedTuple):
    """Two reward streams that differ in round `place` alone."""

    streams: np.ndarray  # [2, rounds, arms]
    place: int


@dataclass(frozen=True)
class StatisticalAudit:
    """What playing neighbouring streams showed.

    `epsilon_lower` holds with the stated confidence. "violated" is said only where a bound that is
    wrong once in ten thousand audits is above the claim.
    """

    verdict: str
    epsilon_lower: float
    confidence: float
    games: int
    event: str
    place: int

    def __str__(self) -> str:
        return (
            f"{self.verdict}: epsilon is at least "
            f"{rounded_down(self.epsilon_lower, '.3f')} with confidence {self.confidence:g} "
            f"({self.games:,} games; round {self.place} differs; event: {self.event})"
        )


def audit_statistically(
    policy: Policy,
    epsilon: float,
    delta: float,
    *,
    rounds: int,
    trials: int,
    seed: int,
    confidence: float,
    count: Count = count_pulls_in_games,
    heat: int = _HEAT,
    times_more: int = 1,
) -> StatisticalAudit:
    """Bound epsilon from below with `trials` games, at most half of them to choose the event.

    `count` plays them, and those that look for streams: at most `heat` to compare two at first. If
    something shows, games of their own, `times_more` as many, measure it on the same streams.
    """
    half = max(trials // 4, 1)  # of the games on each stream
    _, planned = split_games(half)
    neighbours = find_stream_pair(policy, delta, rounds, planned, seed, count, heat)
    result = measure(policy, neighbours, epsilon, delta, rounds, half, seed, confidence, count)
    if times_more > 1 and result.epsilon_lower > 0.0:
        half *= times_more
        result = measure(
            policy, neighbours, epsilon, delta, rounds, half, seed + 1, confidence, count
        )
    return result


def split_games(half: int) -> tuple[int, int]:
    """Of 2 half games on a stream: how many choose the event, and how many measure it."""
    choice = min(half, _CHOICE)
    return choice, 2 * half - choice


def measure(
    policy: Policy,
    neighbours: StreamPair,
    epsilon: float,
    delta: float,
    rounds: int,
    half: int,
    seed: int,
    confidence: float,
    count: Count,
) -> StatisticalAudit:
    """Choose an event with some games on two streams, and measure it with others: 2 half on each.

    At most half of them choose.
    """
    choice, games = split_games(half)
    attack = choose_attack(policy, neighbours, delta, rounds, choice, games, seed, count)
    likely, unlikely = (
        count_event(policy, attack, stream, games, seed, _TEST, side, count=count)
        for side, stream in enumerate(attack.streams)
    )
    bound = float(epsilon_lower(likely, unlikely, games, delta, 1 - confidence))
    sure = float(epsilon_lower(likely, unlikely, games, delta, min(1 - confidence, VIOLATED)))
    return StatisticalAudit(
        verdict="violated" if sure > epsilon else "consistent",
        epsilon_lower=bound,
        confidence=confidence,
        games=4 * half,
        event=str(attack.event),
        place=attack.place,
    )


@dataclass(frozen=True)
class BettingAudit:
    """What a bettor against the claim made of 1: above 1/significance refutes the claim."""

    verdict: str
    log_wealth: float
    significance: float
    pairs: int
    event: str
    place: int

    def __str__(self) -> str:
        return (
            f"{self.verdict}: a bettor against the claim turned 1 into {_amount(self.log_wealth)} "
            f"in {self.pairs:,} pairs of games (refuted at {1 / self.significance:,.0f}; event: "
            f"{self.event})"
        )


def audit_by_betting(
    policy: Policy,
    epsilon: float,
    delta: float,
    *,
    rounds: int,
    pairs: int,
    seed: int,
    significance: float = 1e-3,
) -> BettingAudit:
    """An anytime-valid test: stops as soon as the claim is refuted, or after `pairs` pairs."""
    neighbours = find_stream_pair(policy, delta, rounds, pairs, seed)
    attack = choose_attack(policy, neighbours, delta, rounds, 32 * _FEW_GAMES, pairs, seed)
    return bet(policy, attack, epsilon, delta, pairs=pairs, seed=seed, significance=significance)


def bet(
    policy: Policy,
    attack: Attack,
    epsilon: float,
    delta: float,
    *,
    pairs: int,
    seed: int,
    significance: float = 1e-3,
) -> BettingAudit:
    """Bet on an event of a known attack, block by block."""
    pairing = np.random.default_rng([seed, _BET])
    counts = np.zeros((2, 2), np.int64)
    wealth, games_so_far = 0.0, 0
    while games_so_far < pairs and wealth < -math.log(significance):
        size = min(_BLOCK, pairs - games_so_far)
        left, right = (
            count_event(policy, attack, stream, size, seed, _BET, games_so_far, side)
            for side, stream in enumerate(attack.streams)
        )
        # The games of a block are paired at random, which is how many pairs have the event twice.
        both = int(pairing.hypergeometric(left, size - left, right))
        counts += np.array([[size - left - right + both, right - both], [left - both, both]])
        games_so_far += size
        wealth = log_wealth(counts, epsilon, delta)
    return BettingAudit(
        verdict="violated" if wealth >= -math.log(significance) else "consistent",
        log_wealth=wealth,
        significance=significance,
        pairs=games_so_far,
        event=str(attack.event),
        place=attack.place,
    )


def choose_attack(
    policy: Policy,
    neighbours: StreamPair,
    delta: float,
    rounds: int,
    games: int,
    planned: int,
    seed: int,
    count: Count = count_pulls_in_games,
) -> Attack:
    """The event that tells two streams apart best, found with games of its own."""
    probes = probe_rounds(rounds, neighbours.place)
    left, right = (
        count(policy, stream, games, neighbours.place, probes, seed, _TRAIN, side)
        for side, stream in enumerate(neighbours.streams)
    )
    _, event, side = best_event(left, right, games, probes, delta, planned)
    streams = np.ascontiguousarray(neighbours.streams[[side, 1 - side]])
    return Attack(streams, event, neighbours.place)


def find_stream_pair(
    policy: Policy,
    delta: float,
    rounds: int,
    planned: int,
    seed: int,
    count: Count = count_pulls_in_games,
    most: int = _HEAT,
) -> StreamPair:
    """The pair of streams, among some, that `planned` games on each will tell apart best.

    Arm 0 and arm 1 pay constant rewards whose difference is chosen by bisection so that the game
    is undecided to various degrees: where the outcome hangs on the noise, one reward shows. All
    candidates are tried with a few games, the best quarter of them again with four times as many,
    and so on until one is left.
    """
    # The first rewards, and, if games are many, later ones too: some batches start later.
    places = {1, min(2, rounds)}
    if planned >= _MANY_GAMES:
        places |= {max(rounds // part, 1) for part in (8, 4, 2)}
    candidates = [
        constant_pair(policy, gap, place, rounds)
        for gap in undecided_gaps(policy, rounds, seed)
        for place in sorted(places)
    ]
    few = planned // (4 * len(candidates))  # so that all heats together cost about one stage
    least = min(max(planned // len(candidates), 50), 200)
    games, heat = min(max(few, least), most), 0

    def score(number: int) -> float:
        candidate, path = candidates[number], (_SEARCH, heat, number)
        probes = probe_rounds(rounds, candidate.place)
        left, right = (
            count(policy, stream, games, candidate.place, probes, seed, *path, side)
            for side, stream in enumerate(candidate.streams)
        )
        return best_event(left, right, games, probes, delta, planned).bound

    while len(candidates) > 1:
        numbers = range(len(candidates))
        if count is count_pulls_in_games:
            with ThreadPoolExecutor(available_cores()) as pool:
                scores = list(pool.map(score, numbers))
        else:  # a GPU is busy with one
            scores = list(map(score, numbers))
        ranked = sorted(range(len(candidates)), key=lambda i: -scores[i])
        candidates = [candidates[i] for i in ranked[: max(len(candidates) // 4, 1)]]
        games, heat = 4 * games, heat + 1
    return candidates[0]


def undecided_gaps(policy: Policy, rounds: int, seed: int) -> list[float]:
    """Differences between the rewards of the first two arms at which the outcome is in doubt."""
    games = 200 if rounds < _LONG else 100
    probes = np.array([rounds])

    def share(gap: float) -> float:
        stream = constant_pair(policy, gap, 1, rounds).streams[0]
        counts = count_pulls_in_games(policy, stream, games, 1, probes, seed, _SEARCH)[-1, 0, 0]
        return float(counts @ np.arange(rounds + 1)) / (games * rounds)

    least, most = share(-1.0), share(1.0)

    def gap_at(level: float) -> float:
        target = least + level * (most - least)
        low, high = -1.0, 1.0
        for _ in range(_STEPS):
            middle = (low + high) / 2
            low, high = (middle, high) if share(middle) < target else (low, middle)
        return (low + high) / 2

    # Well beyond the doubtful range too: the rarer an outcome, the more a single reward shows.
    first, last = gap_at(0.1), gap_at(0.9)
    centre, width = (first + last) / 2, max(last - first, 1e-4)
    gaps = _GAPS if rounds < _LONG else _FEW_GAPS
    spread = np.linspace(centre - 2.5 * width, centre + 2.5 * width, gaps)
    return sorted({-1.0, 0.0, 1.0, *np.clip(spread, -1.0, 1.0).tolist()})


def constant_pair(policy: Policy, gap: float, place: int, rounds: int) -> StreamPair:
    """Constant rewards, arm 0 `gap` above arm 1; in round `place` the least or the largest."""
    low, high = policy.accepts
    if not (math.isfinite(low) and math.isfinite(high)):
        high = 1.0 if policy.rewards == "loss" else largest_counted_reward(policy, rounds)
        low = 0.0 if policy.rewards == "loss" else -high
    unit = np.zeros((rounds, policy.arms))
    unit[:, 0] = 0.5 + gap / 2
    unit[:, 1:2] = 0.5 - gap / 2
    streams = np.stack([unit, unit])
    streams[0, place - 1], streams[1, place - 1] = 0.0, 1.0
    return StreamPair(low + (high - low) * streams, place)


@functools.lru_cache(maxsize=64)
def largest_counted_reward(policy: Policy, rounds: int) -> float:
    """The largest first reward, a power of two, that gets past truncation; 1 if there is none."""
    params, prepare = policy.constants(), policy.prepare()
    begin, choose, learn, _ = policy.kernels
    for exponent in range(20, -41, -1):
        state, recorder = begin(params), Recorder(0)
        for t in range(1, rounds + 1):
            arm, phase = choose(params, state, t, policy.practice_context, recorder)
            reward = prepare(params, 2.0**exponent if t <= policy.arms else 0.0)
            try:
                learn(params, state, t, arm, reward, phase, recorder)
            except PrivacyError:
                return 1.0  # a mechanism was asked for what it cannot keep; the replay says so
            released = [entry.terms for entry in recorder.tape if entry.terms is not None]
            if any(terms.value != 0.0 for terms in released):
                return float(2.0**exponent)
            recorder.tape.clear()
    return 1.0


def probe_rounds(rounds: int, place: int) -> np.ndarray:
    """Where games are looked at: from the changed round to the end, ever wider apart."""
    spaced = np.geomspace(1, max(rounds - place, 1), _PROBES)
    probes = np.unique(np.clip(place + np.ceil(spaced), 1, rounds)).astype(np.int64)
    return probes


def best_event(
    left: np.ndarray,
    right: np.ndarray,
    games: int,
    probes: np.ndarray,
    delta: float,
    planned: int,
) -> BestEvent:
    """The event that promises the highest bound from `planned` games on each stream."""
    best = BestEvent(-1.0, OutputEvent(left.shape[0] - 1, 0, int(probes[-1]), 0, True), 0)
    seen = np.flatnonzero((left[-1] + right[-1]).any(axis=(0, 1)))
    left, right = left[..., seen], right[..., seen]
    for at_least in (True, False):
        # The least number of pulls for each event: between two that were seen nothing changes.
        least = np.append(seen[0], seen[:-1] + 1) if at_least else seen
        tails = [tail_counts(histogram, at_least) for histogram in (left, right)]
        for side in (0, 1):
            bounds = promised_bound(tails[side], tails[1 - side], games, delta, planned)
            branch, arm, probe, pulls = map(int, np.unravel_index(bounds.argmax(), bounds.shape))
            bound = float(bounds[branch, arm, probe, pulls])
            if bound > best.bound:
                pulls = min(int(least[pulls]), int(probes[probe]))  # at most all: always so
                event = OutputEvent(branch, arm, int(probes[probe]), pulls, at_least)
                best = BestEvent(bound, event, side)
    return best


def promised_bound(
    likely: np.ndarray, unlikely: np.ndarray, games: int, delta: float, planned: int
) -> np.ndarray:
    """About what `epsilon_lower` will say after `planned` games, by the normal approximation.

    What was seen is doubted too, by two standard deviations: thousands of events compete, and the
    luckiest would win.
    """
    p, q = likely / games, np.minimum((unlikely + 1.0) / games, 1.0)
    possible = p > delta
    p = np.where(possible, p, 1.0)
    deviation = np.sqrt((1 - p) * p / (p - delta) ** 2 + (1 - q) / q)
    doubt = 2.0 / math.sqrt(planned) + 2.0 / math.sqrt(games)
    return np.where(possible, np.log((p - delta) / q) - doubt * deviation, 0.0)


def tail_counts(histogram: np.ndarray, at_least: bool) -> np.ndarray:
    """Games with at least (or at most) n pulls, for each n."""
    if at_least:
        return histogram[..., ::-1].cumsum(axis=-1)[..., ::-1]
    return histogram.cumsum(axis=-1)


def count_event(
    policy: Policy,
    attack: Attack,
    stream: np.ndarray,
    games: int,
    seed: int,
    *path: int,
    count: Count = count_pulls_in_games,
) -> int:
    """In how many fresh games the event of an attack happened."""
    event = attack.event
    probes = np.array([event.round])
    histogram = count(policy, stream, games, attack.place, probes, seed, *path)
    return int(tail_counts(histogram, event.at_least)[event.branch, event.arm, 0, event.pulls])


def _amount(log_wealth: float) -> str:
    return f"{math.exp(log_wealth):,.2f}" if log_wealth < 20 else f"e^{log_wealth:.0f}"
