"""What a figure found: the points under each heading, of which every page is made."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import NamedTuple

SHOWS, SEES, WHY = "What the paper shows", "What we see", "Where they differ, and why"
_WIDTH = 100


class FigureText(NamedTuple):
    """A heading, and sections: under each title its points, a paragraph each.

    >>> print(Findings("fig1: a line", {SHOWS: ["It rises."], SEES: ["It falls.", "Slowly."]}))
    fig1: a line
    <BLANKLINE>
    What the paper shows
    - It rises.
    <BLANKLINE>
    What we see
    - It falls.
    - Slowly.
    """

    heading: str
    sections: Mapping[str, Sequence[str]]

    def __str__(self) -> str:
        lines = [self.heading]
        for title, points in self.sections.items():
            lines += ["", title, *map(_item, points)]
        return "\n".join(lines)


def _item(point: str) -> str:
    return textwrap.fill(
        point, _WIDTH, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False
    )
