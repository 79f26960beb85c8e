"""The black-box audit: play two neighbouring streams many times and distinguish them.

It has three stages with separate games: find the neighbouring streams that differ most, choose the
event that distinguishes them best, and measure that event. Only the last stage enters the bound, so
the search costs no confidence.
"""

import math
from dataclasses import dataclass

import numpy as np

from balaclava._core.number_format import rounded_down
from balaclava.auditing.games import attacks
from balaclava.auditing.two_sample_bounds import VIOLATION_ERROR, epsilon_lower, log_wealth

_MOST_CHOICE_GAMES = 25_000_000  # games on each stream that choose an event: more gain nothing
_BET_CHOICE_GAMES = 16_000  # games on each stream that choose the event to bet on; a guess
_BET_BLOCK = 1_000  # pairs of games between two updates of the bettor's wealth
_BET_SIGNIFICANCE = 1e-3  # a claim that holds is refuted with at most this probability


@dataclass(frozen=True)
class StatisticalAudit:
    """The result of games on neighbouring streams.

    `epsilon_lower` holds with the stated confidence. The verdict is "violated" only if a bound with
    an error probability of 1 in 10,000 exceeds the claim.
    """

    verdict: str
    epsilon_lower: float
    confidence: float
    games: int
    event: str
    place: int
    claimed: float = math.inf

    def __str__(self) -> str:
        words = self.verdict
        if words == "consistent" and self.epsilon_lower > self.claimed > 0.0:
            words = (
                "above the claim, below the threshold for violated (an error of 1 in "
                f"{1 / VIOLATION_ERROR:,.0f})"
            )
        return (
            f"{words}: epsilon is at least "
            f"{rounded_down(self.epsilon_lower, '.3f')} with confidence {self.confidence:g} "
            f"({self.games:,} games; round {self.place} differs; event: {self.event})"
        )


def audit_statistically(
    setting: attacks.GameSetting,
    epsilon: float,
    *,
    trials: int,
    confidence: float,
    screening_games: int = attacks.SCREENING_GAMES,
    times_more: int = 1,
) -> StatisticalAudit:
    """Bound epsilon from below with `trials` games, at most half of them to choose the event.

    A positive bound is measured again with `times_more` times as many games, if that is above 1.
    """
    half = max(trials // 4, 1)  # of the games on each stream
    pair = attacks.find_stream_pair(setting, split_games(half)[1], screening_games)
    result = measure(setting, pair, epsilon, half, confidence)
    if times_more > 1 and result.epsilon_lower > 0.0:
        other = setting._replace(seed=setting.seed + 1)
        result = measure(other, pair, epsilon, half * times_more, confidence)
    return result


def split_games(half: int) -> tuple[int, int]:
    """The numbers of games, of 2 half on a stream, that choose the event and measure it."""
    choice = min(half, _MOST_CHOICE_GAMES)
    return choice, 2 * half - choice


def measure(
    setting: attacks.GameSetting,
    pair: attacks.StreamPair,
    epsilon: float,
    half: int,
    confidence: float,
) -> StatisticalAudit:
    """Choose an event and measure it, with 2 half games on each stream."""
    choice, games = split_games(half)
    attack = attacks.choose_attack(setting, pair, choice, games)
    likely, unlikely = attacks.count_event(setting, attack, games, attacks.MEASURE_STAGE)

    def bound(error: float) -> float:
        return float(epsilon_lower(likely, unlikely, games, setting.delta, error))

    return StatisticalAudit(
        verdict=bounds_verdict(bound(min(1 - confidence, VIOLATION_ERROR)), epsilon),
        epsilon_lower=bound(1 - confidence),
        confidence=confidence,
        games=4 * half,
        event=str(attack.event),
        place=attack.place,
        claimed=epsilon,
    )


def bounds_verdict(certain_bound: float, epsilon: float) -> str:
    """The verdict on a claimed epsilon, given a lower bound at `VIOLATION_ERROR`."""
    return "violated" if certain_bound > epsilon else "consistent"


@dataclass(frozen=True)
class BettingAudit:
    """The wealth of a bettor against the claim, from 1: at 1/significance it is refuted."""

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


def audit_by_betting(setting: attacks.GameSetting, epsilon: float, *, pairs: int) -> BettingAudit:
    """An anytime-valid test: stops as soon as the claim is refuted, or after `pairs` pairs."""
    attack = attacks.choose_attack(
        setting, attacks.find_stream_pair(setting, pairs), _BET_CHOICE_GAMES, pairs
    )
    return bet(setting, attack, epsilon, pairs=pairs)


def bet(
    setting: attacks.GameSetting,
    attack: attacks.Attack,
    epsilon: float,
    *,
    pairs: int,
    significance: float = _BET_SIGNIFICANCE,
) -> BettingAudit:
    """Bet on an event of a known attack, block by block."""
    pairing = np.random.default_rng([setting.seed, attacks.BET_STAGE])
    counts = np.zeros((2, 2), np.int64)
    wealth, games_so_far = 0.0, 0
    while games_so_far < pairs and wealth < -math.log(significance):
        size = min(_BET_BLOCK, pairs - games_so_far)
        left, right = attacks.count_event(setting, attack, size, attacks.BET_STAGE, games_so_far)
        # The games of a block are paired at random; this draws the pairs with the event twice.
        both = int(pairing.hypergeometric(left, size - left, right))
        counts += np.array([[size - left - right + both, right - both], [left - both, both]])
        games_so_far += size
        wealth = log_wealth(counts, epsilon, setting.delta)
    return BettingAudit(
        verdict="violated" if wealth >= -math.log(significance) else "consistent",
        log_wealth=wealth,
        significance=significance,
        pairs=games_so_far,
        event=str(attack.event),
        place=attack.place,
    )


def _amount(log_wealth: float) -> str:
    return f"{math.exp(log_wealth):,.2f}" if log_wealth < 20 else f"e^{log_wealth:.0f}"
