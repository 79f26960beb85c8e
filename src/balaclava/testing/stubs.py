"""Write the stubs that tell editors and type checkers the names and parameters of all policies.

    python -m balaclava.testing.stubs          # writes policies/{__init__,typed}.pyi
    python -m balaclava.testing.stubs --check  # says whether they are true

`bl.policy("dp-imed", epsilom=1.0)` and `bl.policy("dp-imedd")` are then errors before anything
runs. A name that is only known when the program runs is given as `bl.PolicyName(name)`.
"""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from pathlib import Path
from typing import Any

import numpy as np

from balaclava._core.declared import is_required, split
from balaclava.policies.base import REGISTRY, Policy

FOLDER = Path(__file__).parents[1] / "policies"
LONGEST = 100  # characters in a line
HEADER = '"""{}; written by balaclava.testing.stubs."""\n\n'


def own_policies() -> dict[str, type[Policy]]:
    """The policies of this package, by name."""
    classes = sorted(REGISTRY.classes().items())
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
    if isinstance(base, type) and issubclass(base, Policy):
        return "Policy"
    return str(base.__name__)


def parameters_of(cls: type[Policy]) -> list[str]:
    """Every parameter of a policy, those without a default first."""
    entries = []
    for field in dataclasses.fields(cls):
        kind = kind_of(cls.annotations[field.name])
        if field.name in ("arms", "features"):  # by number, or by name
            kind = "int | Sequence[str]"
        entries.append((not is_required(field), f"{field.name}: {kind}"))
    if "horizon" not in cls.annotations:  # taken and ignored
        entries.append((True, "horizon: int"))
    return [text + (" = ..." if optional else "") for optional, text in sorted(entries, key=_first)]


def _first(entry: tuple[bool, str]) -> bool:
    return entry[0]


def typed_stub() -> str:
    """Overloads of `policy`: one for each name."""
    classes = own_policies()
    lines = [
        HEADER.format("`bl.policy`, one signature for each name"),
        "from collections.abc import Sequence\n",
        "from typing import Any, Literal, overload\n\n",
        *sorted(
            {f"from {cls.__module__} import {cls.__name__}\n" for cls in classes.values()}
            | {"from balaclava.policies.base import Policy, PolicyName\n"}
        ),
        "\n",
    ]
    for name, cls in classes.items():
        parameters = "".join(f"    {text},\n" for text in parameters_of(cls))
        lines.append(
            f'@overload\ndef policy(\n    name: Literal["{name}"],\n    /,\n    *,\n{parameters}'
            f") -> {cls.__name__}: ...\n"
        )
    lines.append("@overload\ndef policy(name: PolicyName, /, **parameters: Any) -> Policy: ...\n")
    return "".join(lines)


def package_stub() -> str:
    """The classes, for `from balaclava.policies import DPIMED`."""
    lines = [HEADER.format("The classes of the policies")]
    for cls in _by_module(own_policies().values()):
        line = f"from {cls.__module__} import {cls.__name__} as {cls.__name__}\n"
        if len(line) > LONGEST + 1:
            beginning, _, end = line.strip().partition(" import ")
            line = f"{beginning} import (\n    {end},\n)\n"
        lines.append(line)
    return "".join(lines)


def _by_module(classes: Any) -> list[type[Policy]]:
    return sorted(classes, key=lambda cls: (cls.__module__, cls.__name__.lower()))


STUBS = {"__init__.pyi": package_stub, "typed.pyi": typed_stub}


def main() -> None:
    """Write them, or say that one is out of date."""
    for name, make in STUBS.items():
        path = FOLDER / name
        if "--check" not in sys.argv:
            path.write_text(make(), encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != make():
            raise SystemExit(f"{path} is out of date: run python -m balaclava.testing.stubs")


if __name__ == "__main__":
    main()
