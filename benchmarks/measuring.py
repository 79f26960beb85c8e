"""Measuring: contenders in turns, processor time, ratios, and one table."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Hashable, Mapping
from typing import NamedTuple, TypeVar

Name = TypeVar("Name", bound=Hashable)
Clock = Callable[[], float]


class Line(NamedTuple):
    """A line of the table: a measured value beside its reference, and the target."""

    what: str
    measured: str
    reference: str
    value: float  # what the target is about: most often a ratio
    lowest: float
    highest: float
    sign: str = ""  # "<=", ">=" or "" where there is no target
    target: float = 0.0

    @property
    def verdict(self) -> str:
        if not self.sign:
            return "-"
        met = self.value <= self.target if self.sign == "<=" else self.value >= self.target
        return "met" if met else "NOT MET"

    def cells(self) -> list[str]:
        """The cells of the line."""
        spread = f"{self.lowest:.3g} to {self.highest:.3g}"
        target = f"{self.sign} {self.target:.4g}" if self.sign else "-"
        return [
            self.what,
            self.measured,
            self.reference,
            f"{self.value:.3g}",
            spread,
            target,
            self.verdict,
        ]


HEAD = ["", "measured", "reference", "value", "spread", "target", ""]


def table(lines: list[Line]) -> str:
    """A Markdown table."""
    rows = [HEAD, *(line.cells() for line in lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    texts = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    texts.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(texts)


def in_turns(
    contenders: Mapping[Name, Callable[[], object]],
    rounds: int,
    clock: Clock = time.process_time,
) -> dict[Name, list[float]]:
    """The seconds of each contender in each round.

    Each plays once before the measurement, to compile and to fill caches. Other load disturbs
    neighbouring measurements alike, so ratios are taken within a round.
    """
    for play in contenders.values():
        play()
    seconds: dict[Name, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, play in contenders.items():
            start = clock()
            play()
            seconds[name].append(clock() - start)
    return seconds


def ratios(above: list[float], below: list[float]) -> tuple[float, float, float]:
    """The median ratio of the rounds, the lowest and the highest."""
    each = [a / b for a, b in zip(above, below, strict=True)]
    return statistics.median(each), min(each), max(each)
