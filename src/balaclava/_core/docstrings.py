"""Complete the docstrings of policies and environments from what they declare.

An author writes what is particular to a class. Its Privacy section, and what it says about a
parameter, may stand in the docstring of a base class. Parameters that neither describes are added
with their declared meaning, the papers of `cites`, or else of `reference`, in full, from
bibliography.txt, and the names in `see_also`. An example begins with the import of the package.
"""

import functools
import inspect
import re
import textwrap
from pathlib import Path

from balaclava._core.declared import Declared

_FINAL_SECTIONS = ("Parameters", "Example", "References", "See Also")  # at the end, in this order
_IMPORT = "    >>> import balaclava as bl\n"
_PRIVACY = "\n\nPrivacy:\n"
_BEGINNING = re.compile(rf"\n\n(?=(?:{'|'.join(_FINAL_SECTIONS)}):\n)")
_ENTRY = re.compile(r"\n(?=    \w)")  # of a section: a line that is not indented further


@functools.cache
def bibliography() -> dict[str, str]:
    """Papers by authors and year: "Auer, Cesa-Bianchi, Fischer 2002"."""
    lines = Path(__file__).with_name("bibliography.txt").read_text("utf-8").splitlines()
    return dict(line.split(": ", 1) for line in lines)


def complete_docstring(cls: type[Declared]) -> None:
    """Add the parameters, the paper and the related names that a docstring does not mention."""
    if cls.__doc__ is None:
        return
    text, sections = _split(cls)
    if _PRIVACY not in text:
        inherited = (_split(base)[0].partition(_PRIVACY) for base in cls.__mro__[1:])
        text += next((_PRIVACY + section for _, _, section in inherited if section), "")
    sections["Parameters"] = _parameters(cls)
    if _IMPORT not in sections.get("Example", _IMPORT):
        sections["Example"] = sections["Example"].replace("Example:\n", "Example:\n" + _IMPORT)
    sections["References"] = _references(cls, sections.get("References", ""))
    if names := vars(cls).get("see_also"):
        sections["See Also"] = f"See Also:\n    {names}"
    cls.__doc__ = "\n\n".join([text, *filter(None, map(sections.get, _FINAL_SECTIONS))])


def _split(cls: type) -> tuple[str, dict[str, str]]:
    """The text of a docstring, and its final sections by name."""
    text, *rest = _BEGINNING.split(inspect.cleandoc(vars(cls).get("__doc__") or ""))
    return text, {part.partition(":")[0]: part for part in rest}


def _parameters(cls: type[Declared]) -> str:
    """Every parameter: required ones, other described ones, the rest."""
    described: dict[str, str] = {}
    for each in cls.__mro__:
        for entry in _ENTRY.split(_split(each)[1].get("Parameters", ""))[1:]:
            described.setdefault(entry.split(":")[0].strip(), entry)
    entries = {
        each.name: described.get(each.name, f"    {each.name}: {each.meaning}.")
        for each in cls.parameter_list()
        if each.name in described or each.meaning
    }
    required = [each.name for each in cls.parameter_list() if each.required]
    names = dict.fromkeys(name for name in (*required, *described, *entries) if name in entries)
    return "\n".join(["Parameters:", *map(entries.__getitem__, names)]) if names else ""


def _references(cls: type[Declared], section: str) -> str:
    """The papers that the docstring names, or `cites`, or `reference`; known ones in full."""
    known = bibliography()
    named = [line.strip() for line in section.split("\n")[1:]] or vars(cls).get("cites", "").split(
        "; "
    )
    named = list(filter(None, named)) or [paper for paper in known if paper in cls.reference]
    papers = [textwrap.fill(known.get(line, line), 92, break_on_hyphens=False) for line in named]
    return "References:\n" + textwrap.indent("\n".join(papers), "    ") if named else ""
