"""What holds for all tests, and the layer of each."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from tests.browser import NO_BROWSER

# The same examples in every run, and no limit on time: a test passes or fails by the code alone.
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.load_profile("fixed")

TESTS = Path(__file__).parent
LAYERS = ("unit", "conformance", "oracle", "statistical", "crash", "browser")
FOLDERS = {"testing": "conformance", "oracles": "oracle"}  # elsewhere a mark says it


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test without the mark of a layer has that of its folder, or is a unit test."""
    for item in items:
        if not any(item.get_closest_marker(layer) for layer in LAYERS):
            inside = item.path.is_relative_to(TESTS)
            folder = item.path.relative_to(TESTS).parts[0] if inside else ""
            item.add_marker(FOLDERS.get(folder, "unit"))


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
