"""Results in a table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, overload

import numpy as np

from balaclava._core.markup import html_table, text_lines
from balaclava.simulation.statistics import CONFIDENCE, best_arm_share, mean_of_regret
from balaclava.simulation.tails import HEADER, tail_cells
from balaclava.simulation.winners import Winners, recorded

if TYPE_CHECKING:
    from balaclava.simulation.results import Results

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_HEADER = (
    *("policy", "privacy", "repetitions", "mean regret", f"± ({CONFIDENCE:.0%})"),
    *(f"{100 * q:g} %" for q in QUANTILES),
    "best arm",
)
_LEFT = 2  # the first columns hold text


class SummaryRow(NamedTuple):
    """One policy: the final regret over its repetitions. A number that is not known is NaN."""

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
    best_arm_share: float  # of all pulls, those of an arm with the highest mean


class Summary(Sequence[SummaryRow]):
    """The rows, and a table of them as text; with tails and winners, where there are any."""

    def __init__(
        self,
        title: str,
        rows: Sequence[SummaryRow],
        winners: Winners | None = None,
        tails: Sequence[tuple[str, ...]] = (),
    ) -> None:
        self.title = title
        self.winners = winners
        self.tails = tuple(tails)
        self._rows = tuple(rows)

    @overload
    def __getitem__(self, index: int) -> SummaryRow: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[SummaryRow, ...]: ...
    def __getitem__(self, index: int | slice) -> SummaryRow | tuple[SummaryRow, ...]:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[SummaryRow]:
        return iter(self._rows)

    @property
    def cells(self) -> list[tuple[str, ...]]:
        """The table as text, its header first."""
        return [_HEADER, *(_cells(row) for row in self._rows)]

    def __str__(self) -> str:
        winners = [] if self.winners is None else ["", str(self.winners)]
        tails = ["", *text_lines([HEADER, *self.tails], _LEFT)] if self.tails else []
        return "\n".join([self.title, "", *text_lines(self.cells, _LEFT), *tails, *winners])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        tails = html_table("Tails", HEADER, self.tails) if self.tails else ""
        return html_table(self.title, _HEADER, map(_cells, self._rows)) + tails


def summarise(results: Results) -> Summary:
    """A row for each policy."""
    world = results.environment
    title = f"{world.name}, {world.arms} arms, horizon {results.horizon}, seed {results.seed}"
    title += f", {results.circumstances}" if results.circumstances else ""
    rows = [_row(results, label) for label in results.labels]
    winners = results.winners() if recorded(results) else None
    return Summary(title, rows, winners, tail_cells(results))


def _row(results: Results, label: str) -> SummaryRow:
    final = results.final_regret(label)
    n = final.size
    numbers = [math.nan] * (len(SummaryRow._fields) - 3)
    if n:
        quantiles, share = np.quantile(final, QUANTILES), best_arm_share(results, label)
        numbers = [*mean_of_regret(results, label), *quantiles, share]
    return SummaryRow(label, results.guarantee(label), n, *map(float, numbers))


def _cells(row: SummaryRow) -> tuple[str, ...]:
    label, guarantee, repetitions, *numbers, share = row
    best = "-" if math.isnan(share) else f"{100 * share:.1f} %"
    return (label, guarantee, str(repetitions), *map(_number, numbers), best)


def _number(value: float) -> str:
    """At least three digits that count, without exponents."""
    if math.isnan(value):
        return "-"
    decimals = 1 if abs(value) >= 10 else 2 if abs(value) >= 1 or value == 0 else 3
    return f"{value:.{decimals}f}"
