"""Write the stubs that tell type checkers the names and parameters of policies and environments.

    python -m balaclava.testing.stubs          # writes them, see STUBS
    python -m balaclava.testing.stubs --check  # says whether they are true

`bl.policy("dp-imed", epsilom=1.0)` and `bl.environment("bernouli")` are then errors before anything
runs. A name that is only known when the program runs is given as `bl.PolicyName(name)` or
`bl.EnvironmentName(name)`.
"""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from pathlib import Path
from typing import Any

import numpy as np

from balaclava._core.declared import Declared, is_required, split
from balaclava._core.registry import Registry
from balaclava.environments.base import REGISTRY as ENVIRONMENTS
from balaclava.environments.base import Environment
from balaclava.policies.base import REGISTRY, Policy

PACKAGE = Path(__file__).parents[1]
LONGEST = 100  # characters in a line
HEADER = '"""{}; written by balaclava.testing.stubs."""\n\n'


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


def _first(entry: tuple[bool, str]) -> bool:
    return entry[0]


def typed_stub(kind: type[Declared], registry: Registry[Any], imports: str) -> str:
    """Overloads of `bl.policy` or `bl.environment`: one for each name."""
    classes, base = own(registry), kind.__name__
    function = base.lower()
    lines = [
        HEADER.format(f"`bl.{function}`, one signature for each name"),
        imports,
        *sorted(
            {f"from {cls.__module__} import {cls.__name__}\n" for cls in classes.values()}
            | {f"from {kind.__module__} import {base}, {base}Name\n"}
        ),
        "\n",
    ]
    for name, cls in classes.items():
        parameters = "".join(f"    {text},\n" for text in parameters_of(cls))
        lines.append(
            f'@overload\ndef {function}(\n    name: Literal["{name}"],\n    /,\n    *,\n'
            f"{parameters}) -> {cls.__name__}: ...\n"
        )
    lines.append(
        f"@overload\ndef {function}(name: {base}Name, /, **parameters: Any) -> {base}: ...\n"
    )
    return "".join(lines)


def policy_stub() -> str:
    """`bl.policy`."""
    imports = "from collections.abc import Sequence\nfrom typing import Any, Literal, overload\n\n"
    return typed_stub(Policy, REGISTRY, imports)


def environment_stub() -> str:
    """`bl.environment`."""
    imports = (
        "from collections.abc import Mapping\nfrom os import PathLike\n"
        "from typing import Any, Literal, overload\n\nfrom numpy.typing import ArrayLike\n\n"
    )
    return typed_stub(Environment, ENVIRONMENTS, imports)


def package_stub() -> str:
    """The classes, for `from balaclava.policies import DPIMED`."""
    lines = [HEADER.format("The classes of the policies")]
    for cls in _by_module(own(REGISTRY).values()):
        line = f"from {cls.__module__} import {cls.__name__} as {cls.__name__}\n"
        if len(line) > LONGEST + 1:
            beginning, _, end = line.strip().partition(" import ")
            line = f"{beginning} import (\n    {end},\n)\n"
        lines.append(line)
    return "".join(lines)


def _by_module(classes: Any) -> list[type[Declared]]:
    return sorted(classes, key=lambda cls: (cls.__module__, cls.__name__.lower()))


STUBS = {
    "policies/__init__.pyi": package_stub,
    "policies/typed.pyi": policy_stub,
    "environments/typed.pyi": environment_stub,
}


def main() -> None:
    """Write them, or say that one is out of date."""
    for name, make in STUBS.items():
        path = PACKAGE / name
        if "--check" not in sys.argv:
            path.write_text(make(), encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != make():
            raise SystemExit(f"{path} is out of date: run python -m balaclava.testing.stubs")


if __name__ == "__main__":
    main()
