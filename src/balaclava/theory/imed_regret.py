"""Regret of IMED in batches with a clock: its mean and its tail.

An arm has one of the sizes n_1 < n_2 < ... of pulls after each batch. Each arm gets its first batch
before any arm gets a second. With n pulls its released mean x holds m Laplace draws of scale
1/epsilon: one for each batch, or two if two servers add noise. Q(x, y), for (n, m), is a rate of x
or less at the mean y: `noisy_kl` or `noisy_tail`. In round t the next batch is of the arm with the
least

    max(Q(x, y) - log max(H/t, 1), 0) + log n,

where y is the largest released mean, clipped to [0, 1], and H is the clock. It multiplies the arm's
pulls by at most g. Its length may depend on releases, of all arms. Rewards of an arm are
independent, have one mean, lie in [0, 1], and arrive at once. There are K arms; q is the largest
mean. The states (n, m) are all pairs that an arm may have when it begins a batch, with n < T.

Let 0 < e < q. Arms of mean above q - e are *good*. Let any other arm, of mean p, have a d >= 0 with
p + d <= q - e, and the cap c: the largest size that a batch may reach from a state with

    Q(p + d, q - e) + log n <= log max(T, H),

and n_1 if there is none. c is at most T.

Theorem (tail). For z > 0 let u(z) = 1 + sum of max(c, z) over the arms that are not good + z times
the number of good arms. The regret of T rounds is larger than the largest regret of T rounds in
which no arm that is not good has more than max(c, z) pulls, with at most the probability

    sum over arms that are not good, and their states from which a batch may exceed max(c, z),
            of P(released mean > p + d)
    + sum over good arms and states of P(x <= q - e, Q(x, q - e) >= r(z)),

    r(z) = log(z max(1, H / min(u(z), T)) / (g n)).

Theorem (mean). An arm that is not good is pulled on average at most

    c + sum over states of P(released mean > p + d) times the pulls of a batch beyond c
      + integral from z = c to T of sum over states of P(x <= q - e, Q(x, q - e) >= r'(z))

times; in the last sum x is of one best arm, and r'(z) = log(z max(1, H/T) / (g n)). So expected
regret is at most the sum over arms, and at most the integral of the tail. The first is computed; in
the examples tried the second was at most 5 per cent less.

Both hold if an arm that is not good counts as one of a smaller gap, and a good arm as one of a
larger gap, below e: the probabilities above rise. So many gaps are put into groups.

Probabilities are of one arm's own sequence of rewards and draws at a fixed (n, m), and bounded by
exp(-noisy_tail). As Q(x, q) - Q(x, q - e) >= G = noisy_kl at (q - e, q), the last ones are at most
exp(-G - r): the chance that an arm is overplayed by z falls as 1/max(z, H/K).

For sizes ceil(b c^m), "exact" and one size after the other, the first term of the mean is at most
(c + o(1)) log T / d_epsilon(p + d, q - e): R >= n d_epsilon - m log n - O(1), and m = O(log n).
The second is bounded, and the third is of the order of log log T. With small d and e: pulls over
log T are in the limit at most c / d_epsilon(p, q). Private policies that are good on all Bernoulli
arms cannot have less than 1 / d_epsilon(p, q) if q < 1 (`theory.bounds.private_kl_instance`). With
`noisy_tail` the third term is of the order of log T, and bounded if H = T/K.

Proof. Q decreases in x and increases in y, and P(x at most v) <= exp(-Q(v, q)) for an arm of mean q
(`estimators.noisy_kl`). A run reads a prefix of each arm's sequence of rewards and of its sequence
of draws, of lengths n and m; the sums over states are unions over them. A batch of an arm that is
not good begins in round t in one of three ways.

1. y >= q - e and x <= p + d. As q - e > 0, the leader's released mean is at least y, and its index
   is the log of its pulls, below log t. The arm's index is no larger: Q(x, y) + log n <= log t +
   log max(H/t, 1) <= log max(T, H). So Q(p + d, q - e) + log n is, too, and the batch ends at c at
   the latest.
2. y >= q - e and x > p + d. The theorem has its probability. Batches that end at c, or at
   max(c, z), need not be counted.
3. y < q - e. Take the good arm with the most pulls, (n, m) at x. Its index is at most
   max(Q(x, q - e) - log max(H/t, 1), 0) + log n, as x <= y, and the arm's is no larger. So the arm
   has at most g B pulls after the batch, B = n max(1, exp(Q(x, q - e)) / max(H/t, 1)).

Let S be the largest g B of a run, in round t. If no batch of the second way exceeds max(c, z), an
arm that is not good never has more than max(c, z, S) pulls; if S <= z, that is the tail. Let S > z.
Before round t each good arm has at most n <= S pulls, so t <= u(S). If g n < z, then S > g n and
Q(x, q - e) = log(S max(1, H/t) / (g n)) >= r(z), since S / u(S) increases in S and t <= T.
If g n >= z, then r(z) counts as 0: x < q - e is all that is used.

For the mean, take in the third way one best arm, the same throughout, and t <= T. An arm's batches
beyond c begin in the second way, or in the third and end at S or before.
"""

import functools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from balaclava.estimators.noisy_kl import tail_nats

# Tilts s at which bounds are evaluated, from 1e-3 to 1 - 1e-8. Every choice is valid.
_TILTS = 1.0 / (1.0 + np.exp(-np.linspace(-7.0, 18.0, 61)))
# Levels e, from a part of the smallest gap to one of the largest, and d as a part of gap - e.
_LEVELS, _LEAST_PART, _MOST_PART = 8, 0.2, 0.6
_GAP_SHARES = (0.2, 0.35, 0.5, 0.65)
# Different gaps, or groups of them: time grows with their number; fewer give a larger bound.
_MOST_GAPS = 10
_REACH = 14  # tilts tried beyond the best one at q - e; the best one at q is larger
_TILT_HALVINGS = 25  # halvings in the search for a tilt
_SEARCH_SLACK = 1e-9  # nats: more than rounding moves a level in the search
_GRID_RATIO = 1.1  # of the pulls z at which the tail is evaluated


def batch_states(sizes: Sequence[int], growth: float) -> np.ndarray:
    """All an arm's releases may hold when a batch begins: rows of pulls, draws, most pulls after.

    The batch ends at the next of `sizes`, or at any size of at most `growth` times the arm's pulls.

    >>> batch_states([10, 15, 20, 40], growth=2.0).tolist()
    [[10.0, 1.0, 20.0], [15.0, 2.0, 20.0], [20.0, 2.0, 40.0], [20.0, 3.0, 40.0]]
    """
    states, fewest = [], [1] + [len(sizes)] * (len(sizes) - 1)
    for i, n in enumerate(sizes[:-1]):
        last = i + 1
        while last + 1 < len(sizes) and sizes[last + 1] <= growth * n:
            last += 1
        for j in range(i + 1, last + 1):
            fewest[j] = min(fewest[j], fewest[i] + 1)
        states += [(n, m, sizes[last]) for m in range(fewest[i], i + 2)]
    return np.array(states, float).reshape(-1, 3)


class GapGroups(NamedTuple):
    """Arms by their gaps. An arm is counted as one of the least gap, and loses its own."""

    least: np.ndarray
    largest: np.ndarray
    counts: np.ndarray
    totals: np.ndarray  # sums of the gaps


def group_gaps(gaps: Sequence[float]) -> GapGroups:
    """Put arms into groups: of one gap each, or of gaps with nearly one ratio.

    >>> [part.tolist() for part in group_gaps([0.0, 0.2, 0.2])]
    [[0.0, 0.2], [0.0, 0.2], [1, 2], [0.0, 0.4]]
    """
    values, counts = np.unique(np.asarray(gaps, float), return_counts=True)
    group = np.arange(values.size)
    if values.size > _MOST_GAPS:
        positive = values[values > 0.0]
        edges = np.geomspace(positive[0], positive[-1], _MOST_GAPS)
        group = np.where(values > 0.0, np.searchsorted(edges, values, side="right"), 0)
    first = np.flatnonzero(np.diff(group, prepend=-1))
    return GapGroups(
        values[first],
        np.maximum.reduceat(values, first),
        np.add.reduceat(counts, first),
        np.add.reduceat(counts * values, first),
    )


class Waits(NamedTuple):
    """How long an underestimated arm may wait, by [state, tilt]."""

    levels: np.ndarray  # of its rate at q - e, increasing; the first is 0
    surprisals: np.ndarray  # of that rate, in nats
    slack: np.ndarray  # each nat above the level adds a nat of surprisal, less so many in all


class ImedBound:
    """The theorem for given arms with rewards in [0, 1].

    Args:
        gaps: Of all arms.
        best: The largest mean, q.
        sizes: Pulls after batches; the last is at least `horizon`.
        growth: See `batch_states`.
        horizon: T.
        epsilon: Of each release.
        clock: H.
        sharp: Whether Q is `noisy_tail`; otherwise it is `noisy_kl`.
        noises: Laplace draws in each release.
    """

    def __init__(
        self,
        gaps: Sequence[float],
        best: float,
        sizes: Sequence[int],
        growth: float,
        horizon: int,
        epsilon: float,
        clock: float,
        sharp: bool,
        noises: int = 1,
    ) -> None:
        self.gaps, self.largest, self.counts, self.totals = group_gaps(gaps)
        self.best, self.T, self.epsilon = best, float(horizon), epsilon
        self.clock, self.sharp, self.first = clock, sharp, float(sizes[0])
        states = batch_states(sizes, growth)
        self.n, self.m, self.after = states[:, :1], noises * states[:, 1:2], states[:, 2]
        self.growth = float(np.max(self.after / self.n[:, 0], initial=1.0))
        by_draws = {m: [tail_nats(s, m) for s in _TILTS] for m in np.unique(self.m)}
        self.nats = np.array([by_draws[m] for m in self.m[:, 0]]).reshape(-1, _TILTS.size)
        self.falls = self.epsilon * self.n * _TILTS
        steps = math.log(max(horizon / self.first, 1.0)) / math.log(_GRID_RATIO)
        self.z = np.geomspace(min(self.first, horizon), horizon, 2 + math.ceil(steps))

    def levels(self) -> np.ndarray:
        """Values of e, none inside a group of gaps; no values if all arms are equal."""
        gaps = self.gaps[self.gaps > 0.0]
        if not gaps.size:
            return gaps
        levels = np.geomspace(_LEAST_PART * gaps[0], _MOST_PART * gaps[-1], _LEVELS)
        for least, largest in zip(self.gaps, self.largest, strict=True):
            levels[(least < levels) & (levels <= largest)] = least
        return np.unique(levels)

    def exponent(self, s: np.ndarray, x: np.ndarray | float, y: float) -> np.ndarray:
        """Of Markov's inequality at s, for each state."""
        rewards = np.log1p(y * np.expm1(-self.epsilon * s))
        return self.m * np.log1p(-s * s) - self.n * (self.epsilon * s * x + rewards)

    @functools.lru_cache(maxsize=64)  # noqa: B019 (few objects are kept)
    def _surprisals(self, y: float) -> np.ndarray:
        """The exponents at the tilts for x = 0 with their nats; they fall by `falls` times x."""
        return self.exponent(_TILTS, 0.0, y) + self.nats

    def surprisal(self, x: float, y: float) -> np.ndarray:
        """-log of a bound on the probability of a released mean of at most x at the mean y."""
        most = (self._surprisals(y) - self.falls * x).max(axis=1, keepdims=True)
        return np.maximum(most, 0.0)

    def rate(self, x: float, y: float) -> np.ndarray:
        """Q(x, y) of each state, or little less: at the tilt at which the exponent's slope is 0."""
        low, high = np.zeros(self.n.shape), np.ones(self.n.shape)
        pulls = self.epsilon * self.n
        for _ in range(_TILT_HALVINGS):
            s = 0.5 * (low + high)
            tilted = y * np.exp(-self.epsilon * s)
            rising = pulls * (tilted / (1.0 - y + tilted) - x) * (1.0 - s * s) > 2.0 * self.m * s
            low, high = np.where(rising, s, low), np.where(rising, high, s)
        rate = self.exponent(low, x, y)[:, 0]
        if self.sharp:
            i = np.searchsorted(_TILTS, low[:, 0], side="right")
            rate += np.hstack([0.0 * self.n, self.nats])[np.arange(i.size), i]
        return rate

    def waits(self, e: float, mean: float) -> Waits:
        """Of an arm with this mean whose released mean is below q - e."""
        y = self.best - e
        tilted = y * np.exp(-self.epsilon * _TILTS)
        noise = 2.0 * self.m * _TILTS / (self.epsilon * self.n * (1.0 - _TILTS * _TILTS))
        x = tilted / (1.0 - y + tilted) - noise
        levels = self.exponent(_TILTS, x, y) + (self.nats if self.sharp else 0.0)
        # From x on down to the next, tilts from the next one on gain as much as the rate at q - e.
        first, rest, most = self.surprisal(y, mean), np.zeros(x.shape), self._surprisals(mean)
        for reach in range(1, _REACH):
            i = np.minimum(np.arange(_TILTS.size) + reach, _TILTS.size - 1)
            np.maximum(rest, most[:, i] - self.falls[:, i] * x, out=rest)
        none = 0.0 * first
        slack = np.diff(self.nats if self.sharp else 0.0 * x, axis=1, prepend=none)
        return Waits(
            np.maximum.accumulate(np.hstack([none, levels]), axis=1),
            np.hstack([first, np.maximum(rest, first)]),
            np.hstack([slack, none + math.inf]),
        )

    def overplay(self, waits: Waits, rounds: np.ndarray) -> np.ndarray:
        """A bound on P(S > z) for each z; `rounds` bounds the round in which S is reached."""
        most = np.log(self.z * np.maximum(1.0, self.clock / rounds) / self.growth)
        r = most - np.log(self.n)  # [state, z]
        # One search for all states: the levels of each are above those of the one before.
        high, row = max(float(r.max(initial=0.0)), 0.0) + 1.0, np.arange(r.shape[0])[:, None]
        levels, wanted = np.minimum(waits.levels, high), np.maximum(r - _SEARCH_SLACK, 0.0)
        places = np.searchsorted(
            (levels + 2.0 * high * row).ravel(), wanted + 2.0 * high * row, "right"
        )
        last = places - 1
        level, slack = waits.levels.ravel()[last], waits.slack.ravel()[last]
        further = np.maximum(r - level - slack, 0.0)
        chance: np.ndarray = np.exp(-waits.surprisals.ravel()[last] - further).sum(axis=0)
        return chance

    @functools.lru_cache(maxsize=4096)  # noqa: B019 (few objects are kept)
    def regular(self, gap: float, d: float, e: float) -> tuple[float, np.ndarray]:
        """The cap c of an arm, and for each state the chance that its mean is above p + d."""
        p = self.best - gap
        most = math.log(max(self.T, self.clock))
        usual = self.rate(p + d, self.best - e) + np.log(self.n[:, 0]) <= most
        cap = min(float(np.max(self.after[usual], initial=self.first)), self.T)
        return cap, np.exp(-self.surprisal(1.0 - p - d, 1.0 - p))[:, 0]

    def mean(self) -> float:
        """The bound on the expected regret, by that on each arm's pulls."""
        rounds, least = np.full(self.z.shape, self.T), np.full(self.gaps.shape, self.T)
        for e in map(float, self.levels()):
            chance = np.minimum(self.overplay(self.waits(e, self.best), rounds), 1.0)
            for i, gap in enumerate(self.gaps):
                for part in _GAP_SHARES if gap > e else ():
                    cap, misled = self.regular(gap, part * (gap - e), e)
                    start = np.maximum(self.n[:, 0], cap)
                    beyond = np.maximum(np.minimum(self.after, self.T) - start, 0.0)
                    longer = float(np.diff(np.maximum(self.z, cap)) @ chance[:-1])
                    least[i] = min(least[i], cap + float(misled @ beyond) + longer)
        return float(self.totals @ least)

    def tail(self, x: float) -> float:
        """The bound on the probability of a regret above x."""
        least = 1.0 if self.gaps[-1] > 0.0 else 0.0
        for lost, chance in self.tails:
            last = int(np.searchsorted(lost, x, side="right")) - 1
            least = min(least, float(chance[last]) if last >= 0 else 1.0)
        return least

    @functools.cached_property
    def tails(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each choice of e and d and each z: a regret, and the chance that it is exceeded."""
        return [pair for e in self.levels() for pair in self._tails(float(e))]

    def _tails(self, e: float) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        good = self.gaps < 0.999 * e
        waits = [self.waits(e, self.best - gap) for gap in self.largest[good]]
        for part in _GAP_SHARES:
            caps, chance = np.full(self.gaps.shape, self.T), np.zeros(self.z.shape)
            for i in np.flatnonzero(~good):
                caps[i], misled = self.regular(self.gaps[i], part * max(self.gaps[i] - e, 0.0), e)
                beyond = self.after > np.maximum(caps[i], self.z[:, None])
                chance += self.counts[i] * (beyond @ misled)
            pulls = np.where(good, self.T, np.maximum(caps, self.z[:, None]))
            counted = np.where(good, self.z[:, None], pulls)
            rounds = np.minimum(1.0 + counted @ self.counts, self.T)
            for each, count in zip(waits, self.counts[good], strict=True):
                chance += count * self.overplay(each, rounds)
            yield self.most_regret(pulls), chance

    def most_regret(self, pulls: np.ndarray) -> np.ndarray:
        """The largest regret of T rounds in which no arm has more than `pulls`, for each z."""
        left, regret = np.full(self.z.shape, self.T), np.zeros(self.z.shape)
        for gap, count, most in zip(
            self.largest[::-1], self.counts[::-1], pulls.T[::-1], strict=True
        ):
            played = np.minimum(count * most, left)
            left, regret = left - played, regret + gap * played
        return regret


imed_bound = functools.lru_cache(maxsize=8)(ImedBound)
