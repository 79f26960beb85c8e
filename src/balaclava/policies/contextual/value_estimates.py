"""Estimates of the values of policies: inverse propensity weights, from released sums.

The value of a policy is its mean reward over the decisions of the experiment. Decision t has a
public chance p_t(a) of each arm a. With the weight w_t = q_t(a_t) / p_t(a_t), where q_t has the
chances of the policy in question, w_t r_t has the mean of its reward, given all before: with p = 1
for the arm that it plays, and 0 for others, the policy may be a fixed arm.

Interval.
    Let u w_t <= 1, for a constant u. X_t = u w_t r_t is in [0, 1] and has a mean mu_t given all
    before, u times the value in decision t. So prod of (1 - mu_t + mu_t e^x) is at most
    (1 - m + m e^x)^n, m the mean of all mu_t, as the logarithm is concave. With it the proof of
    `theory.confidence_sequences` holds for m, although the mu_t differ: decisions read no release
    of these sums, and releases are of the first decisions. Its interval over u is one for the value
    over these decisions. It is narrow if rewards are rare.

    If weights are public, there are two more. The same holds for u w_t (1 - r_t), whose mean is u
    times 1 minus the value, and whose sum is that of u w_t minus the released one: it is narrow if
    most rewards are 1. And Y_t = u w_t (r_t - 1/2) has a square of at most u^2 w_t^2 / 4, whose
    mean is that of u^2 q_t(a)^2 / p_t(a) over the arms, over 4: it is known before the arm is drawn
    (`limit_by_squares`). That interval is narrow if a policy plays what is played anyway. All three
    hold together, with a third of the probability to fail each, and so does what they share.

    Weighted rewards are rounded down to the grid of that proof, which widens its intervals by one
    step on either side.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from balaclava._core.number_format import count, mean_reward
from balaclava._core.text_tables import ResultTable, html_table
from balaclava.theory.confidence_sequences import limit_by_squares, mean_interval


@dataclass(frozen=True)
class ValueEstimate:
    """The estimated value of one policy."""

    label: str
    kind: str  # "rule": the running policy without its added draws; "arm"; "target"
    rewards: int  # in the releases
    value: float | None  # in the unit of the rewards; None before the first release
    interval: tuple[float, float]


class ValueEstimates(ResultTable[ValueEstimate]):
    """Values of the rule, of each fixed arm and of a target, with intervals.

    All intervals hold together and at all times, except with probability 1 - confidence, under
    `condition`, an assumption on arrivals or None. A value is the mean over the decisions whose
    rewards are in the releases, the first ones: participants may change, and the rule learns.

    `context_helps` is True if the rule is better than the best fixed arm, False if some fixed arm
    is better than the rule, and None if that is not yet known.
    """

    header = ("policy", "rewards", "value", "low", "high")

    def __init__(
        self, entries: Sequence[ValueEstimate], confidence: float, condition: str | None = None
    ) -> None:
        super().__init__(entries)
        self.confidence, self.condition = confidence, condition

    def row_cells(self, row: ValueEstimate) -> tuple[str, ...]:
        numbers = map(mean_reward, (row.value, *row.interval))
        return (row.label, count(row.rewards), *numbers)

    @property
    def gain(self) -> tuple[float, float]:
        """An interval for the value of the rule minus that of the best fixed arm."""
        rule, arms = self[0].interval, [row.interval for row in self if row.kind == "arm"]
        most, least = max(high for _, high in arms), max(low for low, _ in arms)
        return rule[0] - most, rule[1] - least

    @property
    def context_helps(self) -> bool | None:
        """Whether the rule is better than the best fixed arm; None if that is not yet known."""
        low, high = self.gain
        return True if low > 0.0 else False if high < 0.0 else None

    @property
    def sentence(self) -> str:
        """What is known of the rule against the best fixed arm."""
        low, high = map(mean_reward, self.gain)
        verdict = {
            True: "context helps",
            False: "a fixed arm is better than the rule",
            None: "it is not yet known whether context helps",
        }[self.context_helps]
        condition = f", if {self.condition}" if self.condition is not None else ""
        return (
            f"At {self.confidence:.6g} confidence{condition}, {verdict}: the rule minus the best "
            f"fixed arm is in [{low}, {high}]."
        )

    def __str__(self) -> str:
        return "\n".join([*self.text_lines, self.sentence])

    def _repr_html_(self) -> str:
        return html_table(self.sentence, self.header, self.cells[1:])


class PublicWeights(NamedTuple):
    """Sums over the rewards in the releases, if features are public."""

    weights: float  # of u w
    squares: float  # of the mean of (u w)^2 before the arm was drawn


def value_interval(
    total: float,
    public: PublicWeights | None,
    rewards: int,
    draws: int,
    noise: float,
    unit: float,
    failure: float,
) -> tuple[float, float]:
    """Interval for a value in [0, 1].

    Args:
        total: Released sum of u w r.
        public: Sums of weights; None if they are not public.
        rewards: How many are in the sum.
        draws: Draws of Laplace noise in it.
        noise: Their scale.
        unit: u.
        failure: Probability that the interval ever fails, at most.

    Returns:
        The lower and the upper limit.

    Example:
        >>> public = PublicWeights(weights=480.0, squares=240.0)
        >>> low, high = value_interval(24.0, public, 10_000, 3, 1.0, 0.05, 0.05)
        >>> f"{low:.3f} {high:.3f}"
        '0.017 0.097'
    """
    if rewards < 1:
        return 0.0, 1.0
    share = failure if public is None else failure / 3.0
    low, high = mean_interval(total / rewards, rewards, draws, noise, share)
    limits = [(low / unit, high / unit)]
    if public is not None:
        weights, squares = public
        low, high = mean_interval((weights - total) / rewards, rewards, draws, noise, share)
        limits.append((1.0 - high / unit, 1.0 - low / unit))
        centred, square = total - 0.5 * weights, 0.25 * squares
        low = limit_by_squares(centred, square, rewards, draws, noise, 0.5 * share)
        high = -limit_by_squares(-centred, square, rewards, draws, noise, 0.5 * share)
        limits.append((0.5 + low / unit, 0.5 + high / unit))
    lows, highs = zip(*limits, strict=True)
    return max(*lows, 0.0), max(min(*highs, 1.0), 0.0)
