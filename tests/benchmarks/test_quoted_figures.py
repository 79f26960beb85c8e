"""Every figure that README quotes has a command."""

from __future__ import annotations

import re

import quoted_figures

README = " ".join((quoted_figures.ROOT / "README.md").read_text(encoding="utf-8").split())
# Numbers that are not measured: versions, settings of a measurement, ranges and levels.
GIVEN = (
    *("Python 3.11 to 3.14", "9 arms with means from .3 to .7", "losses in [0, 1]", "ε=1", "ε=0.1"),
    *("probability at most 1 - confidence", "Four arms of .55, .60, .65 and .75", "and 95 %:"),
    *("four arms, 20,000 rounds", "three times less protected: epsilon 3", "ε=3"),
)


def test_each_number_of_the_readme_has_a_command_or_is_a_setting() -> None:
    text = re.sub(r"```.*?```|\]\([^)]*\)", "", README)
    quotes = [each for row in quoted_figures.readme_figures() for each in row.figures.split("; ")]
    for quote in quotes:
        assert quote in README, quote
    for words in sorted([*quotes, *GIVEN], key=len, reverse=True):
        text = text.replace(words, "")
    prose = re.sub(r"`[^`]*`", "", text)
    assert quoted_figures.NUMBER.findall(prose) == []


def test_figures_have_a_command_and_a_commit() -> None:
    for row in quoted_figures.readme_figures():
        assert row.command
        assert re.fullmatch(r"[0-9a-f]{8}", row.commit)


def test_pages_are_listed_by_their_commands() -> None:
    rows = list(quoted_figures.page_figures(quoted_figures.ROOT / "docs" / "figures.md"))
    assert len(rows) > 20
    late = next(row for row in rows if "delays.py --table targets" in row.command)
    assert re.fullmatch(r"\d+ numbers", late.figures)
    assert re.fullmatch(r"[0-9a-f]{8}", late.commit)
