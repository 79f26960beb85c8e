"""Policies: one algorithm, one file. Their classes are here by name: `policies.DPIMED`."""

from __future__ import annotations

import ast
import importlib
from functools import cache
from pathlib import Path
from typing import Any


@cache
def _homes() -> dict[str, str]:
    """The classes, and the module of each: what `__init__.pyi` imports."""
    statements = ast.parse(Path(__file__).with_suffix(".pyi").read_text("utf-8")).body
    lines = [line for line in statements if isinstance(line, ast.ImportFrom)]
    return {name.name: line.module or "" for line in lines for name in line.names}


def __getattr__(name: str) -> Any:
    """A class, imported when it is first used."""
    if name.startswith("_") or name not in _homes():
        raise AttributeError(f"module 'balaclava.policies' has no attribute {name!r}")
    value = getattr(importlib.import_module(_homes()[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(_homes())
