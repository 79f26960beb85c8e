"""Regret, power and participants at several epsilons, side by side: how to choose epsilon."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from balaclava._core.number_format import count, percent, significant
from balaclava._core.text_tables import ResultTable
from balaclava.advice.choose.best_arm_advice import naming_row
from balaclava.advice.choose.recommend import recommend
from balaclava.errors import ParameterError


class EpsilonRow(NamedTuple):
    """What one epsilon costs. NaN: not known."""

    epsilon: float
    policy: str  # recommended for low regret
    regret: float
    plus_minus: float  # half the width of the 95 % interval for the mean
    of_random: float  # regret as a share of that of playing at random
    naming: str  # the policy that names the best arm
    power: float  # share of trials that name the best arm within the horizon
    participants: float  # with which 90 % of the trials name it


class EpsilonTable(ResultTable[EpsilonRow]):
    """Regret, power and participants at several epsilons."""

    header = (
        *("epsilon", "least regret", "regret", "± (95 %)", "of random"),
        *("to name the best", "power", "participants"),
    )

    def __init__(self, rows: Sequence[EpsilonRow], title: str) -> None:
        super().__init__(rows)
        self.title = title

    def row_cells(self, row: EpsilonRow) -> tuple[str, ...]:
        shares = percent(row.of_random, ".0f"), percent(row.power, ".0f")
        return (f"{row.epsilon:g}", row.policy, significant(row.regret),
                significant(row.plus_minus), shares[0], row.naming, shares[1],
                count(row.participants))  # fmt: skip


def epsilon_table(epsilons: Sequence[float], **answers: Any) -> EpsilonTable:
    """Compare epsilons: regret, power, and participants until the best arm is named.

    Args:
        epsilons: privacy losses.
        answers: arguments of `bl.recommend` but for epsilon, goal and simulate.

    Returns:
        A table that prints, with a row for each epsilon. Power and participants are for rewards in
        a known range.

    Raises:
        ParameterError: if there is no epsilon, or an argument is not allowed.

    Example:
        >>> import balaclava as bl
        >>> table = bl.epsilon_table([0.3, 3.0], arms=2, horizon=500)
        >>> table[0].participants > table[1].participants
        True
    """
    if not epsilons:
        raise ParameterError("epsilons is empty; give at least one")
    names = ("delay", "patience", "settle", "missing", "seed")
    late = {name: answers[name] for name in names if name in answers}
    rows, problem = [], ""
    for epsilon in epsilons:
        advice = recommend(**answers, epsilon=epsilon, goal="regret")
        outlook = advice.expect(**late)
        naming, power, needed = "-", math.nan, math.nan
        if advice.plan is not None:
            naming, _, _, needed, power, *_ = naming_row(advice.plan)
        share = outlook.regret / outlook.random_regret
        regret = advice.policy.name, outlook.regret, outlook.plus_minus, share
        rows.append(EpsilonRow(epsilon, *regret, naming, power, needed))
        problem = f"regret after {outlook.rounds:,} rounds of {outlook.instance}"
        if advice.plan is not None:
            problem += f"; power: {advice.plan.conditions}"
    return EpsilonTable(rows, problem)
