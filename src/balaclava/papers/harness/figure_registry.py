"""The figures that can be run again, by name."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from balaclava.papers.harness.figure_run import FigureRun
from balaclava.papers.harness.figure_text import FigureText

Make: TypeAlias = Callable[[FigureRun], FigureText]  # plays, draws and keeps; returns what it found


class FigureEntry(NamedTuple):
    """A figure that can be run again."""

    name: str
    title: str
    reference: str
    make: Make


_FIGURES: dict[str, FigureEntry] = {}


def figure(name: str, title: str, reference: str) -> Callable[[Make], Make]:
    """Register a function that makes a figure."""

    def mark(make: Make) -> Make:
        _FIGURES[name] = FigureEntry(name, title, reference, make)
        return make

    return mark


def figures() -> list[FigureEntry]:
    """Every figure that can be run again."""
    package = importlib.import_module("balaclava.papers")
    for module in pkgutil.walk_packages(package.__path__, "balaclava.papers."):
        importlib.import_module(module.name)
    return list(_FIGURES.values())
