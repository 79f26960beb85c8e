"""What a log says: its arms, its tails, and which kind of policies it is for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from balaclava._core.declared import Outside
from balaclava.advice.choose.rules import Rewards
from balaclava.advice.log.arm_estimates import (
    ArmEstimate,
    BestArmTest,
    WeightedArmEstimate,
    compare_best_arm,
    estimate_arm,
    is_binary,
)
from balaclava.advice.log.arm_estimates import estimate_weighted_arms as weigh
from balaclava.advice.log.clipping import clipping_findings
from balaclava.advice.log.drift import UNFIT, drift_findings
from balaclava.advice.log.feature_columns import FeatureColumns
from balaclava.advice.log.participants import Participants, count_participants
from balaclava.advice.log.tail_index import TailIndex, hill_estimate
from balaclava.environments.base import Environment
from balaclava.logs.reader import LoggedRewards
from balaclava.privacy.guarantee import Guarantee

_LIGHT = 3.0  # a tail index that is surely above it: noise for a range costs less than truncation
_FEW_VALUES = 20  # distinct rewards that make a scale of grades
_ORDERS = (1.05, 2.0)  # moments that policies for heavy tails take
_UNEVEN = 3.0  # times as many rows on one arm as on another
_WRONG = 4.0  # standard errors


@dataclass(frozen=True)
class LogSummary:
    """A log, and what was seen in it. It never shows a reward."""

    path: str
    world: Environment
    rows_read: LoggedRewards
    given_range: tuple[float, float] | None = None
    outside: Outside = "refuse"  # what happens to rewards outside that range
    clip: tuple[float, float] | None = None  # a range to which they may be clipped instead
    clip_source: str = ""  # where its limits come from, in a sentence
    left_out: tuple[str, ...] = ()  # what was dropped, in sentences
    propensities: np.ndarray | None = None  # of the arm that was played, for each row
    times: np.ndarray | None = None
    people: np.ndarray | None = None  # the number of each row's person
    features: FeatureColumns | None = None  # what was known before each decision

    @cached_property
    def _rewards(self) -> np.ndarray:
        rewards: np.ndarray = self.world.constants().rewards
        return rewards

    @property
    def rows(self) -> int:
        """How many decisions it holds."""
        return self._rewards.size

    @property
    def labels(self) -> list[str]:
        """The arms."""
        return [str(label) for label in self.world.arm_labels or ()]

    @property
    def samples(self) -> list[np.ndarray]:
        """The rewards of each arm."""
        return list(self.rows_read.by_arm.values())

    @property
    def counts(self) -> dict[str, int]:
        """The rows of each arm."""
        return {
            label: rewards.size for label, rewards in zip(self.labels, self.samples, strict=True)
        }

    @cached_property
    def chances(self) -> list[np.ndarray | None]:
        """Of each row of each arm, how much it weighs; None where all weigh the same."""
        if self.propensities is None:
            return [None] * len(self.labels)
        weights = 1 / self.propensities
        return [weights[self.rows_read.arms == i] for i in range(len(self.labels))]

    @cached_property
    def arms(self) -> list[ArmEstimate]:
        """Rows, mean and interval of each arm."""
        whose = self.people
        return [
            estimate_arm(
                label,
                self.samples[i],
                self.chances[i],
                None if whose is None else whose[self.rows_read.arms == i],
            )
            for i, label in enumerate(self.labels)
        ]

    @cached_property
    def telling(self) -> BestArmTest:
        """Whether the best arm can be told from the others."""
        return compare_best_arm(self.arms, binary=is_binary(self._rewards))

    @cached_property
    def weighted(self) -> list[WeightedArmEstimate]:
        """Each arm by inverse propensity weights, where there are propensities."""
        if self.propensities is None:
            return []
        rows = self.rows_read
        return weigh(self.labels, rows.arms, rows.rewards, self.propensities, self.people)

    def per_person(self, guarantee: Guarantee) -> Participants | None:
        """Rewards per person, and what they make of a guarantee for one."""
        if self.people is None:
            return None
        rows = self.rows_read
        return count_participants(self.labels, rows.arms, rows.rewards, self.people, guarantee)

    @cached_property
    def tail(self) -> TailIndex | None:
        """The tail index, where it can be estimated."""
        return hill_estimate(self._rewards)

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
        beginning = self._rewards[: 100 * _FEW_VALUES]  # which is mostly enough to tell
        return all(np.unique(part).size <= _FEW_VALUES for part in (beginning, self._rewards))

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
        return self.outside_of(self.reward_range)

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
        usual = "UTF-8, commas between cells, decimal points"
        written = ", ".join(self.rows_read.detected) or usual
        kind = self.rows_read.kind
        return [
            f"{self.rows:,} rows, {len(counts)} arms, {min(counts.values()):,} to "
            f"{max(counts.values()):,} rows an arm.",
            f"Read as {kind}{'' if kind == 'Parquet' else f': {written}'}.",
            *self.left_out,
            *self._bias(),
            *self._over_time,
            *self._rewards_in_words(),
        ]

    def _bias(self) -> list[str]:
        """Who chose the arms, and what that does to averages."""
        counts = self.counts
        rare, often = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
        if self.propensities is None:
            if counts[often] <= _UNEVEN * counts[rare]:
                return []
            return [
                f"Rows are uneven: {counts[often]:,} of {often!r}, {counts[rare]:,} of {rare!r}. "
                "If whatever chose the arms looked at rewards, averages of arms that it gave up "
                "are too low; if it looked at people, arms were tried on different people. Then "
                "differences here are not what the arms would do. Where the chance of each choice "
                "was logged, give its column with --propensity."
            ]
        wrong = [
            row.label
            for row in self.weighted
            if abs(row.total_weight - 1) > _WRONG * max(row.weight_error, 1e-9)
        ]
        if not wrong:
            return []
        return [
            f"The propensities do not fit the rows of {', '.join(map(repr, wrong))}: 1 / "
            "propensity "
            "should add up to the number of rows. Is it the probability of the arm that was played?"
        ]

    @property
    def drifts(self) -> bool:
        """Whether averages change over time, where that can be seen."""
        return UNFIT in self._over_time

    @cached_property
    def _over_time(self) -> list[str]:
        if self.times is None:
            return []
        return drift_findings(self.labels, self.rows_read.arms, self.rows_read.rewards, self.times)

    def _rewards_in_words(self) -> list[str]:
        """Bounded or heavy-tailed, and what policies are told."""
        if float(np.ptp(self._rewards)) == 0.0:
            return ["All rewards are the same: there is nothing to learn from this log."]
        if self.kind == "bounded":
            sentences = [f"Rewards are taken as bounded: {self._why_bounded()}."]
            if self._much_too_wide:
                sentences.append(
                    "The rewards fill a small part of that range, and the noise is made for all of "
                    "it: give a narrower one with --range if you know that no reward leaves it."
                )
            return sentences + self._clipping()
        sentences = []
        if self.tail is not None:
            sentences = [
                f"Rewards look heavy-tailed: tail index {self.tail.index:.2f}, 95 % confidence "
                f"interval {self.tail.low:.2f} to {self.tail.high:.2f} (Hill, the {self.tail.used} "
                f"largest); {_LIGHT:g} or less cannot be excluded. Noise for the whole range would "
                "drown what is to be learned, so that the policies below truncate. Intervals of "
                "averages, and worlds resampled from the rows, are rough for such rewards.",
                f"Policies are told that E|reward|^{self.moment_order:g} is at most "
                f"{self.moment_bound:g}, which was computed from the log. In production give a "
                "bound from what you know instead. If there is a range that no reward can leave, "
                "give it with --range; to have rewards clipped to one, --clip.",
            ]
        return sentences + self._clipping()

    def _clipping(self) -> list[str]:
        """What clipping does to averages, where it is asked for."""
        limits = self.given_range if self.outside == "clip" else self.clip
        if limits is None:
            return []
        source = self.clip_source or (
            "Take the limits from public data (--clip-from) or from what you know: limits tuned on "
            "this log are outside epsilon."
        )
        return [*clipping_findings(self.labels, self.samples, limits), source]

    def outside_of(self, limits: tuple[float, float]) -> float:
        """The share of rewards outside a range."""
        low, high = limits
        return float(((self._rewards < low) | (self._rewards > high)).mean())

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
            f"the tail is light, index {self.tail.index:.3g} with 95 % confidence interval "
            f"{self.tail.low:.3g} to {self.tail.high:.3g} (Hill, the {self.tail.used} largest); "
            f"{source}"
        )


def _outwards(value: float) -> float:
    """The next of 1, 2, 5 times a power of ten that is not below; 0 for what is not above 0."""
    if value <= 0:
        return 0.0
    size = 10.0 ** math.floor(math.log10(value))
    return float(next(f"{size * m:g}" for m in (1, 2, 5, 10) if size * m >= value))
