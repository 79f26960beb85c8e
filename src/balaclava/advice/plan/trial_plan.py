"""`bl.plan`: how many participants it takes to name the best arm, and what privacy adds."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np

from balaclava._core.declared import Arms, Epsilon, Range, brief, check
from balaclava._core.extras import require_extra
from balaclava._core.number_format import count, percent, significant
from balaclava._core.text_tables import ResultTable
from balaclava.advice.plan.fixed_size_test import FixedSizeTest
from balaclava.agents.settling import Settle
from balaclava.environments.bernoulli import Bernoulli
from balaclava.errors import ParameterError
from balaclava.policies.base import POLICIES, Policy
from balaclava.policies.bounded.dp_top_two import AnswerConfidence
from balaclava.policies.intervals import NO_WINNER
from balaclava.simulation.analysis.winners import first_winners
from balaclava.simulation.engine import simulate
from balaclava.simulation.feedback import PROMPT, Feedback
from balaclava.simulation.reward_delays import Delay

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POWER = 0.9  # usual share of trials that name the best arm by the planned size
NEARLY_ALL = 0.995  # share of trials beyond which a longer simulation adds nothing
USUAL_EPSILONS = (0.1, 0.3, 1.0, 3.0)
# Simulated trials a row: quantiles are known to about 5 %, a chance of 1 % to within 1 %.
TRIALS = 200
WIDTH_TRIALS = 40  # of them whose intervals are computed: their average is known to about 2 %
FEW_TRIALS = 60  # of a policy that seldom names an arm: averages are known to about 5 %
FIRST_HORIZON = 2.5  # times the size of dp-even: most trials of dp-top-two end by then
MOST_PARTICIPANTS = 3e7  # beyond this a plan takes minutes, and no trial is so long
PLAN_CHECKPOINTS = 400
CLASSIC_TEST, EVEN_POLICY, LOW_REGRET_POLICY = "classic test", "dp-even", "dp-imed"

BaseRate = Annotated[float, Range(0, 1, "usual share of successes", open_high=True)]
SmallestDifference = Annotated[float, Range(0, 1, "smallest lead that matters", open_low=True)]
LostShare = Annotated[float, Range(0, 1, "share of rewards that never arrive", open_high=True)]
Power = Annotated[
    float, Range(0.5, 0.99, "share of trials that name the best arm by the planned size")
]
Limit = Annotated[int, Range(2, meaning="participants that there are")]


class PlanRow(NamedTuple):
    """The size of one trial. NaN: not reached."""

    label: str
    epsilon: float  # inf without privacy
    median: float  # participants until the best arm is named, in half of the trials
    high: float  # in a share `power` of the trials
    named: float  # share of the trials that name the best arm within the participants
    wrong: float  # share of the trials that name a wrong arm
    worse: float  # of them, participants with a worse arm until then, on average
    width: float  # of the interval of the best arm's lead over another at the end, on average
    horizon: float = math.nan  # of a test of fixed size: `high` without those who come meanwhile


class TrialPlan(ResultTable[PlanRow]):
    """Participants until the best arm is named, by policy and epsilon."""

    def __init__(
        self, rows: Sequence[PlanRow], title: str, sentence: str, power: float = POWER
    ) -> None:
        super().__init__(rows)
        self.power = power
        self.header = ("policy", "epsilon", "median", percent(power, "g"), "named", "wrong",
                       "worse arm", "width")  # fmt: skip
        self.title, self.sentence = title, sentence

    def row_cells(self, row: PlanRow) -> tuple[str, ...]:
        epsilon = "none" if math.isinf(row.epsilon) else f"{row.epsilon:g}"
        return (row.label, epsilon, count(row.median), count(row.high), percent(row.named, ".0f"),
                percent(row.wrong), count(row.worse), significant(row.width, 2))  # fmt: skip

    def __str__(self) -> str:
        return f"{super().__str__()}\n\n{self.sentence}"

    @property
    def conditions(self) -> str:
        """The rates, delays and confidence of the simulated trials, in words."""
        return self.title.partition("; ")[2]

    def of(self, label: str) -> PlanRow:
        """The first row of a policy.

        Args:
            label: its name.

        Returns:
            The row.

        Raises:
            ParameterError: if the plan has no such row.
        """
        for row in self:
            if row.label == label:
                return row
        raise ParameterError(f"the plan has no row {label!r}; it has {self[0].label!r} and others")

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure:
        """Draw the participants over epsilon: what privacy costs.

        Args:
            path: where to save the figure, as .png, .pdf or .svg; None saves nothing.

        Returns:
            The matplotlib figure.
        """
        from balaclava.simulation.analysis.regret_plots import COLOURS, new_axes, save_figure

        require_extra("matplotlib", "a plot")
        from matplotlib.ticker import LogLocator

        ax = new_axes()
        for (label, rows), colour in zip(self._curves().items(), COLOURS, strict=False):
            if math.isinf(rows[0].epsilon):
                words = f"{label}, not private"
                ax.axhline(rows[0].high, color="0.5", linestyle="--", label=words)
                continue
            epsilons, highs = [row.epsilon for row in rows], [row.high for row in rows]
            fixed = highs == [row.median for row in rows]
            words = label if fixed else f"{label}, {percent(self.power, 'g')} of trials"
            ax.plot(epsilons, highs, "o-", color=colour, label=words)
            if not fixed:
                medians = [row.median for row in rows]
                ax.plot(epsilons, medians, "o:", color=colour, label=f"{label}, half of trials")
        named = self.title.partition("; ")[0]
        ax.set(xscale="log", yscale="log", title=f"{named}\n{self.conditions}",
               xlabel="epsilon (smaller is stricter)", ylabel="participants")  # fmt: skip
        ax.title.set_fontsize("medium")
        levels = sorted({row.epsilon for row in self if not math.isinf(row.epsilon)})
        ax.set_xticks(levels, [f"{level:g}" for level in levels])
        ax.minorticks_off()
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0)))
        ax.yaxis.set_major_formatter("{x:,.0f}")
        ax.grid(axis="y", color="0.9")
        ax.legend(frameon=False)
        figure: Any = ax.get_figure(root=True)
        if path is not None:
            save_figure(figure, path)
        return figure

    def _curves(self) -> dict[str, list[PlanRow]]:
        """Rows by label, in the order of epsilon, if any was reached."""
        curves: dict[str, list[PlanRow]] = {}
        for row in sorted(self, key=lambda row: row.epsilon):
            curves.setdefault(row.label, []).append(row)
        return {
            label: rows
            for label, rows in curves.items()
            if not all(math.isnan(row.high) for row in rows)
        }


def plan(
    arms: int,
    epsilon: float | Sequence[float] = USUAL_EPSILONS,
    *,
    base_rate: float,
    smallest_difference: float,
    confidence: float = 0.95,
    policy: str | Policy | None = None,
    delay: Delay | float | None = None,
    lost: float | None = None,
    patience: int | None = None,
    settle: Settle = "arrival",
    missing: float | None = None,
    participants: int | None = None,
    power: float = POWER,
    seed: int = 1,
) -> TrialPlan:
    """Plan a trial: how many participants until the best arm is named?

    Simulates trials in which one arm leads the others by `smallest_difference`, and those have
    `base_rate`: no larger lead takes longer. Beside a central policy: dp-even, the private test of
    fixed size, and dp-imed, which plays for low regret. The last row is a classic test of fixed
    size without privacy. Tests of fixed size name the best arm in a share `power` of the trials.

    The last column is the width of `agent.difference` of the best arm and another when the trial
    ends, noise included. All pairs hold together. dp-even has exact intervals; those of policies
    that may be looked at any time are wider.

    Args:
        arms: number of arms, at least 2.
        epsilon: privacy loss; several for a table of what privacy costs.
        base_rate: the usual share of successes, such as 0.05.
        smallest_difference: the smallest lead of the best arm that matters.
        confidence: chance that no arm worse than the best is named. The test is one-sided; 0.975
            is a two-sided 5 %.
        policy: a policy, or its name; dp-top-two by default.
        delay: how late rewards arrive, or the mean delay in rounds, of a geometric law.
        lost: share of rewards that never arrive.
        patience: further decisions after which an open one is given up; see `bl.simulate`.
        settle: "arrival", or "window": each reward, or `missing`, counts after `patience` further
            decisions.
        missing: the value that counts for a lost reward, 0 or 1, with `settle="window"`.
        participants: how many there are. The columns "named", "worse arm" and "width" are then
            of trials with so many; otherwise of those that the first policy takes. The median and
            the size are of trials without end. Those who come while the last outcomes are awaited
            are not among them: they are the horizon of dp-even.
        power: share of trials that name the best arm by the planned size.
        seed: a whole number; the same seed gives the same plan.

    Returns:
        A table that prints; `sentence` sums it up, and `plot` draws it.

    Raises:
        ParameterError: if an argument is not allowed, or the trial would be too long to plan.
        UnknownNameError: if there is no such policy.

    Example:
        >>> import balaclava as bl
        >>> size = bl.plan(3, 1.0, base_rate=0.5, smallest_difference=0.2)
        >>> [row.label for row in size]
        ['dp-top-two', 'dp-even', 'dp-imed', 'classic test']
    """
    feedback = Feedback.create(planned_delay(delay, lost), patience, settle, missing)
    trial = planned_trial(arms, base_rate, smallest_difference, confidence, feedback, participants,
                          seed, power)  # fmt: skip
    if isinstance(policy, Policy) and policy.name == EVEN_POLICY:
        trial = replace(trial, looks=policy.parameters["looks"])
    levels = epsilon if isinstance(epsilon, Sequence) else [epsilon]
    levels = [check("epsilon", level, Epsilon) for level in levels]
    if not levels:
        raise ParameterError("epsilon is empty; give at least one")
    chosen = [planned_policy(policy, trial, level) for level in levels]
    rows = [
        row for level, each in zip(levels, chosen, strict=True) for row in trial.rows(level, each)
    ]
    rows.append(trial.fixed_row(CLASSIC_TEST, math.inf))
    sentence = cost_sentence(rows) if len(levels) > 1 else plan_sentence(rows, trial, chosen[0])
    if participants is not None:
        sentence += participants_sentence(rows, participants)
    return TrialPlan(rows, trial.title, sentence, trial.power)


@dataclass(frozen=True)
class PlannedTrial:
    """What is known of a trial before it begins."""

    arms: int
    rate: float
    lead: float
    confidence: float
    feedback: Feedback
    participants: int | None
    seed: int
    looks: int = 1  # of dp-even
    power: float = POWER

    @property
    def world(self) -> Bernoulli:
        return Bernoulli(means=np.array([*[self.rate] * (self.arms - 1), self.rate + self.lead]))

    @property
    def title(self) -> str:
        late = f", {self.feedback}" if str(self.feedback) else ""
        if self.feedback.longest_wait:
            late += ", with those who come while outcomes are awaited"
        named = "" if self.participants is None else f"; named within {self.participants:,}"
        return (
            f"participants until the best of {self.arms} arms is named; rates of {self.rate:g}, "
            f"and {self.rate + self.lead:g} of the best{late}; one-sided at {self.confidence:.6g} "
            f"confidence{named}"
        )

    def rows(self, epsilon: float, policy: Policy | None) -> Iterator[PlanRow]:
        """The policy, None for dp-even alone, and what it is compared with."""
        even = self.fixed_row(EVEN_POLICY, epsilon)
        if policy is None:
            yield even
            return
        prompt = even.high - self.feedback.wait_for(int(even.high))
        row = self.simulated_row(policy, prompt)
        yield row
        if policy.model == "central":
            yield even
            if policy.name != LOW_REGRET_POLICY:
                known = {"arms": self.arms, "epsilon": epsilon}
                usual = prompt if math.isnan(row.high) else row.high
                yield self.simulated_row(POLICIES.create(LOW_REGRET_POLICY, known), usual)

    def fixed_row(self, label: str, epsilon: float) -> PlanRow:
        """A test of fixed size that names the best arm in a share `power` of the trials.

        Participants who come while the last outcomes are awaited count, as in simulated rows.
        """
        arrived, means = self.feedback.arrived, np.asarray(self.world.means)
        missing = self.feedback.settling.missing
        if missing is not None:  # each participant has an outcome
            means, arrived = arrived * means + (1.0 - arrived) * missing, 1.0
        looks = self.looks if label == EVEN_POLICY else 1
        test = FixedSizeTest(means, epsilon, self.confidence, self.seed, looks)
        per_reward = self.arms / arrived
        size = test.size(self.power, MOST_PARTICIPANTS / per_reward)
        if size is None:
            raise self._too_long(epsilon)
        tested = math.ceil(size * per_reward)
        wait = self.feedback.wait_for(tested)
        total, pulls = tested + wait, size
        median = total
        if looks > 1:
            half = float(np.quantile(test.shares(size).lengths, 0.5, method="higher"))
            median = min(math.ceil(half * tested) + wait, total)
        if self.participants is not None:  # all are tested; the answer may come after the last
            pulls = int(self.participants / per_reward)
        shares, limit = test.shares(pulls), self.participants or total
        received = float(np.minimum(limit * shares.lengths + wait, limit).mean())
        return PlanRow(
            label, epsilon, median, total, shares.right, shares.wrong,
            received * (self.arms - 1) / self.arms, test.width(pulls) if pulls else math.nan,
            tested,
        )  # fmt: skip

    def simulated_row(self, policy: Policy, usual: float) -> PlanRow:
        """Simulate trials until a share `power` of them name an arm.

        If that cannot be expected, for the participants that there are, or `usual` ones.
        """
        expected, wait = bool(policy.names_winners), self.feedback.longest_wait
        policy.require_estimates((1.0 - self.confidence) / self.arms)
        least = FIRST_HORIZON * usual if expected else self.participants or usual
        horizon = math.ceil(min(least, MOST_PARTICIPANTS / 2)) + wait
        while True:
            if horizon > MOST_PARTICIPANTS:
                raise self._too_long(policy.guarantee.epsilon)
            results = simulate(
                policy, self.world, horizon=horizon, seed=self.seed, winners=True,
                repetitions=TRIALS if expected else FEW_TRIALS,
                checkpoints=min(PLAN_CHECKPOINTS, horizon),
                delay=self.feedback.delay, **self.feedback.settling._asdict(),
            )  # fmt: skip
            runs = results._finished_runs(policy.name)
            first = first_winners(policy, runs, self.confidence)
            named = first[:, 1] != NO_WINNER
            more = min(self.participants or 0, MOST_PARTICIPANTS / 2)
            short = horizon < more and named.mean() < NEARLY_ALL
            if not expected or (named.mean() > self.power and not short):
                break
            horizon *= 2
        rounds = np.where(named, results.checkpoints[first[:, 0]], math.inf)
        right = named & (first[:, 1] == self.arms - 1)
        last = results.checkpoints.size - 1
        if self.participants is not None:
            last = min(int(np.searchsorted(results.checkpoints, self.participants)), last)
        places = np.where(named, np.minimum(first[:, 0], last), last)
        regret = np.array([run.regret[c] for run, c in zip(runs, places, strict=True)])
        tables = [
            run.released[c]
            for run, c in zip(runs[:WIDTH_TRIALS], places, strict=False)
            if run.released is not None
        ]
        median, high = (float(np.quantile(rounds, q, method="higher")) for q in (0.5, self.power))
        epsilon = policy.guarantee.epsilon if policy.guarantee.private else math.inf
        within = self.participants or (high if expected else horizon)
        return PlanRow(
            policy.name,
            epsilon,
            median if math.isfinite(median) else math.nan,
            high if math.isfinite(high) else math.nan,
            float((right & (rounds <= within)).mean()),
            float((named & ~right).mean()),
            float(regret.mean()) / self.world.largest_gap,
            lead_width(policy, tables, self.confidence),
        )

    def _too_long(self, epsilon: float) -> ParameterError:
        return ParameterError(
            f"the trial takes more than {MOST_PARTICIPANTS:.0e} participants at epsilon "
            f"{epsilon:g}; give a larger smallest_difference or epsilon"
        )


def planned_trial(
    arms: Any, rate: Any, lead: Any, confidence: Any, feedback: Feedback = PROMPT,
    participants: Any = None, seed: int = 0, power: Any = POWER,
) -> PlannedTrial:  # fmt: skip
    """Check what is known of the trial."""
    arms = check("arms", arms, Arms)
    if arms < 2:
        raise ParameterError("arms = 1: there is nothing to compare; give at least 2")
    rate = check("base_rate", rate, BaseRate)
    lead = check("smallest_difference", lead, SmallestDifference)
    if rate + lead > 1.0:
        raise ParameterError(
            f"base_rate = {rate:g} and smallest_difference = {lead:g} add up to more than 1; give "
            "smaller ones"
        )
    confidence = check("confidence", confidence, AnswerConfidence)
    if participants is not None:
        participants = check("participants", participants, Limit)
    if feedback.settling.missing not in (None, 0, 1):
        raise ParameterError(
            f"missing = {feedback.settling.missing:g} is not allowed; a plan is for rewards of 0 "
            "and 1: give one of them"
        )
    if feedback.arrived == 0.0:
        raise ParameterError("no reward arrives in time; give a longer patience, or fewer lost")
    power = check("power", power, Power)
    return PlannedTrial(arms, rate, lead, confidence, feedback, participants, seed, power=power)


def planned_delay(delay: Any, lost: Any) -> Delay | None:
    """The delay of rewards, from a mean or a law, and the share of lost ones."""
    if isinstance(delay, Delay):
        if lost is not None:
            raise ParameterError("lost is given twice; give it within delay, or delay as a number")
        return delay
    if delay is not None and (isinstance(delay, bool) or not isinstance(delay, int | float)):
        raise ParameterError(f"delay = {brief(delay)} is neither a number nor a bl.Delay")
    if delay is None and lost is None:
        return None
    share = 0.0 if lost is None else check("lost", lost, LostShare)
    return Delay(mean=float(delay or 0.0), lost=share)


def planned_policy(
    chosen: str | Policy | None, trial: PlannedTrial, epsilon: float
) -> Policy | None:
    """The policy at this epsilon; None for dp-even, whose test has no need of a simulation."""
    if isinstance(chosen, Policy):
        if chosen.arms != trial.arms:
            raise ParameterError(f"policy has {chosen.arms} arms, but the plan {trial.arms}")
        return None if chosen.name == EVEN_POLICY else chosen
    name = "dp-top-two" if chosen is None else chosen
    if name == EVEN_POLICY:
        return None
    known = {"arms": trial.arms, "epsilon": epsilon, "confidence": trial.confidence,
             "horizon": trial.participants}  # fmt: skip
    cls = POLICIES.get(name)
    return cls.create(
        {key: each for key, each in known.items() if key in cls.annotations and each is not None}
    )


def lead_width(policy: Policy, tables: Sequence[Any], confidence: float) -> float:
    """The width of the interval of the last arm's lead over the others, on average of some runs.

    Each table has a row of rewards, released mean and noise for each arm. NaN without releases.
    """
    failure = 1.0 - confidence
    limits = policy.require_estimates(failure / policy.arms).limits
    params, widths = policy.constants(), list[float]()
    for table in tables:
        each = [limits(params, int(row[0]), *row[1:], failure / policy.arms) for row in table]
        *others, best = (policy.in_units(high) - policy.in_units(low) for low, high in each)
        widths += [best + other for other in others]
    return float(np.mean(widths)) if np.isfinite(widths).all() else math.nan


def each_epsilon(rows: Sequence[PlanRow], text: Callable[[PlanRow], str], what: str) -> str:
    """For the first policy and dp-even: a figure at each epsilon, and what it counts."""
    parts = []
    for label in dict.fromkeys((rows[0].label, EVEN_POLICY)):
        mine = [row for row in rows if row.label == label and not math.isnan(row.high)]
        if mine:
            levels = ", ".join(f"{row.epsilon:g}" for row in mine)
            parts.append(f"{label} {', '.join(map(text, mine))}{what} at epsilon {levels}")
    return "; ".join(parts) or "no policy here can be expected to"


def cost_sentence(rows: Sequence[PlanRow]) -> str:
    """What privacy costs at several epsilons."""
    classic = rows[-1].high
    costs = each_epsilon(rows, lambda row: f"{row.high / classic:.3g}", " times as many")
    return (
        f"A classic test without privacy takes {classic:,.0f} participants. To name the best arm "
        f"as often takes {costs}."
    )


def plan_sentence(rows: Sequence[PlanRow], trial: PlannedTrial, policy: Policy | None) -> str:
    """What the plan says at one epsilon, in words."""
    row, classic = rows[0], rows[-1]
    text = f"A classic test of fixed size without privacy takes {classic.high:,.0f} participants."
    for even in (each for each in rows if each.label == EVEN_POLICY):
        tests = "one exact one-sided test at the end"
        if trial.looks > 1:
            tests = (
                f"an exact one-sided test at each of {trial.looks} looks (half of the trials end "
                f"by {even.median:,.0f})"
            )
        text += (
            f" At epsilon {even.epsilon:g} dp-even takes {even.high:,.0f}, fixed in advance, with "
            f"{tests}, which unlike the classic one needs no correction for pairs."
        )
        if even.horizon < even.high:
            text += (
                f" Its horizon is {even.horizon:,.0f}; the others come while the last outcomes "
                "are awaited."
            )
        if trial.participants is None:
            text += (
                f" The interval of a difference is then about {significant(even.width, 2)} wide."
            )
    if policy is None:
        return text
    if math.isnan(row.high):
        return f"{text} {row.label} seldom names an arm in trials of this length."
    text += (
        f" {row.label} names the best arm within {row.high:,.0f} in "
        f"{percent(trial.power, 'g')} of trials, half of them "
        f"by {row.median:,.0f}; you may look and stop at any time."
    )
    twice = replace(trial, lead=2.0 * trial.lead, participants=None)
    if twice.rate + twice.lead > 1.0:
        return text
    faster = twice.simulated_row(policy, row.high / 4.0)
    by = f"it takes {faster.high:,.0f}, half by {faster.median:,.0f}"
    return f"{text} If the lead is {twice.lead:g}, {by}."


def participants_sentence(rows: Sequence[PlanRow], participants: int) -> str:
    """How often the participants suffice."""
    shares = each_epsilon(rows, lambda row: percent(row.named, ".0f"), "")
    widths = each_epsilon(rows, lambda row: significant(row.width, 2), "")
    return (
        f" With {participants:,} participants this share of trials names the best arm: {shares}. "
        "A test of fixed size then uses all of them, also beyond its planned size: they are its "
        "horizon, without those who come while the last outcomes are awaited. The interval of "
        f"the lead is then about this wide: {widths}."
    )
