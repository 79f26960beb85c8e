"""The summary of results: the final regret of each policy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from balaclava._core.number_format import decimal, percent
from balaclava._core.text_tables import ResultTable, html_table, text_lines
from balaclava.simulation.analysis.regret_tails import TAIL_HEADER, tail_cells
from balaclava.simulation.analysis.statistics import CONFIDENCE, best_arm_share, mean_of_regret
from balaclava.simulation.analysis.winners import Winners, has_releases

if TYPE_CHECKING:
    from balaclava.simulation.results import Results

SUMMARY_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)  # columns of the table
_QUANTILE_COLUMNS = tuple(percent(q, "g") for q in SUMMARY_QUANTILES)
_HEADER = (
    *("policy", "privacy", "repetitions", "mean regret", f"± ({CONFIDENCE:.0%})"),
    *_QUANTILE_COLUMNS,
    "best arm",
)
# Columns that a narrow terminal leaves out, the least important first.
OPTIONAL_COLUMNS = (*(percent(q, "g") for q in (0.25, 0.75, 0.5, 0.05, 0.95)), "repetitions")


class SummaryRow(NamedTuple):
    """The final regret of one policy over its repetitions; NaN if it is unknown."""

    label: str
    guarantee: str
    repetitions: int
    mean: float
    plus_minus: float  # half the width of the 95 % interval for the mean
    q05: float
    q25: float
    q50: float
    q75: float
    q95: float
    best_arm_share: float  # share of pulls of an arm with the highest mean; NaN with contexts


class Summary(ResultTable[SummaryRow]):
    """The final regret of each policy; prints with tails and winners if there are any.

    "best arm" is the share of pulls of an arm with the highest mean.
    """

    header = _HEADER
    paper_header = tuple(
        f"{name} quantile" if name in _QUANTILE_COLUMNS else name for name in _HEADER
    )
    text_columns = 2

    def __init__(
        self,
        title: str,
        rows: Sequence[SummaryRow],
        winners: Winners | None = None,
        tails: Sequence[tuple[str, ...]] = (),
    ) -> None:
        super().__init__(rows)
        self.title = title
        self.winners = winners
        self.tails = tuple(tails)

    def row_cells(self, row: SummaryRow) -> tuple[str, ...]:
        label, guarantee, repetitions, *numbers, share = row
        return (label, guarantee, str(repetitions), *map(decimal, numbers), percent(share))

    def __str__(self) -> str:
        winners = [] if self.winners is None else ["", str(self.winners)]
        tails = (
            ["", *text_lines([TAIL_HEADER, *self.tails], self.text_columns)] if self.tails else []
        )
        return "\n".join([super().__str__(), *tails, *winners])

    def _repr_html_(self) -> str:
        tails = html_table("Tails", TAIL_HEADER, self.tails) if self.tails else ""
        return super()._repr_html_() + tails


def summarise(results: Results) -> Summary:
    world = results.environment
    title = f"{world.name}, {world.arms} arms, horizon {results.horizon}, seed {results.seed}"
    title += f", {results.circumstances}" if results.circumstances else ""
    rows = [_row(results, label) for label in results.labels]
    winners = results.winners() if has_releases(results) else None
    return Summary(title, rows, winners, tail_cells(results))


def _row(results: Results, label: str) -> SummaryRow:
    final = results.final_regret(label)
    n = final.size
    numbers = [math.nan] * (len(SummaryRow._fields) - 3)
    if n:
        quantiles, share = np.quantile(final, SUMMARY_QUANTILES), best_arm_share(results, label)
        numbers = [*mean_of_regret(results, label), *quantiles, share]
    return SummaryRow(label, results.guarantee(label), n, *map(float, numbers))
