"""The figures that can be reproduced, by name."""

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from balaclava.papers.harness.figure_run import FigureRun, FigureText, RunSize

_TEST_SIZE = RunSize(600, 2)  # seconds, with every policy; shows nothing
MakeFigure: TypeAlias = Callable[[FigureRun], FigureText]


class Paper(NamedTuple):
    """A paper: where it appeared, and how its figures are simulated.

    The sizes are by purpose ("proved", "calibrated", ...), then by scale: see `by_scale`.
    """

    reference: str
    seed: int  # of every simulation
    sizes: Mapping[str, Mapping[str, RunSize]] = {}


def by_scale(quick: RunSize, paper: RunSize, tiny: RunSize = _TEST_SIZE) -> dict[str, RunSize]:
    """Sizes by scale: "quick" takes minutes, "paper" is the paper's own, "tiny" is for tests."""
    return {"quick": quick, "paper": paper, "tiny": tiny}


class FigureEntry(NamedTuple):
    name: str
    title: str
    reference: str
    make: MakeFigure


_FIGURES: dict[str, FigureEntry] = {}


def figure(name: str, title: str, paper: Paper) -> Callable[[MakeFigure], MakeFigure]:
    """Register a function that simulates and draws a figure, and returns its text."""

    def register(make: MakeFigure) -> MakeFigure:
        _FIGURES[name] = FigureEntry(name, title, paper.reference, make)
        return make

    return register


def figures() -> list[FigureEntry]:
    package = importlib.import_module("balaclava.papers")
    for module in pkgutil.walk_packages(package.__path__, "balaclava.papers."):
        importlib.import_module(module.name)
    return list(_FIGURES.values())
