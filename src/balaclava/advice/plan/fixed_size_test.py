"""Power and size of a test with even shares: the private one of dp-even, or a classic one."""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from balaclava.policies.bounded.dp_even import MOST_EXACT_ARMS
from balaclava.theory.fixed_sample import (
    beats_rival,
    exact_difference_interval,
    exact_mean_interval,
    lead_score,
)

_TESTS = 4_000  # simulated tests of a size, drawn as whole sums: power is known to within 1 %
# The exact test searches an interval for the worst mean of the rival. At the common mean alone the
# same score takes 0.94 to 0.98 of its level, at 20 to 60,000 rewards an arm: 1 % of the size.
_COMMON_MEAN_SHARE = 0.97
_PRECISION = 1.005  # ratio of the sizes between which the search ends, below the error of power


@dataclass(frozen=True)
class FixedSizeTest:
    """A test of arms with rewards 0 and 1. The last mean is the highest.

    With a finite epsilon it is that of dp-even: sums with Laplace noise, and the exact test of
    `theory.fixed_sample`. Without privacy it compares each pair by the same score, and its
    quantile of the normal law is corrected for the pairs.

    A test names its leader from some score over the closest rival on, which varies little. So the
    simulated tests are sorted by score, and only those are run at which the answer changes.
    """

    means: np.ndarray
    epsilon: float  # inf without privacy
    confidence: float
    seed: int

    def size(self, power: float, most: float) -> int | None:
        """Rewards of an arm with which a share `power` of tests name the best arm, up to `most`."""
        few, enough = 1.0, 2.0
        while not self._reaches(power, math.ceil(enough)):
            few, enough = enough, 2.0 * enough
            if enough > most:
                return None
        while enough > _PRECISION * few and enough > few + 1.0:
            middle = math.sqrt(few * enough)
            reached = self._reaches(power, math.ceil(middle))
            few, enough = (few, middle) if reached else (middle, enough)
        return math.ceil(enough)

    def shares(self, size: int) -> tuple[float, float]:
        """Shares of tests that name the best arm, and a wrong one, with `size` rewards of each."""
        rates, leaders, scores = self._draw(size)
        order = np.argsort(scores)
        few, enough = -1, _TESTS  # ranks of a test that names its leader, and one that does not
        while enough - few > 1:
            middle = (few + enough) // 2
            if self._names(size, rates[order[middle]], float(scores[order[middle]])):
                enough = middle
            else:
                few = middle
        right = leaders[order[enough:]] == self.means.size - 1
        return float(right.sum()) / _TESTS, float((~right).sum()) / _TESTS

    def width(self, size: int) -> float:
        """Width of the interval of the best arm's lead over its rival, with `size` rewards of each.

        The intervals of all pairs hold together. It is that of released means equal to the true
        ones: of random ones it is the same on average to within a per cent, since it varies little.
        """
        worse, best = map(float, np.sort(self.means)[-2:])
        arms, failure = self.means.size, 1.0 - self.confidence
        level = failure / (arms * (arms - 1) / 2)
        if math.isinf(self.epsilon):
            quantile = NormalDist().inv_cdf(1.0 - 0.5 * level)
            variance = (worse * (1.0 - worse) + best * (1.0 - best)) / size
            return 2.0 * quantile * math.sqrt(variance)
        if arms > MOST_EXACT_ARMS:
            limits = [
                exact_mean_interval(mean, size, 1, self.epsilon, failure / arms)
                for mean in (worse, best)
            ]
            return sum(high - low for low, high in limits)
        low, high = exact_difference_interval(
            (size, best, 1), (size, worse, 1), self.epsilon, level
        )
        return high - low

    def _reaches(self, power: float, size: int) -> bool:
        """Whether the test names the best arm in the trial at the quantile 1 - power."""
        rates, leaders, scores = self._draw(size)
        right = np.where(leaders == self.means.size - 1, scores, -math.inf)
        place = np.argsort(right)[math.floor((1.0 - power) * _TESTS)]
        return self._names(size, rates[place], float(right[place]))

    def _draw(self, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Released means [test, arm], the leader of each test, and its least score."""
        rng = np.random.default_rng(self.seed)
        sums = rng.binomial(size, self.means, (_TESTS, self.means.size)).astype(float)
        if math.isfinite(self.epsilon):
            sums += rng.laplace(0.0, 1.0 / self.epsilon, sums.shape)
        rates = sums / size
        leaders = rates.argmax(axis=1)
        rest = np.sort(rates, axis=1)
        second, first = rest[:, -2], rest[:, -1]
        with np.errstate(invalid="ignore"):  # all rewards are 0, or all are 1
            scores = lead_score((size, second, 1.0), (size, first, 1.0), self.epsilon)
        return rates, leaders, np.nan_to_num(scores, nan=-math.inf)

    def _names(self, size: int, rates: np.ndarray, score: float) -> bool:
        """Whether the leader beats its closest rival, at a score above 0."""
        failure, rivals = 1.0 - self.confidence, self.means.size - 1
        if not score > 0.0:
            return False
        if math.isinf(self.epsilon):
            return score >= NormalDist().inv_cdf(1.0 - failure / rivals)
        released = np.array([[size, rate, 1.0] for rate in rates])
        closest, leader = np.argsort(rates)[-2:]
        level = _COMMON_MEAN_SHARE * failure
        return beats_rival(released, int(leader), int(closest), self.epsilon, level, False)
