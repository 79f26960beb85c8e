"""A name that goes away says so, to the place that calls it, once."""

from __future__ import annotations

import warnings

import pytest

from balaclava._core.deprecation import deprecated, warn_deprecated
from balaclava.errors import BalaclavaDeprecationWarning


@deprecated(since="0.3", instead="bl.new_name")
def old_name(value: int, *, extra: int = 0) -> int:
    """What it does."""
    return value + extra


def renamed(*, new: int = 0, old: int | None = None) -> int:
    """A function of which one argument goes away."""
    if old is not None:
        warn_deprecated("renamed(old=...)", since="1.9", instead="new")
        new = old
    return new


def test_it_works_as_before_and_warns_the_caller() -> None:
    with pytest.warns(BalaclavaDeprecationWarning) as caught:
        assert old_name(1, extra=2) == 3
    (warning,) = caught
    assert str(warning.message) == (
        "old_name is deprecated since 0.3 and goes away in 0.5; use bl.new_name"
    )
    assert warning.filename == __file__
    assert issubclass(BalaclavaDeprecationWarning, DeprecationWarning)
    assert (old_name.__name__, old_name.__doc__) == ("old_name", "What it does.")


def test_an_argument_may_go_away_too() -> None:
    with pytest.warns(BalaclavaDeprecationWarning, match=r"in 1\.11; use new") as caught:
        assert renamed(old=3) == 3
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert renamed(new=2) == 2


def test_once_for_each_place_that_calls() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            old_name(1)
        old_name(2)
    assert len(caught) == 2
    assert len({warning.lineno for warning in caught}) == 2
