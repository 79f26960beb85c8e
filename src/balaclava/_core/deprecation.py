"""Names and arguments that go away: said for two minor releases before they do.

The rule is in CONTRIBUTING.md. Python shows the warning once for each place that calls, in tests
and in programs that are run as they stand.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from balaclava.errors import BalaclavaDeprecationWarning

Function = TypeVar("Function", bound=Callable[..., Any])


def warn_deprecated(name: str, *, since: str, instead: str, depth: int = 1) -> None:
    """Say to whoever called the caller that `name` goes away; `depth` counts further calls up."""
    major, minor = (int(part) for part in since.split(".")[:2])
    warnings.warn(
        f"{name} is deprecated since {since} and goes away in {major}.{minor + 2}; use {instead}",
        BalaclavaDeprecationWarning,
        stacklevel=depth + 2,
    )


def deprecated(*, since: str, instead: str) -> Callable[[Function], Function]:
    """Mark a public function that goes away: it works as before, and warns.

    Example:
        >>> import warnings
        >>> @deprecated(since="0.2", instead="bl.simulate")
        ... def play():
        ...     return 1
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     play()
        1
        >>> print(caught[0].message)
        play is deprecated since 0.2 and goes away in 0.4; use bl.simulate
    """

    def mark(function: Function) -> Function:
        @functools.wraps(function)
        def warning(*arguments: Any, **keywords: Any) -> Any:
            warn_deprecated(function.__name__, since=since, instead=instead)
            return function(*arguments, **keywords)

        return warning  # type: ignore[return-value]

    return mark
