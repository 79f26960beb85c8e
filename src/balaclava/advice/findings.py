"""What a log says: its arms, its tails, and which kind of policies it is for."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from balaclava._core.declared import Outside, RewardRange, check
from balaclava.advice.recommend import Rewards
from balaclava.environments.base import Environment
from balaclava.environments.base import environment as make_environment
from balaclava.errors import ParameterError
from balaclava.simulation.statistics import NORMAL_REACH

LEAST_ROWS = 20  # of an arm; with fewer an average is hardly one
_LIGHT = 3.0  # a tail index that is surely above it: noise for a range costs less than truncation
_FEW_VALUES = 20  # distinct rewards that make a scale of grades
_ORDERS = (1.05, 2.0)  # moments that policies for heavy tails take


@dataclass(frozen=True)
class Tail:
    """How fast large rewards become rare: P(|X| > x) falls like x^-index."""

    index: float
    low: float  # of the 95 % confidence interval
    high: float
    used: int  # of the largest rewards


def hill(rewards: np.ndarray) -> Tail | None:
    """Hill's estimate of the tail index of |X|; None where too few rewards are not 0.

    One over the mean of log(X_i / X_(k+1)) over the k largest. Its standard error is index /
    sqrt(k), which takes the tail beyond X_(k+1) to be a power law: read it as a rough figure.

    Example:
        >>> law = np.random.default_rng(1).pareto(2.5, 100_000) + 1
        >>> tail = hill(law)
        >>> tail.low < 2.5 < tail.high, tail.used
        (True, 632)
    """
    sizes = np.sort(np.abs(rewards))[::-1]
    used = min(max(int(2 * math.sqrt(sizes.size)), 10), sizes.size // 4)
    if used < 5 or sizes[used] <= 0:
        return None
    mean = float(np.log(sizes[:used] / sizes[used]).mean())
    if mean <= 0:  # the largest are all alike: no tail at all
        return None
    index = 1 / mean
    reach = NORMAL_REACH * index / math.sqrt(used)
    return Tail(index, max(index - reach, 0.0), index + reach, used)


@dataclass(frozen=True)
class Log:
    """A log, and what was seen in it. It never shows a reward."""

    path: str
    world: Environment
    given_range: tuple[float, float] | None = None
    outside: Outside = "refuse"  # what happens to rewards outside that range

    @cached_property
    def _rewards(self) -> np.ndarray:
        rewards: np.ndarray = self.world.constants().rewards
        return rewards

    @property
    def rows(self) -> int:
        """How many decisions it holds."""
        return self._rewards.size

    @property
    def counts(self) -> dict[str, int]:
        """The rows of each arm."""
        labels = getattr(self.world, "arm_labels", ())
        sizes = np.diff(self.world.constants().starts)
        return {str(label): int(n) for label, n in zip(labels, sizes, strict=True)}

    @cached_property
    def tail(self) -> Tail | None:
        """The tail index, where it can be estimated."""
        return hill(self._rewards)

    @cached_property
    def kind(self) -> Rewards:
        """Which policies it is for."""
        bounded = self.given_range is not None or self._in_unit_interval or self._graded
        light = self.tail is None or self.tail.low > _LIGHT
        return "bounded" if bounded or light else "heavy-tailed"

    @property
    def _in_unit_interval(self) -> bool:
        low, high = self.world.reward_range
        return low >= 0.0 and high <= 1.0

    @cached_property
    def _graded(self) -> bool:
        return np.unique(self._rewards).size <= _FEW_VALUES

    @property
    def reward_range(self) -> tuple[float, float]:
        """The range that was given, or one around the rewards, rounded outwards."""
        if self.given_range is not None:
            return self.given_range
        if self._in_unit_interval:
            return (0.0, 1.0)
        low, high = self.world.reward_range
        return (0.0 - _outwards(-low), _outwards(high))  # 0, not -0

    @property
    def clipped(self) -> float:
        """The share of rewards outside the range."""
        low, high = self.reward_range
        return float(((self._rewards < low) | (self._rewards > high)).mean())

    @property
    def _much_too_wide(self) -> bool:
        low, high = self.world.reward_range
        return low < high and high - low < 0.1 * (self.reward_range[1] - self.reward_range[0])

    @property
    def moment_order(self) -> float:
        """The highest order, up to 2, of a moment that is surely finite by the tail index."""
        low, high = _ORDERS
        if self.tail is None:
            return high
        return float(f"{min(max(0.95 * self.tail.low, low), high):.3g}")

    @property
    def moment_bound(self) -> float:
        """The largest moment of that order over the arms, rounded up to two digits."""
        moment = self.world.moment(self.moment_order) or 1.0
        step = 10.0 ** (math.floor(math.log10(moment)) - 1)
        return float(f"{math.ceil(moment / step) * step:.2g}")

    def findings(self) -> list[str]:
        """What was seen, in sentences."""
        counts = self.counts
        sentences = [
            f"{self.rows:,} rows, {len(counts)} arms, {min(counts.values()):,} to "
            f"{max(counts.values()):,} rows an arm."
        ]
        if detected := getattr(self.world, "detected", ()):
            sentences.append(f"Read as: {', '.join(detected)}.")
        if not self.world.gaps.any():
            sentences.append("All arms have the same average: there is nothing to be learned here.")
        if self.kind == "bounded":
            sentences.append(f"Rewards are taken as bounded: {self._why_bounded()}.")
            if self._much_too_wide:
                sentences.append(
                    "The rewards fill a small part of that range, and the noise is made for all of "
                    "it: give a narrower one with --range if you know that no reward leaves it."
                )
            return sentences
        if self.tail is not None:
            sentences.append(
                f"Rewards look heavy-tailed: tail index {self.tail.index:.2f}, 95 % confidence "
                f"interval {self.tail.low:.2f} to {self.tail.high:.2f} (Hill, the {self.tail.used} "
                f"largest); {_LIGHT:g} or less cannot be excluded. Noise for the whole range would "
                "drown what is to be learned, so that the policies below truncate."
            )
            sentences.append(
                f"Policies are told that E|reward|^{self.moment_order:g} is at most "
                f"{self.moment_bound:g}, which was computed from the log. In production give a "
                "bound from what you know instead. If there is a range that no reward can leave, "
                "give it with --range."
            )
        return sentences

    def _why_bounded(self) -> str:
        low, high = self.reward_range
        interval = f"[{low:g}, {high:g}]"
        if self.given_range is not None:
            if not self.clipped:
                return f"you gave the range {interval}"
            return (
                f"you gave the range {interval} and have rewards outside it clipped, here "
                f"{self.clipped:.2g} of them. Regret is counted in rewards as they were logged, so "
                "that it shows what clipping misses"
            )
        if self._in_unit_interval:
            return "all lie in [0, 1]"
        source = (
            f"policies are told the range {interval}, rounded outwards from the log. In production "
            "give a range from what you know instead (--range): a range from data is not private"
        )
        if self._graded:
            return f"there are at most {_FEW_VALUES} different ones; {source}"
        if self.tail is None:
            return f"the largest rewards are no tail; {source}"
        return (
            f"the tail is light, index {self.tail.index:.1f} with 95 % confidence interval "
            f"{self.tail.low:.1f} to {self.tail.high:.1f} (Hill, the {self.tail.used} largest); "
            f"{source}"
        )


def _outwards(value: float) -> float:
    """The next of 1, 2, 5 times a power of ten that is not below; 0 for what is not above 0."""
    if value <= 0:
        return 0.0
    size = 10.0 ** math.floor(math.log10(value))
    return float(next(f"{size * m:g}" for m in (1, 2, 5, 10) if size * m >= value))


def read(
    path: str | os.PathLike[str],
    *,
    arm: str,
    reward: str,
    reward_range: tuple[float, float] | None = None,
    outside: Outside = "refuse",
) -> Log:
    """Read a log; errors name rows and columns, never rewards.

    With outside = "clip" rewards may leave `reward_range`, and policies clip them to it.
    """
    outside = check("outside", outside, Outside)
    path = os.fspath(path)
    log = Log(path, make_environment("empirical", path=path, arm=arm, reward=reward))
    counts = log.counts
    if len(counts) < 2:
        raise ParameterError(
            f"{path}: column {arm!r} names one arm only; a bandit needs two or more to choose from"
        )
    rare = min(counts, key=lambda label: counts[label])
    if counts[rare] < LEAST_ROWS:
        raise ParameterError(
            f"{path}: arm {rare!r} has {counts[rare]} rows; give at least {LEAST_ROWS} for each "
            "arm, or leave it out"
        )
    if reward_range is None:
        if outside == "clip":
            raise ParameterError('outside = "clip" needs a range; give it with --range')
        return log
    low, high = check("range", reward_range, RewardRange)
    least, most = log.world.reward_range
    if not low < high:
        raise ParameterError(f"range = ({low:g}, {high:g}) is empty; give smallest, then largest")
    if outside == "refuse" and (least < low or most > high):
        raise ParameterError(
            f"range = ({low:g}, {high:g}) does not hold all rewards of {path}; widen it, or "
            "have the others clipped to it (--outside clip)"
        )
    return Log(path, log.world, (low, high), outside)
