"""What is left out where there is no browser is said, and where one is demanded it fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEST = """
from tests.browser import needs_browser, open_browser

@needs_browser
def test_one() -> None:
    with open_browser():
        pass
"""


@pytest.mark.parametrize(
    ("demanded", "status", "words"),
    [("", 0, "left out: 1 browser tests"), ("1", 1, "no chromium is installed")],
)
def test_without_a_browser(tmp_path: Path, demanded: str, status: int, words: str) -> None:
    (tmp_path / "test_one.py").write_text(TEST)
    plugin = ("-p", "no:cacheprovider", "-p", "tests.conftest", "-W", "ignore")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugin, "-c", os.devnull, "test_one.py"],
        cwd=tmp_path,
        env={
            **{**os.environ, "PATH": str(tmp_path), "BALACLAVA_DEMAND_BROWSER": demanded},
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == status, done.stdout[-2000:]
    assert words in done.stdout


def test_a_browser_is_demanded_where_changes_land() -> None:
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if "make test" in line] == [
        "BALACLAVA_DEMAND_BROWSER=1 make test"
    ]
