"""Complete the docstrings of policies, environments and checked functions from declarations.

An author writes what is particular to a class. Its Privacy section, and what it says about a
parameter, may stand in the docstring of a base class. Parameters that neither describes are added
with their declared meaning, the papers of `cites`, or else of `reference`, in full, from
bibliography.txt, and the names in `see_also`. An example begins with the import of the package.

The arguments of a function are declared in the same way: see `checked`.
"""

import functools
import inspect
import re
import textwrap
import typing
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from balaclava._core.declared import Declared, check, meaning

_Function = TypeVar("_Function", bound=Callable[..., Any])
# At the end of a docstring, in this order.
_FINAL_SECTIONS = ("Parameters", "Example", "References", "See Also")
_FUNCTION_SECTIONS = ("Args", "Returns", "Raises", "Example")
_IMPORT = "    >>> import balaclava as bl\n"
_PRIVACY = "\n\nPrivacy:\n"
_ENTRY = re.compile(r"\n(?=    \w)")  # of a section: a line that is not indented further


@functools.cache
def bibliography() -> dict[str, str]:
    """Papers by authors and year: "Auer, Cesa-Bianchi, Fischer 2002"."""
    lines = Path(__file__).with_name("bibliography.txt").read_text("utf-8").splitlines()
    return dict(line.split(": ", 1) for line in lines)


def cited(cls: type[Declared]) -> list[str]:
    """The papers in full that the completed docstring names, by authors and year."""
    text = " ".join((cls.__doc__ or "").split())
    return [paper for paper, entry in bibliography().items() if entry in text]


def bibtex(paper: str) -> str:
    """The entry of a paper for BibTeX, from bibliography.bib.

    >>> print(bibtex("Catoni 2012").splitlines()[1])
      author = {Catoni, Olivier},
    """
    ascii_only = unicodedata.normalize("NFKD", paper).encode("ascii", "ignore").decode()
    return _bibtex_entries()[re.sub("[^A-Za-z0-9]", "", ascii_only)]


@functools.cache
def _bibtex_entries() -> dict[str, str]:
    text = Path(__file__).with_name("bibliography.bib").read_text("ascii").strip()
    return {each[each.index("{") + 1 : each.index(",")]: each for each in text.split("\n\n")}


def complete_docstring(cls: type[Declared]) -> None:
    """Add the parameters, the paper and the related names that a docstring does not mention."""
    if cls.__doc__ is None:
        return
    text, sections = _split(_own(cls))
    if _PRIVACY not in text:
        inherited = (_split(_own(base))[0].partition(_PRIVACY) for base in cls.__mro__[1:])
        text += next((_PRIVACY + section for _, _, section in inherited if section), "")
    sections["Parameters"] = _parameters(cls)
    if _IMPORT not in sections.get("Example", _IMPORT):
        sections["Example"] = sections["Example"].replace("Example:\n", "Example:\n" + _IMPORT)
    sections["References"] = _references(cls, sections.get("References", ""))
    if names := vars(cls).get("see_also"):
        sections["See Also"] = f"See Also:\n    {names}"
    cls.__doc__ = "\n\n".join([text, *filter(None, map(sections.get, _FINAL_SECTIONS))])


def checked(function: _Function) -> _Function:
    """Check the arguments of a function as their annotations declare; complete its docstring.

    Annotations without a declared meaning are not checked.

    >>> from balaclava._core.declared import Epsilon
    >>> @checked
    ... def noise_scale(epsilon: Epsilon) -> float:
    ...     "Scale of the noise."
    ...     return 1.0 / epsilon
    >>> noise_scale(-1)
    Traceback (most recent call last):
    balaclava.errors.ParameterError: epsilon = -1 is not allowed; give a number in [1e-100, 1e+100]
    """
    signature, hints = inspect.signature(function), typing.get_type_hints(function)
    kinds = typing.get_type_hints(function, include_extras=True)
    meanings = {name: meaning(kinds[name]) for name in signature.parameters}

    @functools.wraps(function)
    def with_checks(*args: Any, **keywords: Any) -> Any:
        try:
            call = signature.bind(*args, **keywords)
        except TypeError:
            return function(*args, **keywords)  # raises it with the function's name
        for name in filter(meanings.get, call.arguments):
            call.arguments[name] = check(name, call.arguments[name], kinds[name])
        return function(*call.args, **call.kwargs)

    with_checks.__annotations__ = hints
    parameters = [each.replace(annotation=hints[n]) for n, each in signature.parameters.items()]
    with_checks.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    text, sections = _split(function.__doc__, _FUNCTION_SECTIONS)
    described = {entry.split(":")[0].strip(): entry for entry in _entries(sections.get("Args", ""))}
    entries = [described.get(name, f"    {name}: {words}.") for name, words in meanings.items()]
    sections["Args"] = "\n".join(["Args:", *entries])
    sections.setdefault("Raises", "Raises:\n    ParameterError: if an argument is out of range.")
    with_checks.__doc__ = "\n\n".join([text, *filter(None, map(sections.get, _FUNCTION_SECTIONS))])
    return typing.cast(_Function, with_checks)


def _entries(section: str) -> list[str]:
    return _ENTRY.split(section)[1:]


def _own(cls: type) -> str | None:
    return vars(cls).get("__doc__")


def _split(doc: str | None, names: Iterable[str] = _FINAL_SECTIONS) -> tuple[str, dict[str, str]]:
    """The text of a docstring, and its final sections by name."""
    text, *rest = re.split(rf"\n\n(?=(?:{'|'.join(names)}):\n)", inspect.cleandoc(doc or ""))
    return text, {part.partition(":")[0]: part for part in rest}


def _parameters(cls: type[Declared]) -> str:
    """Every parameter: required ones, other described ones, the rest."""
    described: dict[str, str] = {}
    for each in cls.__mro__:
        for entry in _entries(_split(_own(each))[1].get("Parameters", "")):
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
