"""Power and size of a test with even shares: the private one of dp-even, or a classic one."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from balaclava.policies.bounded.dp_even import MOST_EXACT_ARMS
from balaclava.theory.fixed_sample import (
    beats_rival,
    exact_difference_interval,
    exact_mean_interval,
    lead_score,
    look_share,
)

_TESTS = 4_000  # simulated tests of a size, drawn as whole sums: power is known to within 1 %
# The exact test searches an interval for the worst mean of the rival. At the common mean alone the
# same score takes 0.94 to 0.98 of its level, at 20 to 60,000 rewards an arm: 1 % of the size.
_COMMON_MEAN_SHARE = 0.97
_PRECISION = 1.005  # ratio of the sizes between which the search ends, below the error of power


class LookDraws(NamedTuple):
    """One look at each simulated trial."""

    look: int  # from 1
    size: int  # rewards of an arm so far
    rates: np.ndarray  # released means [test, arm]
    leaders: np.ndarray
    scores: np.ndarray  # the least of each leader


class NamedShares(NamedTuple):
    """Shares of tests that name the best arm, and a wrong one."""

    right: float
    wrong: float
    lengths: np.ndarray  # of each test, until it names an arm: a share of its size


@dataclass(frozen=True)
class FixedSizeTest:
    """A test of arms with rewards 0 and 1. The last mean is the highest.

    With a finite epsilon it is that of dp-even: sums with Laplace noise, and the exact test of
    `theory.fixed_sample`. Without privacy it compares each pair by the same score, and its
    quantile of the normal law is corrected for the pairs.

    A test names its leader from some score over the closest rival on, which varies little. So the
    simulated tests are sorted by score, and only those are run at which the answer changes.

    With several looks it ends at the first that names an arm, at the look's share of the error.
    """

    means: np.ndarray
    epsilon: float  # inf without privacy
    confidence: float
    seed: int
    looks: int = 1

    def size(self, power: float, most: float) -> int | None:
        """Rewards of an arm with which a share `power` of tests name the best arm, up to `most`."""
        few, enough = float(self.looks), 2.0 * self.looks
        while not self._reaches(power, math.ceil(enough)):
            few, enough = enough, 2.0 * enough
            if enough > most:
                return None
        while enough > _PRECISION * few and enough > few + 1.0:
            middle = math.sqrt(few * enough)
            reached = self._reaches(power, math.ceil(middle))
            few, enough = (few, middle) if reached else (middle, enough)
        return math.ceil(enough)

    def shares(self, size: int) -> NamedShares:
        """Shares of tests that name the best arm, and a wrong one, with `size` rewards of each."""
        named, lengths = np.full(_TESTS, -1), np.ones(_TESTS)
        for draws in self._draw(size):
            order = np.argsort(draws.scores)
            few, enough = -1, _TESTS  # ranks of a test that names its leader, and one that does not
            while enough - few > 1:
                middle = (few + enough) // 2
                if self._names(draws, order[middle]):
                    enough = middle
                else:
                    few = middle
            names = order[enough:]
            first = names[named[names] < 0]
            named[first], lengths[first] = draws.leaders[first], draws.size / size
        best = self.means.size - 1
        wrong = (named >= 0) & (named != best)
        return NamedShares(float((named == best).mean()), float(wrong.mean()), lengths)

    def width(self, size: int) -> float:
        """Width of the interval of the best arm's lead over its rival, with `size` rewards of each.

        The intervals of all pairs hold together. It is that of released means equal to the true
        ones: of random ones it is the same on average to within a per cent, since it varies little.
        With several looks it is that of the last.
        """
        worse, best = map(float, np.sort(self.means)[-2:])
        arms, failure = self.means.size, self._level(self.looks)
        level = failure / (arms * (arms - 1) / 2)
        if math.isinf(self.epsilon):
            quantile = NormalDist().inv_cdf(1.0 - 0.5 * level)
            variance = (worse * (1.0 - worse) + best * (1.0 - best)) / size
            return 2.0 * quantile * math.sqrt(variance)
        if arms > MOST_EXACT_ARMS:
            limits = [
                exact_mean_interval(mean, size, self.looks, self.epsilon, failure / arms)
                for mean in (worse, best)
            ]
            return sum(high - low for low, high in limits)
        low, high = exact_difference_interval(
            (size, best, self.looks), (size, worse, self.looks), self.epsilon, level
        )
        return high - low

    def _level(self, look: int) -> float:
        """The error that a look may spend."""
        return (1.0 - self.confidence) * look_share(look, self.looks)

    def _reaches(self, power: float, size: int) -> bool:
        """Whether the test names the best arm in the trial at the quantile 1 - power."""
        if self.looks > 1:
            return self.shares(size).right >= power
        (draws,) = self._draw(size)
        right = np.where(draws.leaders == self.means.size - 1, draws.scores, -math.inf)
        place = np.argsort(right)[math.floor((1.0 - power) * _TESTS)]
        return bool(right[place] > -math.inf) and self._names(draws, place)

    def _draw(self, size: int) -> Iterator[LookDraws]:
        """Each look that every arm has rewards for."""
        rng, before = np.random.default_rng(self.seed), 0
        sums = np.zeros((_TESTS, self.means.size))
        for look in range(1, self.looks + 1):
            now = size * look // self.looks
            sums += rng.binomial(now - before, self.means, sums.shape)
            if math.isfinite(self.epsilon):
                sums += rng.laplace(0.0, 1.0 / self.epsilon, sums.shape)
            before = now
            if not now:
                continue
            rates = sums / now
            rest = np.sort(rates, axis=1)
            second, first = ((now, rest[:, place], look) for place in (-2, -1))
            with np.errstate(invalid="ignore"):  # all rewards are 0, or all are 1
                scores = np.nan_to_num(lead_score(second, first, self.epsilon), nan=-math.inf)
            yield LookDraws(look, now, rates, rates.argmax(axis=1), scores)

    def _names(self, draws: LookDraws, test: int) -> bool:
        """Whether a test's leader beats its closest rival, at a score above 0."""
        rates, score = draws.rates[test], float(draws.scores[test])
        failure, rivals = self._level(draws.look), self.means.size - 1
        if not score > 0.0:
            return False
        if math.isinf(self.epsilon):
            return score >= NormalDist().inv_cdf(1.0 - failure / rivals)
        released = np.array([[draws.size, rate, draws.look] for rate in rates])
        closest, leader = np.argsort(rates)[-2:]
        level = _COMMON_MEAN_SHARE * failure
        return beats_rival(released, int(leader), int(closest), self.epsilon, level, False)
