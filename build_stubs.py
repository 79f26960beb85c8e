"""Write the stubs that tell type checkers the names and parameters of policies and environments.

    python build_stubs.py

The build and `make lint` run it; git ignores the stubs. With them the use of
`bl.policy("dp-imed", epsilom=1.0)` is an error before anything runs. Names of your own, and names
that are only known at run time, are taken with any parameters.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from pathlib import Path
from typing import Any

import numpy as np

from balaclava._core.declared import Declared, is_required, split
from balaclava._core.registry import Registry
from balaclava.environments.base import ENVIRONMENTS, Environment
from balaclava.policies.base import POLICIES, Policy

PACKAGE = Path(__file__).parent / "src" / "balaclava"
# What a shipped name with wrong parameters returns: nothing takes it, and its name says what is
# wrong. No type excludes the shipped names from `str`, and for a call that fits no signature mypy
# prints all of them, or the one whose erasure fits, which is never that of the name.
REFUSED = "WrongParameters"
REFUSED_STUB = f"""
_T = TypeVar("_T")

class {REFUSED}(Generic[_T]): ...

"""
STUB_HEADER = '"""{}; written by build_stubs.py."""\n\n'


def own(registry: Registry[Any]) -> dict[str, type[Declared]]:
    """The classes of this package, by name."""
    classes = sorted(registry.classes().items())
    return {name: cls for name, cls in classes if cls.__module__.startswith("balaclava.")}


def kind_of(annotation: Any) -> str:
    """The type of a parameter, as it is written."""
    base, _ = split(annotation)
    origin, inner = typing.get_origin(base), typing.get_args(base)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(kind_of(each) for each in inner)
    if base is type(None):
        return "None"
    if origin is typing.Literal:
        words = ", ".join(f'"{word}"' for word in inner)
        return f"Literal[{words}]"
    if origin is tuple:
        return f"tuple[{', '.join('...' if e is ... else kind_of(e) for e in inner)}]"
    if base is np.ndarray:
        return "ArrayLike"
    if origin is dict or base is object:
        return "Mapping[str, Any]" if origin is dict else "object"
    if issubclass(base, Policy):
        return "Policy"
    if issubclass(base, Environment):  # may be given by what it is made of
        table = "" if base is Environment else " | ArrayLike"
        return f"Environment | Mapping[str, Any]{table}"
    return str(base.__name__)


def parameters_of(cls: type[Declared]) -> list[str]:
    """Every parameter of a policy or an environment, those without a default first."""
    entries = []
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        kind = kind_of(cls.annotations[field.name])
        if issubclass(cls, Policy) and field.name in ("arms", "features"):  # by number, or name
            kind = "int | Sequence[str]"
        if field.name == "path":
            kind = f"PathLike[str] | {kind}"
        entries.append((not is_required(field), f"{field.name}: {kind}"))
    if issubclass(cls, Policy) and "horizon" not in cls.annotations:  # taken and ignored
        entries.append((True, "horizon: int"))
    return [text + (" = ..." if optional else "") for optional, text in sorted(entries, key=_first)]


def what_it_takes(name: str, cls: type[Declared]) -> str:
    """The names of its parameters, in words."""
    texts = parameters_of(cls)
    needed = [text.partition(":")[0] for text in texts if not text.endswith("...")]
    optional = [text.partition(":")[0] for text in texts if text.endswith("...")]
    words = f"{name} takes {', '.join(needed) or 'nothing'}"
    return f"{words}; optional: {', '.join(optional)}" if optional else words


def _first(entry: tuple[bool, str]) -> bool:
    return entry[0]


def overloads(kind: type[Declared], registry: Registry[Any]) -> str:
    """Signatures of `bl.policy` or `bl.environment`: of names, of wrong calls, of other names."""
    base, function = kind.__name__, kind.__name__.lower()
    lines = []
    for name, cls in own(registry).items():
        parameters = "".join(f"    {text},\n" for text in parameters_of(cls))
        lines.append(
            f'@overload\ndef {function}(\n    name: Literal["{name}"],\n    /,\n    *,\n'
            f"{parameters}) -> {cls.__name__}: ...\n"
        )
    for name, cls in own(registry).items():
        wrong = what_it_takes(name, cls)
        lines.append(
            f'@overload\n@deprecated("{wrong}")\ndef {function}(\n    name: Literal["{name}"], /, '
            f'**parameters: Any\n) -> {REFUSED}[Literal["{wrong}"]]: ...\n'
        )
    lines.append(f"@overload\ndef {function}(name: str, /, **parameters: Any) -> {base}: ...\n")
    return "".join(lines)


def factories_stub() -> str:
    """`bl.policy` and `bl.environment`."""
    classes = [*own(POLICIES).values(), *own(ENVIRONMENTS).values()]
    imports = {f"from {cls.__module__} import {cls.__name__}\n" for cls in classes}
    for kind in (Policy, Environment):
        imports.add(f"from {kind.__module__} import {kind.__name__}\n")
    return "".join(
        (
            STUB_HEADER.format("`bl.policy` and `bl.environment`, one signature for each name"),
            "from collections.abc import Mapping, Sequence\nfrom os import PathLike\n",
            "from typing import Any, Generic, Literal, TypeVar, overload\n\n",
            "from numpy.typing import ArrayLike\nfrom typing_extensions import deprecated\n\n",
            *sorted(imports),
            REFUSED_STUB,
            overloads(Policy, POLICIES),
            overloads(Environment, ENVIRONMENTS),
        )
    )


def policies_stub() -> str:
    """The classes, for `from balaclava.policies import DPIMED`."""
    classes = sorted(own(POLICIES).values(), key=lambda cls: (cls.__module__, cls.__name__))
    lines = [f"from {c.__module__} import {c.__name__} as {c.__name__}\n" for c in classes]
    return STUB_HEADER.format("The classes of the policies") + "".join(lines)


STUBS = {"policies/__init__.pyi": policies_stub, "factories.pyi": factories_stub}


def write() -> None:
    """Write all stubs into the package."""
    for name, make in STUBS.items():
        (PACKAGE / name).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    write()
