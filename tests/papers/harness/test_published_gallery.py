"""The gallery of the documentation: complete, and never silently older than the policies."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from balaclava.papers.harness.figure_registry import FigureEntry, figures
from balaclava.papers.harness.gallery import figure_digest
from balaclava.papers.harness.gallery_pages import read_page

PAGE = Path(__file__).parents[3] / "docs" / "gallery.md"
OLDER = "Older than the code: "
ENTRIES = figures()


def parts() -> dict[str, str]:
    found = re.findall(
        r"^### (\S+)\n\n(.*?)(?=^##|\Z)", PAGE.read_text(encoding="utf-8"), re.M | re.S
    )
    return dict(found)


def test_every_figure_is_on_the_page_with_its_scale() -> None:
    published, text = read_page(PAGE), parts()
    assert list(published) == list(text)
    assert set(text) == {entry.name for entry in ENTRIES}
    for entry in ENTRIES:
        one = published[entry.name]
        words = entry.full_scale if one.scale == "paper" else f"{one.scale} scale"
        assert f". {words[:1].upper()}{words[1:]}.\n" in text[entry.name]
        for picture in one.pictures:
            assert f"]({PAGE.stem}/{picture})" in text[entry.name]
            assert (PAGE.with_suffix("") / picture).is_file()
        assert one.key or OLDER in text[entry.name]


def check_digest(entry: FigureEntry) -> None:
    key = read_page(PAGE)[entry.name].key
    if key and figure_digest(entry) != key:
        pytest.fail(
            f"the policies of {entry.name} decide differently from when it was made: run `make "
            f"gallery`, or say so on the page ('{OLDER}...') and empty its key in pictures.json"
        )


@pytest.mark.parametrize("name", ["wang2024-fig3", "wang2024-fig6"])
def test_a_published_figure_is_of_the_present_policies(name: str) -> None:
    check_digest(next(entry for entry in ENTRIES if entry.name == name))


@pytest.mark.slow
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_published_figures_are_of_the_present_policies(entry: FigureEntry) -> None:
    check_digest(entry)
