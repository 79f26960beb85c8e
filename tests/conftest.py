"""What holds for all tests, and the layer of each."""

from __future__ import annotations

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


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test without the mark of a layer has that of its folder, or is a unit test.

    Tests of one policy, and the others of one file, share what one of them has compiled: with
    `--dist loadgroup` one process runs them all.
    """
    policies = {entry.name for entry in bl.list_policies()}
    for item in items:
        item.add_marker(pytest.mark.xdist_group(policy_of(item, policies) or str(item.path)))
        if not any(item.get_closest_marker(layer) for layer in LAYERS):
            inside = item.path.is_relative_to(TESTS)
            folder = item.path.relative_to(TESTS).parts[0] if inside else ""
            item.add_marker(FOLDERS.get(folder, "unit"))


def policy_of(item: pytest.Item, policies: set[str]) -> str | None:
    """The policy that a test is about: a parameter of it, or the file whose example it is."""
    values = item.callspec.params.values() if hasattr(item, "callspec") else [item.path.stem]
    names = [getattr(value, "name", value) for value in values]
    names = [name.replace("_", "-") for name in names if isinstance(name, str)]
    return next((name for name in names if name in policies), None)


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
