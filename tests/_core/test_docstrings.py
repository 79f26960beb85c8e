"""Docstrings of registered classes: every declared parameter, and papers in full."""

from __future__ import annotations

import inspect
import re
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import balaclava as bl
from balaclava._core.docstrings import (
    bibliography,
    bibtex,
    checked,
    cited,
    complete_docstring,
)
from balaclava.authoring import Delta, Epsilon, RadiusScale
from balaclava.environments.base import ENVIRONMENTS
from balaclava.policies.base import POLICIES

CLASSES = [cls for each in (POLICIES, ENVIRONMENTS) for cls in each.classes().values()]
OURS = [cls for cls in CLASSES if cls.__module__.startswith("balaclava.")]


class Documented(bl.Policy):
    """One line.

    The rule.

    Parameters:
        radius_scale: multiplies the bonus
            twice.

    Example:
        >>> bl.policy("ucb1", arms=2).arms
        2

    See Also:
        ucb1
    """

    name = "documented"
    reference = "after Wang, Zhu 2024"
    radius_scale: RadiusScale = 1.0
    epsilon: Epsilon


def test_a_docstring_is_completed_once() -> None:
    complete_docstring(Documented)
    complete_docstring(Documented)
    assert (
        Documented.__doc__
        == """One line.

The rule.

Parameters:
    arms: number of arms, K.
    epsilon: privacy loss.
    radius_scale: multiplies the bonus
        twice.

Example:
    >>> import balaclava as bl
    >>> bl.policy("ucb1", arms=2).arms
    2

References:
    Wang, Zhu. Optimal learning policies for differential privacy in multi-armed bandits. JMLR
    2024.

See Also:
    ucb1"""
    )


@pytest.mark.parametrize("cls", OURS, ids=lambda cls: cls.name)
def test_related_names_and_cited_papers_exist(cls: type[bl.Policy]) -> None:
    names = {each.name for each in CLASSES}
    assert cls.see_also
    assert set(cls.see_also.split(", ")) <= names - {cls.name}
    assert set(filter(None, cls.cites.split("; "))) <= set(bibliography())


@pytest.mark.parametrize("cls", OURS, ids=lambda cls: cls.name)
def test_every_parameter_and_paper_is_described(cls: type[bl.Policy]) -> None:
    text = inspect.getdoc(cls) or ""
    for each in cls.parameter_list():
        assert re.search(rf"^    {each.name}: \S", text, re.MULTILINE), each.name
    assert ("\nReferences:\n" in text) == bool(cls.reference)
    sections = re.findall(
        r"^(Privacy|Parameters|Example|References|See Also):$", text, re.MULTILINE
    )
    order = ("Privacy", "Parameters", "Example", "References", "See Also")
    assert sections == [section for section in order if section in sections]
    ends = re.search(rf"^({'|'.join(order[1:])}):$", text, re.MULTILINE)
    assert ends is not None
    stray = [line for line in text[ends.start() :].splitlines() if line[:1].strip()]
    assert [line.rstrip(":") for line in stray] == [name for name in sections if name in order[1:]]


class Shared(bl.Policy):
    """A base class.

    Privacy:
        The same for all.

    Parameters:
        epsilon: shared.
        radius_scale: overridden.
    """

    epsilon: Epsilon
    radius_scale: RadiusScale = 1.0


def test_shared_sections_stand_in_a_base_class() -> None:
    class Particular(Shared):
        """One line.

        Parameters:
            radius_scale: its own.
        """

        name = "particular"

    complete_docstring(Particular)
    assert inspect.getdoc(Particular) == (
        "One line.\n\nPrivacy:\n    The same for all.\n\nParameters:\n"
        "    arms: number of arms, K.\n    epsilon: shared.\n    radius_scale: its own."
    )


@checked
def spent(epsilon: Epsilon, *, delta: Delta | None = None, times: int = 1) -> tuple[Any, ...]:
    """One line.

    Args:
        times: how often.

    Example:
        >>> spent(1)[0]
        1.0
    """
    return epsilon, delta, times


def test_arguments_of_a_function_are_checked_and_described() -> None:
    assert inspect.getdoc(spent) == (
        "One line.\n\nArgs:\n    epsilon: privacy loss.\n"
        "    delta: probability that the privacy loss is exceeded.\n    times: how often.\n\n"
        "Raises:\n    ParameterError: if an argument is out of range.\n\n"
        "Example:\n    >>> spent(1)[0]\n    1.0"
    )
    shown = str(inspect.signature(spent))
    assert shown.startswith("(epsilon: float, *, delta: ")
    assert spent(np.int64(2), delta=0.5, times=3) == (2.0, 0.5, 3)
    assert spent(1, delta=None) == (1.0, None, 1)
    with pytest.raises(bl.errors.ParameterError, match=r"^delta = 2 is not allowed"):
        spent(1, delta=2)
    with pytest.raises(TypeError, match=r"^spent.* 'delt'"):
        spent(1, delt=2)  # type: ignore[call-arg]


def test_every_paper_has_a_bibtex_entry() -> None:
    """The same authors, title and year as in the bibliography, with given names."""
    keys = set()
    for paper, full in bibliography().items():
        entry = bibtex(paper)
        assert entry.count("{") == entry.count("}")
        keys.add(entry.partition(",")[0])
        fields = dict(re.findall(r"^  (\w+) = \{(.*)\},$", entry, re.MULTILINE))
        names, _, year = paper.rpartition(" ")
        assert fields["year"] == year[:4]
        authors = [author.partition(", ") for author in plain(fields["author"]).split(" and ")]
        assert ", ".join(family for family, _, _ in authors) == plain(names)
        if "title" in fields:
            assert full.startswith(f"{names}. {fields['title'][1:-1]}. ")
            assert all(given for _, _, given in authors)
    assert len(keys) == len(bibliography())
    assert "Al Marjani, Aymen and Basu" in bibtex("Azize, Jourdan, Al Marjani, Basu 2024")


def plain(names: str) -> str:
    """Names without accents, which BibTeX writes as in {\\'e}."""
    letters = re.sub(r"\{\\\W(\w)\}", r"\1", names)
    return unicodedata.normalize("NFKD", letters).encode("ascii", "ignore").decode()


def test_the_citation_file_has_the_same_papers() -> None:
    text = (Path(__file__).parents[2] / "CITATION.cff").read_text(encoding="utf-8")
    entries = {
        re.search(r"title = \{\{(.*)\}\}", each): each for each in map(bibtex, bibliography())
    }
    titles = {found[1]: each for found, each in entries.items() if found}
    for reference in text.partition("references:")[2].split("  - type: ")[1:]:
        entry = titles[re.search(r"title: (.*)", reference)[1]]  # type: ignore[index]
        people = re.findall(r"\{family-names: (.*), given-names: (.*)\}", reference)
        assert f"author = {{{' and '.join(map(', '.join, people))}}}" in plain_entry(entry)
        for theirs, ours in (("year", "year"), ("volume", "volume"), ("start", "pages")):
            value = re.search(rf"^    {theirs}: (\d+)$", reference, re.MULTILINE)
            assert value is None or f"{ours} = {{{value[1]}" in entry


def plain_entry(entry: str) -> str:
    return "\n".join(plain(line) if "author" in line else line for line in entry.splitlines())


def test_policies_name_their_papers() -> None:
    assert cited(POLICIES.get("dp-se")) == ["Sajed, Sheffet 2019"]
