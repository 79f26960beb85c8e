"""Estimates of the arms' means from released values: intervals and a winner, at no epsilon."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np

from balaclava._core.declared import Range, brief, check
from balaclava._core.number_format import count, mean_reward
from balaclava._core.text_tables import ResultTable, html_table
from balaclava.agents.roster import ArmRoster
from balaclava.errors import UnknownNameError, nearest
from balaclava.policies.base import BEST_ARM, Policy
from balaclava.policies.intervals import NO_WINNER, limits_within_radius, winner_kernel
from balaclava.policies.priors import ReleasedSum, Releases, noise_scale

Confidence = Annotated[
    float, Range(0, 1, "chance that all intervals hold", open_low=True, open_high=True)
]
# A forecast of more than this many times the decisions so far is not worth displaying.
MOST_FORECAST_GROWTH = 2.0**40
# Standard error of a mean, as a share of the width of its interval at even odds: the half-width
# of intervals that hold in every round is about 2.5 of them. Forecasts alone depend on it.
EVEN_ODDS, ERROR_SHARE = 0.5, 0.2
FORECAST_PRECISION = 1.01  # ratio of the limits of the forecast when its search ends


class ReleasedMean(NamedTuple):
    """The released mean of an arm, in the policy's own unit."""

    rewards: int
    mean: float
    noise: float  # draws of noise, or a proved radius


@dataclass(frozen=True)
class MeanEstimate:
    """The estimate of one arm."""

    arm: int
    label: str
    decisions: int
    rewards: int  # in the released mean; with settle="window" closed windows
    mean: float | None  # released, in the unit of the rewards; None before the first release
    interval: tuple[float, float]
    retired: bool = False  # no longer offered, nor compared

    def __str__(self) -> str:
        mean, low, high = map(mean_reward, (self.mean, *self.interval))
        return f"{self.label}: {mean} in [{low}, {high}]"


class Answer(NamedTuple):
    """What a policy was asked for: the best arm, or a set of arms.

    Example:
        >>> print(Answer("the best 2 arms", (0, 2), ("map", "friendly")))
        the best 2 arms: map, friendly
    """

    claim: str
    arms: tuple[int, ...]
    labels: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.claim}: {', '.join(self.labels) or 'none'}"


class Estimates(ResultTable[MeanEstimate]):
    """The arms' means, one entry an arm, with intervals that hold together and at all times.

    The probability that any interval ever misses its arm's mean, in any round of the run, is at
    most 1 - confidence. So you may look at any time, and stop at any time. Rewards must be
    independent, an arm's mean must not change, and `condition` must hold: what the claims assume of
    arrivals, as a clause. It is None if arrivals may depend on rewards.

    The winner is the best arm, None if it is not yet known. The probability of ever naming a wrong
    one is at most 1 - confidence. Arms are compared directly, so an arm may win while intervals
    still overlap (`theory.confidence_sequences`). The winner is the best of the arms `compared`,
    those that were not retired, after `made` decisions.

    `releases` has the same means with their draws of noise, for a run that counts them as a prior
    (`same_means`). None if they cannot be counted so.

    `answer` names the arms that the policy was asked for: the winner, or the set of another goal of
    dp-top-two. None if it is not yet known; wrong with the same probability.

    `recommended` is the arm to choose if the trial ends now, known to be the best or not. None if
    the policy has no rule for it, or nothing was released. It has no confidence: dp-even and
    dp-sequential-halving have it.
    """

    header = ("arm", "decisions", "rewards", "mean", "low", "high")

    def __init__(
        self,
        entries: Sequence[MeanEstimate],
        confidence: float,
        winner: int | None,
        condition: str | None = None,
        recommended: int | None = None,
        answer: Answer | None = None,
        arms_changed: bool = False,
        releases: Releases | None = None,
        own_difference: Callable[[int, int], tuple[float, float] | None] | None = None,
    ) -> None:
        super().__init__(entries)
        self.compared = tuple(entry.label for entry in entries if not entry.retired)
        self.made = sum(entry.decisions for entry in entries)
        self._arms_changed = arms_changed
        self.confidence = confidence
        self.winner = winner
        self.condition = condition
        self.recommended = recommended
        self.answer = answer
        self.releases = releases
        self._own_difference = own_difference

    def row_cells(self, row: MeanEstimate) -> tuple[str, ...]:
        numbers = map(mean_reward, (row.mean, *row.interval))
        label = f"{row.label} (retired)" if row.retired else row.label
        return (label, count(row.decisions), count(row.rewards), *numbers)

    def difference(self, a: int | str, b: int | str) -> tuple[float, float]:
        """An interval for the mean of arm `a` minus that of `b`.

        All of them hold together with probability at least the confidence. They are two-sided, and
        for all pairs. The winner's test is one-sided, with an error of its own: so a winner's
        interval may include 0. To cut it there would add the two errors. That of a policy with an
        exact test is exact; otherwise it is made of the two arms' intervals.

        Args:
            a: An arm, by number or name.
            b: Another arm.

        Returns:
            The lower and the upper limit.

        Raises:
            UnknownNameError: If there is no such arm.
        """
        first, second = self.of(a), self.of(b)
        own = self._own_difference and self._own_difference(first.arm, second.arm)
        return own or (
            first.interval[0] - second.interval[1],
            first.interval[1] - second.interval[0],
        )

    def of(self, arm: int | str) -> MeanEstimate:
        """The estimate of an arm.

        Args:
            arm: Its number or name.

        Returns:
            Its entry.

        Raises:
            UnknownNameError: If there is no such arm.
        """
        labels = [entry.label for entry in self]
        if isinstance(arm, str) and arm in labels:
            return self[labels.index(arm)]
        whole = isinstance(arm, int | np.integer) and not isinstance(arm, bool)
        if whole and 0 <= int(arm) < len(self):
            return self[int(arm)]
        hint = nearest(arm, labels) if isinstance(arm, str) else f"known: 0 to {len(self) - 1}"
        raise UnknownNameError(f"there is no arm {brief(arm)}; {hint}")

    def __str__(self) -> str:
        return "\n".join([*self.text_lines, self._caption()])

    def _repr_html_(self) -> str:
        return html_table(self._caption(), self.header, self.cells[1:])

    def _caption(self) -> str:
        claim = f"All intervals hold together and at all times, at {self.confidence:.6g} confidence"
        if self.condition is not None:
            claim += f", if {self.condition}"
        if self.answer is not None and self.answer.claim != BEST_ARM:
            return f"{claim}. Answer: {self.answer}."
        if self.winner is None and self.recommended is not None:
            return f"{claim}; no winner. Recommended: {self[self.recommended].label}."
        if self.winner is None:
            return f"{claim}; no winner yet."
        return f"{claim}; the winner is {self[self.winner].label}{self.among}."

    @property
    def among(self) -> str:
        """The set and the date of the winner, in words; "" if arms did not change."""
        if not self._arms_changed:
            return ""
        return f", of {', '.join(self.compared)}, after {self.made:,} decisions"


class EstimateReader:
    """Reads estimates from a state, at a confidence; `decisions` has the number of each arm."""

    def __init__(
        self,
        policy: Policy,
        params: Any,
        state: Any,
        decisions: Sequence[int],
        confidence: Any,
        condition: str | None,
        order: Any = None,
        roster: ArmRoster | None = None,
    ) -> None:
        self.confidence = check("confidence", confidence, Confidence)
        self._roster = roster or ArmRoster(policy)
        shares = [self._roster.arm_weight(arm) for arm in range(policy.arms)]
        self._failures = [(1.0 - self.confidence) * share for share in shares]
        self._estimation = self._roster.policy.require_estimates(min(self._failures))
        self._policy, self._params, self._decisions = policy, params, decisions
        self._condition, read = condition, self._estimation.read
        named = policy.named_arm(state, self.confidence)
        self._named = None if named is None else self._roster.arm_in_slot[named]
        self._recommended = policy.recommended_arm(state)
        self._named_set = policy.named_set(state, self.confidence)
        self.claim = policy.answer_claim
        self._compared = self._roster.live
        if order is not None and (tally := self._estimation.from_tally) is not None:
            released = [tally(params, order, arm) for arm in range(policy.arms)]
        else:
            released = self._roster.released(lambda slot: read(params, state, slot))
        self._own = [ReleasedMean(*each) for each in released]
        counted = self._roster.counted
        self.released_means = [
            pooled(each, ReleasedMean(*counted[arm])) if arm in counted else each
            for arm, each in enumerate(self._own)
        ]

    def all_released(self) -> bool:
        """Whether each arm that was not retired has a release of this run."""
        return all(self._own[arm].rewards for arm in self._compared)

    def _releases(self) -> Releases | None:
        """The means as another run can count them."""
        policy, labels = self._policy, self._policy.arm_label
        scale = noise_scale(policy, self._params)
        if scale is None:
            return None
        low, high = policy.accepts
        arms = tuple(
            ReleasedSum(labels(arm), int(each.rewards), float(each.mean), int(each.noise))
            for arm in self._compared
            if (each := self.released_means[arm]).rewards
        )
        return Releases((float(low), float(high)), scale, arms, self._condition)

    def estimates(self) -> Estimates:
        policy = self._policy
        entries = []
        for arm, released in enumerate(self.released_means):
            low, high = self._limits(released, self._failures[arm])
            entries.append(
                MeanEstimate(
                    arm,
                    policy.arm_label(arm),
                    int(self._decisions[arm]),
                    int(released.rewards),
                    policy.in_units(float(released.mean)) if released.rewards else None,
                    (policy.in_units(low), policy.in_units(high)),
                    arm in self._roster.retired,
                )
            )
        winner = self.winner()
        return Estimates(
            entries, self.confidence, winner, self._condition, self._recommended,
            self._answer(winner), self._roster.changed, self._releases(), self._own_difference,
        )  # fmt: skip

    def _own_difference(self, a: int, b: int) -> tuple[float, float] | None:
        """The policy's own interval of a difference; None if it has none."""
        if self._estimation.difference is None:
            return None
        released, failure = np.array(self.released_means, float), 1.0 - self.confidence
        limits = self._estimation.difference(self._params, released, a, b, failure)
        if limits is None:
            return None
        zero = self._policy.in_units(0.0)
        return self._policy.in_units(limits[0]) - zero, self._policy.in_units(limits[1]) - zero

    def _answer(self, winner: int | None) -> Answer | None:
        arms = self._named_set
        if self.claim == BEST_ARM and winner is not None:
            arms = (winner,)
        if arms is None or self._roster.masked:
            return None
        return Answer(self.claim, arms, tuple(map(self._policy.arm_label, arms)))

    def winner(self) -> int | None:
        """The best arm, if the policy has named it or the releases show it.

        None if some decisions did not offer all arms: then means are of different participants.
        """
        if self._roster.masked:
            return None
        return self._named if self._named is not None else self._best(self.released_means)

    def remaining(self) -> int | None:
        """Forecast the decisions until a winner, at the means and shares so far.

        None if there is a winner, or if the leader's mean is not above all others by more than
        their errors: a forecast depends on the square of the difference, which is mostly noise.
        """
        means, errors = self.released_means, self._errors()
        leader = self._leader()
        if self.winner() is not None or any(
            means[leader].mean - errors[leader] <= means[arm].mean + errors[arm]
            for arm in self._compared
            if arm != leader
        ):
            return None
        return self._decisions_until_named(means)

    def soonest(self) -> int | None:
        """Forecast the decisions until a winner if the differences are larger, by their errors.

        None if there is a winner, or if there would never be one.
        """
        leader, errors = self._leader(), self._errors()
        if self.winner() is not None or math.inf in errors:
            return None
        return self._decisions_until_named(
            [
                each._replace(mean=each.mean + (errors[arm] if arm == leader else -errors[arm]))
                for arm, each in enumerate(self.released_means)
            ]
        )

    def _leader(self) -> int:
        return max(self._compared, key=lambda arm: self.released_means[arm].mean)

    def _errors(self) -> list[float]:
        """About one standard error of each mean; infinite without a release."""
        failure = EVEN_ODDS / self._policy.arms
        limits = [
            self._estimation.limits(self._params, *each, failure) if each.rewards else None
            for each in self.released_means
        ]
        return [math.inf if each is None else (each[1] - each[0]) * ERROR_SHARE for each in limits]

    def _decisions_until_named(self, means: Sequence[ReleasedMean]) -> int | None:
        """The decisions until these means would name a winner; None if they never would."""
        total = sum(map(int, self._decisions))
        enough = 2.0
        while not self._would_name(means, enough):
            enough *= 2.0
            if enough > MOST_FORECAST_GROWTH:
                return None
        few = enough / 2.0
        while enough > FORECAST_PRECISION * few:
            middle = math.sqrt(few * enough)
            few, enough = (few, middle) if self._would_name(means, middle) else (middle, enough)
        return max(math.ceil((enough - 1.0) * total), 1)

    def _limits(self, released: ReleasedMean, failure: float) -> tuple[float, float]:
        low, high = self._estimation.limits(self._params, *released, failure)
        return float(low), float(high)

    def _would_name(self, means: Sequence[ReleasedMean], growth: float) -> bool:
        """Whether there would be a winner with `growth` times the rewards."""
        grown = [self._grown(arm, released, growth) for arm, released in enumerate(means)]
        return self._best(grown) is not None

    def _best(self, means: Sequence[ReleasedMean]) -> int | None:
        """The arm that beats all others; once arms came or left, each pair at its own level."""
        compared, failure = self._compared, 1.0 - self.confidence
        if not self._roster.sets_changed:
            return self._winner_of(compared, means, failure)
        lead = max(compared, key=lambda arm: means[arm].mean)
        for arm in compared:
            if arm == lead:
                continue
            level = failure * self._roster.pair_weight(lead, arm)
            if self._winner_of([lead, arm], means, level) != lead:
                return None
        return lead

    def _winner_of(
        self, arms: Sequence[int], means: Sequence[ReleasedMean], failure: float
    ) -> int | None:
        name_best = winner_kernel(self._estimation)
        joint = self._estimation.joint_weight(self._policy.arms)
        best = name_best(self._params, np.array(means, float)[arms], joint, failure)
        return None if best == NO_WINNER else arms[int(best)]

    def _grown(self, arm: int, released: ReleasedMean, growth: float) -> ReleasedMean:
        """The released mean with `growth` times the rewards; those of a prior stay.

        Reports have one draw of noise each; sums have one more each time their rewards double.
        Radii fall as those of heavy tails do, by n^-(1 - 1/p), and at most by a root.
        """
        more, _, draws = self._roster.counted.get(arm, (0, 0.0, 0))
        rewards, mean, noise = released.rewards - more, released.mean, released.noise - draws
        if self._policy.rewards == "bounded":  # noise may have moved it out of [0, 1]
            mean = min(max(mean, 0.0), 1.0)
        if self._estimation.limits is limits_within_radius:
            rate = min(0.5, 1.0 - 1.0 / (self._policy.moment_order or 2.0))
            noise *= growth**-rate
        elif noise == rewards:
            noise *= growth
        elif noise > 0:
            noise += math.log2(growth)
        return ReleasedMean(int(rewards * growth) + more, mean, noise + draws)


def pooled(own: ReleasedMean, prior: ReleasedMean) -> ReleasedMean:
    """Releases of this run after those of a prior, which came first."""
    rewards = own.rewards + prior.rewards
    total = own.rewards * own.mean + prior.rewards * prior.mean
    return ReleasedMean(rewards, total / rewards, own.noise + prior.noise)
