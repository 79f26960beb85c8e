"""Policies: one algorithm, one file. Their classes are here by name: `policies.DPIMED`."""

from typing import Any


def _classes() -> dict[str, Any]:
    from balaclava.policies.base import POLICIES

    registered = POLICIES.classes().values()
    return {cls.__name__: cls for cls in registered if cls.__module__.startswith(__name__)}


def __getattr__(name: str) -> Any:
    """Look up a policy's class; the first lookup imports all policies."""
    classes = _classes() if name[0].isupper() else {}  # modules have lower-case names
    if name not in classes:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return classes[name]


def __dir__() -> list[str]:
    return sorted(_classes())
