"""Docstrings in sections, and those sections as Markdown."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field
from typing import Any

from formulas import FormulaError, display_lines, tex

_HEADING = re.compile(
    r"(Privacy|Parameters|Args|Returns|Raises|Example|Examples|References|See Also|Proof):$"
)


@dataclass
class Docstring:
    """The first line, the text after it, and the named sections."""

    title: str
    text: str = ""
    sections: dict[str, str] = field(default_factory=dict)


def parse(thing: Any) -> Docstring:
    """Read `thing.__doc__`; sections are headings with an indented body."""
    title, _, rest = (inspect.getdoc(thing) or "").partition("\n")
    parts = Docstring(title)
    name, bodies = "", {"": []}  # type: tuple[str, dict[str, list[str]]]
    for line in rest.split("\n"):
        heading = _HEADING.match(line)
        if heading:
            name = heading[1].removesuffix("s") if heading[1] == "Examples" else heading[1]
            bodies[name] = []
        elif name and line and not line.startswith(" "):
            name = ""
            bodies[name].append(line)
        else:
            bodies[name].append(line)
    parts.text = _tidy(bodies.pop(""))
    parts.sections = {name: _tidy(body) for name, body in bodies.items()}
    return parts


def _tidy(lines: list[str]) -> str:
    return inspect.cleandoc("\n" + "\n".join(lines))


def markdown(text: str) -> str:
    """Docstring text as Markdown: examples fenced, indented formulas set as such, `::` gone."""
    return "\n\n".join(map(_paragraph, re.split(r"\n{2,}", text)))


def _paragraph(text: str) -> str:
    if text.lstrip().startswith(">>>"):
        return f"```pycon\n{inspect.cleandoc(text)}\n```"
    if text.startswith("    "):
        try:
            lines = [tex(line) for line in display_lines(text)]
        except FormulaError:
            return text
        return "\n\n".join(f"$$\n{line}\n$$" for line in lines)
    return re.sub(r"::$", ":", text)


def definitions(text: str) -> dict[str, str]:
    """A `Parameters` or `Args` section by name."""
    meanings: dict[str, str] = {}
    name = ""
    for line in text.split("\n"):
        start = re.match(r"(\w+): (.*)", line)
        if start:
            name = start[1]
            meanings[name] = start[2]
        elif name:
            meanings[name] += " " + line.strip()
    return meanings
