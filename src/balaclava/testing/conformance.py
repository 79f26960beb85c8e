"""How a check fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class ConformanceError(AssertionError):
    """Something does not keep the contract."""


def require(condition: bool, message: str) -> None:
    """Fail with `message` unless the condition holds."""
    if not condition:
        raise ConformanceError(message)


def require_error(expected: type[Exception], action: Callable[[], Any], what: str) -> Exception:
    """Fail unless `action` raises `expected`."""
    try:
        action()
    except expected as error:
        return error
    except Exception as error:
        raise ConformanceError(
            f"{what}: raised {type(error).__name__} instead of {expected.__name__}"
        ) from error
    raise ConformanceError(f"{what}: accepted instead of refused with {expected.__name__}")
