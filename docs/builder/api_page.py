"""The page of the public names: signatures and docstrings, by what they are for."""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator
from typing import Any, ForwardRef

import balaclava as bl
from docstrings import definitions, markdown, parse

GROUPS = {
    "Policies and agents": (
        *("policy", "list_policies", "Policy", "PolicyName", "privatise", "Agent", "Decision"),
        *("Estimates", "Status", "restore"),
    ),
    "Environments and simulation": (
        *("environment", "list_environments", "Environment", "EnvironmentName", "simulate"),
        *("simulate_shards", "Delay", "Results", "load", "Interrupted"),
    ),
    "Privacy": ("Guarantee", "audit", "AuditReport"),
    "Advice": (
        *("recommend", "Recommendation", "recommend_experts", "ExpertsRecommendation"),
        *("calibrate", "Calibration"),
    ),
    "Experiments and papers": ("open_sweep", "reproduce", "Reproduction"),
}


def api_page() -> str:
    """Everything in `bl.__all__`; names that no group has, and modules, at the end."""
    return "\n\n".join(_parts())


def _parts() -> Iterator[str]:
    yield "# API"
    yield "Everything in `import balaclava as bl`."
    grouped = [name for names in GROUPS.values() for name in names]
    modules = [n for n in bl.__all__ if isinstance(getattr(bl, n), types.ModuleType)]
    others = [name for name in bl.__all__ if name not in grouped and name not in modules]
    for title, names in (GROUPS | {"For authors, and more": tuple(others)}).items():
        yield f"## {title}"
        for name in names:
            yield from entry(f"bl.{name}", getattr(bl, name))
    for name in modules:
        module = getattr(bl, name)
        yield f"## bl.{name}"
        yield f":::{{py:module}} bl.{name}\n:::"
        yield parse(module).title
        yield from contents(f"bl.{name}", module)


def contents(label: str, module: types.ModuleType) -> Iterator[str]:
    """What a module offers: its own functions in full, anything else with a line."""
    own = [
        name
        for name, thing in vars(module).items()
        if isinstance(thing, type) and thing.__module__ == module.__name__
    ]
    lines = []
    for name in getattr(module, "__all__", own):
        thing = getattr(module, name)
        if isinstance(thing, types.FunctionType) and thing.__module__.startswith(
            "balaclava.theory"
        ):
            yield from entry(f"{label}.{name}", thing)
            continue
        words = parse(thing).title if isinstance(thing, type | types.FunctionType) else ""
        for declared in getattr(thing, "__metadata__", ())[:1]:  # a kind of parameter
            words = declared.meaning
        lines.append(f"- `{name}`: {words}" if words else f"- `{name}`")
    yield "\n".join(lines)


def entry(label: str, thing: Any, colons: int = 5) -> Iterator[str]:
    """A name as an object that the index and the search know."""
    kind = (
        "class" if isinstance(thing, type) else "function" if inspect.isroutine(thing) else "data"
    )
    if colons < 5:
        kind = "property" if isinstance(thing, property) else "method"
    fence = ":" * colons
    doc = parse(thing)
    yield f"{fence}{{py:{kind}}} {signature(label, thing)}"
    yield f"{doc.title}\n\n{markdown(doc.text)}"
    for name, text in doc.sections.items():
        if name in ("Args", "Parameters", "Raises"):
            field = "raises" if name == "Raises" else "param"
            fields = definitions(text).items()
            yield "\n".join(f":{field} {key}: {words}" for key, words in fields)
        else:
            yield f"**{name}**\n\n{markdown(text)}"
    if isinstance(thing, type):
        for name, member in vars(thing).items():
            public = not name.startswith("_") and inspect.getdoc(member)
            if public and isinstance(member, types.FunctionType | property):
                yield from entry(name, member, colons - 1)
    yield fence


def signature(label: str, thing: Any) -> str:
    """How a thing is called."""
    if not (inspect.isroutine(thing) or isinstance(thing, type)):
        return label
    try:
        shape = inspect.signature(thing)
    except (TypeError, ValueError):
        return label
    arguments, starred = [], False
    for parameter in shape.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            starred = True
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            arguments.append("*")
            starred = True
        stars = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(parameter.kind.name, "")
        words = stars + parameter.name
        if parameter.annotation is not parameter.empty:
            words += f": {annotation_text(parameter.annotation)}"
        if parameter.default is not parameter.empty:
            default = repr(parameter.default)
            words += f" = {'...' if default.startswith('<') else default}"
        arguments.append(words)
    result = ""
    if not isinstance(thing, type) and shape.return_annotation is not shape.empty:
        result = f" -> {annotation_text(shape.return_annotation)}"
    return f"{label}({', '.join(arguments)}){result}"


def annotation_text(annotation: Any) -> str:
    if isinstance(annotation, ForwardRef):
        return annotation.__forward_arg__
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
