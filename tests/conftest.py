"""What holds for all tests, and the layer of each."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
from hypothesis import settings

import balaclava as bl
from tests.browser import NO_BROWSER

# The same examples in every run, and no limit on time: a test passes or fails by the code alone.
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.load_profile("fixed")

TESTS = Path(__file__).parent
LAYERS = ("unit", "conformance", "oracle", "statistical", "crash", "browser")
FOLDERS = {"testing": "conformance", "oracles": "oracle"}  # elsewhere a mark says it
FAMILIES = {entry.name: entry.policy.__module__.split(".")[2] for entry in bl.list_policies()}


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test without the mark of a layer has that of its folder, or is a unit test.

    What one test has compiled serves the others of the same process. So `--dist loadgroup` gives
    one process all tests of a family of policies, or of a file, but for those marked otherwise.
    """
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(family_of(item) or str(item.path)))
        if not any(item.get_closest_marker(layer) for layer in LAYERS):
            inside = item.path.is_relative_to(TESTS)
            folder = item.path.relative_to(TESTS).parts[0] if inside else ""
            item.add_marker(FOLDERS.get(folder, "unit"))


def pytest_collection_finish() -> None:
    """Thousands of tests live as long as the process: no collection need look at them again."""
    gc.freeze()


def family_of(item: pytest.Item) -> str | None:
    """The family of the policy that a test is about: by a parameter of it, or by its folder."""
    callspec = getattr(item, "callspec", None)
    values = callspec.params.values() if callspec is not None else ()
    names = [getattr(value, "name", value) for value in values]
    policies = [name for name in names if isinstance(name, str) and name in FAMILIES]
    if policies:
        return FAMILIES[policies[0]]
    return next((part for part in item.path.parts if part in FAMILIES.values()), None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was left out for want of a browser, in one line."""
    skipped = terminalreporter.stats.get("skipped", [])
    left_out = sum(NO_BROWSER in str(report.longrepr) for report in skipped)
    if left_out:
        terminalreporter.write_line(
            f"left out: {left_out} browser tests, since {NO_BROWSER}; install it (on Debian and "
            "Ubuntu: apt-get install chromium) and run again",
            yellow=True,
        )
