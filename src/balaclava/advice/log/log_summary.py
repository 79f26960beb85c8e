"""Summary of a log: its arms, its rewards, and the kind of policies that fit them."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from balaclava._core.declared import Outside
from balaclava.advice.log import arm_estimates, data_alarms, tail_index
from balaclava.advice.log.clipping import clipping_findings
from balaclava.advice.log.drift import DRIFT_WARNING, drift_findings
from balaclava.advice.log.feature_columns import FeatureColumns
from balaclava.advice.log.participants import Participants, count_participants
from balaclava.errors import ParameterError
from balaclava.logs.reader import LoggedRewards
from balaclava.privacy.guarantee import Guarantee

# Tail index. If it is surely larger, noise for the whole range costs less than truncation. A guess:
# `compare` shows both sides of it with --clip.
_LIGHT_TAIL_INDEX = 3.0
_MAX_GRADES = 20  # different rewards that are taken for a rating scale; a guess
_UNEVEN_RATIO = 3.0  # most rows of an arm over fewest, above which a note warns of bias
_WRONG_PROPENSITY_ERRORS = 4.0  # standard errors; by chance 1 arm in 16,000


@dataclass(frozen=True)
class LogSummary:
    """A log and the figures that describe it. No sentence repeats a reward."""

    path: str
    logged: LoggedRewards
    given_range: tuple[float, float] | None = None
    outside: Outside = "refuse"  # what to do with rewards outside `given_range`
    clip: tuple[float, float] | None = None  # limits for policies that clip instead of truncate
    clip_source: str = ""  # where these limits come from, in a sentence
    left_out: tuple[str, ...] = ()  # what was dropped, in sentences
    propensities: np.ndarray | None = None  # of the arm that was played, for each row
    times: np.ndarray | None = None
    dated: bool = False  # whether the times are seconds since 1970
    participants: np.ndarray | None = None  # number of each row's participant
    features: FeatureColumns | None = None  # known before each decision
    window_rows: int | None = None  # rows in a window of outcomes, where rewards were joined

    def with_most_rows(self, arms: int) -> "LogSummary":
        """The log of the `arms` arms with the most rows; of equal ones, the first."""
        counts = np.array(list(self.counts.values()))
        if not 2 <= arms <= counts.size:
            raise ParameterError(
                f"arms = {arms} is not allowed: {self.path} has {counts.size} arms; give 2 or more "
                "of these"
            )
        if arms == counts.size:
            return self
        if self.propensities is not None:
            raise ParameterError(
                f"arms = {arms} cannot be combined with propensities, which are those of a choice "
                "among all arms; leave arms out of the log instead"
            )
        chosen = np.zeros(counts.size, bool)
        chosen[np.argsort(-counts, kind="stable")[:arms]] = True
        kept = chosen[self.logged.arms]
        return replace(
            self,
            logged=self.logged.with_arms(chosen),
            left_out=(
                *self.left_out,
                f"{counts.size - arms} of {counts.size} arms, those with the fewest rows, were "
                f"left out, {int((~kept).sum()):,} rows ({(~kept).mean():.1%}).",
            ),
            times=None if self.times is None else self.times[kept],
            participants=None if self.participants is None else self.participants[kept],
            features=None if self.features is None else self.features.select(kept),
        )

    @cached_property
    def _rewards(self) -> np.ndarray:
        return np.concatenate(self.samples)

    @property
    def rows(self) -> int:
        return self._rewards.size

    @property
    def labels(self) -> list[str]:
        return [str(label) for label in self.logged.by_arm]

    @property
    def samples(self) -> list[np.ndarray]:
        return list(self.logged.by_arm.values())

    @property
    def counts(self) -> dict[str, int]:
        return {str(label): rewards.size for label, rewards in self.logged.by_arm.items()}

    @cached_property
    def observed_range(self) -> tuple[float, float]:
        return float(self._rewards.min()), float(self._rewards.max())

    @cached_property
    def weights(self) -> list[np.ndarray | None]:
        """The weights of each arm's rows: 1 / propensity, or None if all are equal."""
        if self.propensities is None:
            return [None] * len(self.labels)
        weights = 1 / self.propensities
        return [weights[self.logged.arms == i] for i in range(len(self.labels))]

    @cached_property
    def arms(self) -> list[arm_estimates.ArmEstimate]:
        """Rows, mean and interval of each arm."""
        estimates = []
        for i, label in enumerate(self.labels):
            people = self.participants
            people = None if people is None else people[self.logged.arms == i]
            estimates.append(
                arm_estimates.estimate_arm(label, self.samples[i], self.weights[i], people)
            )
        return estimates

    @cached_property
    def best_arm_test(self) -> arm_estimates.BestArmTest:
        """Whether the best arm is better than the others beyond chance."""
        return arm_estimates.compare_best_arm(
            self.arms, binary=arm_estimates.is_binary(self._rewards)
        )

    @cached_property
    def weighted_arms(self) -> list[arm_estimates.WeightedArmEstimate]:
        """Each arm by inverse propensity weights; empty without propensities."""
        if self.propensities is None:
            return []
        rows = self.logged.arms, self.logged.rewards
        return arm_estimates.estimate_weighted_arms(
            self.labels, *rows, self.propensities, self.participants
        )

    def per_participant(self, guarantee: Guarantee) -> Participants | None:
        """Rewards per participant, and their effect on a guarantee for one reward."""
        if self.participants is None:
            return None
        rows = self.logged.arms, self.logged.rewards
        return count_participants(self.labels, *rows, self.participants, guarantee)

    @cached_property
    def tail(self) -> tail_index.TailIndex | None:
        """The tail index of the rewards, if it can be estimated."""
        return tail_index.hill_estimate(self._rewards)

    @cached_property
    def kind(self) -> Literal["bounded", "heavy-tailed"]:
        """The kind of rewards, which decides the policies that fit."""
        bounded = self.given_range is not None or self._in_unit_interval or self._graded
        light = self.tail is None or self.tail.low > _LIGHT_TAIL_INDEX
        return "bounded" if bounded or light else "heavy-tailed"

    @property
    def _in_unit_interval(self) -> bool:
        low, high = self.observed_range
        return low >= 0.0 and high <= 1.0

    @cached_property
    def _graded(self) -> bool:
        beginning = self._rewards[: 100 * _MAX_GRADES]  # mostly enough to decide, and fast
        return all(np.unique(part).size <= _MAX_GRADES for part in (beginning, self._rewards))

    @property
    def reward_range(self) -> tuple[float, float]:
        """The given range, or the observed one rounded outwards."""
        if self.given_range is not None:
            return self.given_range
        if self._in_unit_interval:
            return (0.0, 1.0)
        low, high = self.observed_range
        return (0.0 - _round_up(-low), _round_up(high))  # 0, not -0

    @property
    def clipped(self) -> float:
        """The share of rewards outside the range."""
        low, high = self.reward_range
        return float(((self._rewards < low) | (self._rewards > high)).mean())

    @property
    def moment_order(self) -> float:
        """The highest order, up to 2, of a moment that is surely finite by the tail index."""
        low, high = tail_index.MOMENT_ORDERS
        if self.tail is None:
            return high
        return float(
            f"{min(max(tail_index.MOMENT_ORDER_PER_INDEX * self.tail.low, low), high):.3g}"
        )

    def moment(self, order: float) -> float:
        """The largest E|X|^order over the arms."""
        return max(float((np.abs(rewards) ** order).mean()) for rewards in self.samples)

    @property
    def moment_bound(self) -> float:
        """The largest moment of order `moment_order`, rounded up to two digits."""
        return tail_index.round_up_two_digits(self.moment(self.moment_order) or 1.0)

    @property
    def drifts(self) -> bool:
        return DRIFT_WARNING in self._drift_findings

    @cached_property
    def _drift_findings(self) -> list[str]:
        if self.times is None:
            return []
        rows = self.logged.arms, self.logged.rewards, self.times
        return drift_findings(self.labels, *rows, self.dated)

    def findings(self) -> list[str]:
        counts = self.counts.values()
        kind = self.logged.kind
        written = ", ".join(self.logged.detected) or "UTF-8, commas between cells, decimal points"
        return [
            f"{self.rows:,} rows, {len(counts)} arms, {min(counts):,} to {max(counts):,} rows an "
            "arm.",
            f"Read as {kind}{'' if kind == 'Parquet' else f': {written}'}.",
            *self.left_out,
            *self._bias_findings(),
            *self._alarms(),
            *self._drift_findings,
            *self._reward_findings(),
        ]

    def _bias_findings(self) -> list[str]:
        """Signs that the logging policy biases the averages."""
        counts = self.counts
        rare, often = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
        if self.propensities is None:
            if counts[often] <= _UNEVEN_RATIO * counts[rare]:
                return data_alarms.split_alarm(counts)
            return [
                f"Rows are uneven: {counts[often]:,} of {often!r}, {counts[rare]:,} of {rare!r}. "
                "If the logging policy used rewards, averages of arms that it dropped are too low. "
                "If it used features of people, arms were tried on different people. Either way "
                "differences here are biased. If the chance of each choice was logged, give its "
                "column with --propensity."
            ]
        wrong = [
            row.label
            for row in self.weighted_arms
            if abs(row.total_weight - 1) > _WRONG_PROPENSITY_ERRORS * max(row.weight_error, 1e-9)
        ]
        if not wrong:
            return []
        return [
            f"The propensities do not fit the rows of {', '.join(map(repr, wrong))}: 1 / "
            "propensity should add up to the number of rows. Is it the probability of the arm that "
            "was played?"
        ]

    def _alarms(self) -> list[str]:
        """Signs of rows lost, doubled or mislabelled."""
        rewards, times, participants = self.logged.rewards, self.times, self.participants
        sentences = data_alarms.similar_labels(self.counts)
        sentences += data_alarms.doubled_rows(self.logged.arms, rewards, times, participants)
        if participants is not None:
            sentences += data_alarms.crowded_ids(participants)
        if times is not None:
            sentences += data_alarms.time_gaps(times)
        if self.features is not None:
            sentences += data_alarms.leaking_features(self.features, rewards)
        return sentences + data_alarms.strange_rewards(rewards)

    def _reward_findings(self) -> list[str]:
        """Whether rewards are bounded or heavy-tailed, and the parameters that policies get."""
        if float(np.ptp(self._rewards)) == 0.0:
            return ["All rewards are the same: there is nothing to learn from this log."]
        if self.kind == "bounded":
            sentences = [f"Rewards are taken as bounded: {self._why_bounded()}."]
            low, high = self.observed_range
            if low < high and high - low < 0.1 * (self.reward_range[1] - self.reward_range[0]):
                sentences.append(
                    "The rewards fill a small part of that range, and the noise scales with all of "
                    "it: give a narrower range with --range if you know that no reward leaves it."
                )
            return sentences + self._clipping_findings()
        sentences = []
        if self.tail is not None:
            sentences = [
                f"Rewards look heavy-tailed: {self.tail.describe('.2f')}; {_LIGHT_TAIL_INDEX:g} "
                "or less cannot be excluded. Noise for the whole range would drown the signal, so "
                "the policies below truncate. Intervals of averages, and worlds resampled from the "
                "rows, are rough for such rewards.",
                f"Policies get the bound {self.moment_bound:g} on E|reward|^{self.moment_order:g}, "
                "computed from the log. In production give a bound from what you know instead. If "
                "no reward can leave a range, give it with --range; to clip rewards, use --clip.",
            ]
        return sentences + self._clipping_findings()

    def _clipping_findings(self) -> list[str]:
        """The bias of clipping, if rewards are to be clipped."""
        limits = self.given_range if self.outside == "clip" else self.clip
        if limits is None:
            return []
        source = self.clip_source or (
            "Take the limits from public data (--clip-from) or from what you know: limits tuned on "
            "this log are outside epsilon."
        )
        return [*clipping_findings(self.labels, self.samples, limits), source]

    def _why_bounded(self) -> str:
        low, high = self.reward_range
        interval = f"[{low:g}, {high:g}]"
        if self.given_range is not None:
            if not self.clipped:
                return f"you gave the range {interval}"
            return (
                f"you gave the range {interval}, and rewards outside it are clipped, here a share "
                f"of {self.clipped:.2g}. Regret is computed from rewards before clipping"
            )
        if self._in_unit_interval:
            return "all lie in [0, 1]"
        source = (
            f"policies get the range {interval}, rounded outwards from the log. In production give "
            "a range from what you know instead (--range): a range from data is not private"
        )
        if self._graded:
            return f"there are at most {_MAX_GRADES} different ones; {source}"
        if self.tail is None:
            return f"the largest rewards do not form a tail; {source}"
        return f"the tail is light, {self.tail.describe('.3g')}; {source}"


def _round_up(value: float) -> float:
    """The next 1, 2 or 5 times a power of ten; 0 for a value that is not positive."""
    if value <= 0:
        return 0.0
    size = 10.0 ** math.floor(math.log10(value))
    return float(next(f"{size * m:g}" for m in (1, 2, 5, 10) if size * m >= value))
