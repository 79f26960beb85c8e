"""The figures that can be reproduced, by name."""

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from balaclava.papers.harness.figure_run import PAPERS_SCALE, FigureRun, FigureText, RunSize

_TEST_SIZE = RunSize(600, 2)  # seconds, with every policy; shows nothing
MakeFigure: TypeAlias = Callable[[FigureRun], FigureText]


class Paper(NamedTuple):
    """A paper: where it appeared, and how its figures are simulated.

    The sizes are by purpose ("proved", "calibrated", ...), then by scale: see `by_scale`.
    """

    reference: str
    seed: int  # of every simulation
    sizes: Mapping[str, Mapping[str, RunSize]] = {}
    full_scale: str = PAPERS_SCALE  # what the scale "paper" is


def by_scale(quick: RunSize, paper: RunSize, tiny: RunSize = _TEST_SIZE) -> dict[str, RunSize]:
    """Sizes by scale: "quick" takes minutes, "paper" is the full scale, "tiny" is for tests."""
    return {"quick": quick, "paper": paper, "tiny": tiny}


class FigureEntry(NamedTuple):
    name: str
    title: str
    reference: str
    make: MakeFigure
    full_scale: str


_FIGURES: dict[str, FigureEntry] = {}


def figure(
    name: str, title: str, paper: Paper, full_scale: str = ""
) -> Callable[[MakeFigure], MakeFigure]:
    """Register a function that simulates and draws a figure, and returns its text.

    `full_scale` is that of the paper unless this figure has another.
    """

    def register(make: MakeFigure) -> MakeFigure:
        _FIGURES[name] = FigureEntry(
            name, title, paper.reference, make, full_scale or paper.full_scale
        )
        return make

    return register


def figures() -> list[FigureEntry]:
    package = importlib.import_module("balaclava.papers")
    for module in pkgutil.walk_packages(package.__path__, "balaclava.papers."):
        importlib.import_module(module.name)
    return list(_FIGURES.values())
