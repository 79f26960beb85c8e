"""`bl.plan`: how many participants it takes to name the best arm, and what privacy adds."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np

from balaclava._core.declared import Arms, Epsilon, Range, brief, check
from balaclava._core.extras import require_extra
from balaclava._core.number_format import count, percent
from balaclava._core.text_tables import ResultTable
from balaclava.environments.bernoulli import Bernoulli
from balaclava.errors import ParameterError
from balaclava.policies.base import Policy, policy
from balaclava.policies.bounded.dp_top_two import AnswerConfidence
from balaclava.policies.intervals import NO_WINNER
from balaclava.simulation.analysis.winners import first_winners
from balaclava.simulation.engine import simulate
from balaclava.simulation.reward_delays import Delay
from balaclava.theory.bounds import identification

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POWER = 0.9  # share of trials that name the best arm by the planned size, as is usual
USUAL_EPSILONS = (0.1, 0.3, 1.0, 3.0)
# Simulated trials a row: quantiles are known to about 5 %, a chance of 1 % to within 1 %.
TRIALS = 200
CLASSIC_TRIALS = 4_000  # of the fixed-size test, drawn as whole sums
CLASSIC_STEPS = 20  # halvings in the search for its size: far below one participant in a thousand
FIRST_HORIZON = 6.0  # times the lower bound: most trials end by then
MOST_PARTICIPANTS = 3e7  # beyond this a plan takes minutes, and no trial is so long
PLAN_CHECKPOINTS = 400

BaseRate = Annotated[float, Range(0, 1, "usual share of successes", open_high=True)]
SmallestDifference = Annotated[float, Range(0, 1, "smallest lead that matters", open_low=True)]
LostShare = Annotated[float, Range(0, 1, "share of rewards that never arrive", open_high=True)]
Limit = Annotated[int, Range(2, meaning="participants that there are")]


class PlanRow(NamedTuple):
    """The size of one trial. NaN: not reached."""

    label: str
    epsilon: float  # inf without privacy
    median: float  # participants until the best arm is named, in half of the trials
    high: float  # in 90 % of the trials
    wrong: float  # share of the trials that name a wrong arm
    worse: float  # participants with a worse arm until then, on average


class TrialPlan(ResultTable[PlanRow]):
    """Participants until the best arm is named, by policy and epsilon."""

    header = ("policy", "epsilon", "median", "90 %", "wrong", "worse arm")

    def __init__(self, rows: Sequence[PlanRow], title: str, sentence: str) -> None:
        super().__init__(rows)
        self.title, self.sentence = title, sentence

    def row_cells(self, row: PlanRow) -> tuple[str, ...]:
        epsilon = "none" if math.isinf(row.epsilon) else f"{row.epsilon:g}"
        return (row.label, epsilon, count(row.median), count(row.high), percent(row.wrong),
                count(row.worse))  # fmt: skip

    def __str__(self) -> str:
        return f"{super().__str__()}\n\n{self.sentence}"

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
                ax.axhline(rows[0].high, color="0.5", linestyle="--", label=f"{label}, 90 %")
                continue
            epsilons = [row.epsilon for row in rows]
            for q, style in (("high", "o-"), ("median", "o:")):
                values = [getattr(row, q) for row in rows]
                name = "90 %" if q == "high" else "median"
                ax.plot(epsilons, values, style, color=colour, label=f"{label}, {name}")
        ax.set(xscale="log", yscale="log", xlabel="epsilon", title=self.title.partition(";")[0])
        levels = sorted({row.epsilon for row in self if not math.isinf(row.epsilon)})
        ax.set_xticks(levels, [f"{level:g}" for level in levels])
        ax.minorticks_off()
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        ax.yaxis.set_major_formatter("{x:,.0f}")
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
    participants: int | None = None,
    seed: int = 1,
) -> TrialPlan:
    """Plan a trial: how many participants until the best arm is named?

    Simulates trials in which one arm leads the others by `smallest_difference`, and those have
    `base_rate`: no larger lead takes longer. Beside the policy: dp-imed, and a classic test of
    fixed size without privacy that names the best arm in as many trials.

    Args:
        arms: number of arms, at least 2.
        epsilon: privacy loss; several for a table of what privacy costs.
        base_rate: the usual share of successes, such as 0.05.
        smallest_difference: the smallest lead of the best arm that matters.
        confidence: chance that the named arm is the best.
        policy: a policy, or its name; dp-top-two by default.
        delay: how late rewards arrive, or the mean delay in rounds.
        lost: share of rewards that never arrive.
        participants: how many there are; the plan then says whether they suffice.
        seed: a whole number; the same seed gives the same plan.

    Returns:
        A table that prints; `sentence` sums it up, and `plot` draws it.

    Raises:
        ParameterError: if an argument is not allowed, or the trial would be too long to plan.

    Example:
        >>> import balaclava as bl
        >>> size = bl.plan(3, 1.0, base_rate=0.5, smallest_difference=0.2)
        >>> [row.label for row in size]
        ['dp-top-two', 'dp-imed', 'classic test']
    """
    arms = check("arms", arms, Arms)
    if arms < 2:
        raise ParameterError("arms = 1: there is nothing to compare; give at least 2")
    rate = check("base_rate", base_rate, BaseRate)
    lead = check("smallest_difference", smallest_difference, SmallestDifference)
    if rate + lead > 1.0:
        raise ParameterError(
            f"base_rate = {rate:g} and smallest_difference = {lead:g} add up to more than 1; give "
            "smaller ones"
        )
    confidence = check("confidence", confidence, AnswerConfidence)
    late = planned_delay(delay, lost)
    if participants is not None:
        participants = check("participants", participants, Limit)
    levels = epsilon if isinstance(epsilon, Sequence) else [epsilon]
    levels = [check("epsilon", level, Epsilon) for level in levels]
    if not levels:
        raise ParameterError("epsilon is empty; give at least one")
    world = Bernoulli(means=np.array([*[rate] * (arms - 1), rate + lead]))
    rows = [
        simulated_row(each, world, late, confidence, seed)
        for level in levels
        for each in planned_policies(policy, arms, level, confidence)
    ]
    rows.append(classic_row(world, late, confidence, seed))
    share = f", {late.lost:.0%} lost" if late is not None and late.lost else ""
    wait = f", rewards {late.mean:g} rounds late" if late is not None and late.mean else ""
    title = (
        f"participants until the best of {arms} arms is named: {rate:g}, and {rate + lead:g} for "
        f"the best; {confidence:.6g} confidence{wait}{share}"
    )
    return TrialPlan(rows, title, plan_sentence(rows, participants))


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
    return Delay(mean=float(delay or 0.0), law="fixed", lost=share)


def planned_policies(
    chosen: str | Policy | None, arms: int, epsilon: float, confidence: float
) -> Iterator[Policy]:
    """The policy at this epsilon, and dp-imed beside it."""
    names = [chosen if chosen is not None else "dp-top-two", "dp-imed"]
    for name in names:
        if isinstance(name, Policy):
            if name.arms != arms:
                raise ParameterError(f"policy has {name.arms} arms, but the plan {arms}")
            yield name
            continue
        more = {"confidence": confidence} if name == "dp-top-two" else {}
        yield policy(name, arms=arms, epsilon=epsilon, **more)


def simulated_row(
    each: Policy, world: Bernoulli, late: Delay | None, confidence: float, seed: int
) -> PlanRow:
    """Simulate trials that are long enough for 90 % of them to name an arm, if that is possible."""
    level, wait = each.guarantee.epsilon, late.mean or 0.0 if late is not None else 0.0
    least = identification(world, epsilon=level, delta=1.0 - confidence)
    horizon = math.ceil(FIRST_HORIZON * least + 4.0 * wait)
    expected = bool(each.names_winners)
    while True:
        if horizon > MOST_PARTICIPANTS:
            raise ParameterError(
                f"the trial takes more than {MOST_PARTICIPANTS:.0e} participants at epsilon "
                f"{level:g}; give a larger smallest_difference or epsilon"
            )
        results = simulate(
            each, world, horizon=horizon, repetitions=TRIALS, seed=seed, delay=late,
            checkpoints=min(PLAN_CHECKPOINTS, horizon), winners=True,
        )  # fmt: skip
        runs = results._finished_runs(each.name)
        first = first_winners(each, runs, confidence)
        named = first[:, 1] != NO_WINNER
        if not expected or named.mean() > POWER:
            break
        horizon *= 2
    rounds = np.where(named, results.checkpoints[first[:, 0]], math.inf)
    regret = np.array([run.regret[c] for run, c in zip(runs, first[:, 0], strict=True)])
    median, high = (float(np.quantile(rounds, q, method="higher")) for q in (0.5, POWER))
    return PlanRow(
        each.name,
        level,
        median if math.isfinite(median) else math.nan,
        high if math.isfinite(high) else math.nan,
        float((named & (first[:, 1] != world.arms - 1)).mean()),
        float(regret.mean() / world.largest_gap) if named.all() or expected else math.nan,
    )


def classic_row(world: Bernoulli, late: Delay | None, confidence: float, seed: int) -> PlanRow:
    """A test of fixed size without privacy: every pair by a z-test, corrected for the pairs."""
    arms, means = world.arms, np.asarray(world.means)
    quantile = NormalDist().inv_cdf(1.0 - (1.0 - confidence) / (arms - 1))
    rng = np.random.default_rng(seed)

    def named(size: int) -> np.ndarray:
        """The arm that each simulated trial names, with `size` rewards an arm; or NO_WINNER."""
        rates = rng.binomial(size, means, (CLASSIC_TRIALS, arms)) / size
        best = rates.argmax(axis=1)
        top = rates.max(axis=1, keepdims=True)
        both = 0.5 * (top + rates)
        clear = top - rates >= quantile * np.sqrt(2.0 * both * (1.0 - both) / size)
        clear[np.arange(len(best)), best] = True
        # Of two equal arms neither is named.
        alone = (rates == top).sum(axis=1) == 1
        return np.where(clear.all(axis=1) & alone, best, NO_WINNER)

    low, high = 1.0, 2.0
    while (named(math.ceil(high)) == arms - 1).mean() < POWER:
        low, high = high, 2.0 * high
    for _ in range(CLASSIC_STEPS):
        middle = math.sqrt(low * high)
        enough = (named(math.ceil(middle)) == arms - 1).mean() >= POWER
        low, high = (low, middle) if enough else (middle, high)
    size, answers = math.ceil(high), named(math.ceil(high))
    all_asked = arms * size / (1.0 - (late.lost if late is not None else 0.0))
    wrong = float(((answers != NO_WINNER) & (answers != arms - 1)).mean())
    return PlanRow(
        "classic test", math.inf, all_asked, all_asked, wrong, all_asked * (arms - 1) / arms
    )


def plan_sentence(rows: Sequence[PlanRow], participants: int | None) -> str:
    """What the plan says about its first policy, in words."""
    best, classic = rows[0], rows[-1]
    if math.isnan(best.high):
        text = f"{best.label} seldom names an arm in trials of this length."
    else:
        text = (
            f"At epsilon {best.epsilon:g}, {best.label} names the best arm within "
            f"{best.high:,.0f} participants in 90 % of trials, half of them by {best.median:,.0f}; "
            f"a classic test of fixed size without privacy takes {classic.high:,.0f}. If the "
            "number of participants is fixed, try dp-even, too: it may need fewer."
        )
    if participants is not None and not math.isnan(best.high):
        enough = "suffice" if participants >= best.high else "do not suffice"
        text += f" {participants:,} participants {enough} for that."
    return text
