"""What is left out where there is no browser is said, and where one is demanded it fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEST = "tests/service/test_report_js.py::test_nothing_leaves_where_nothing_can_be_kept"


@pytest.mark.parametrize(
    ("demanded", "status", "words"),
    [("", 0, "left out: 1 browser tests"), ("1", 1, "no chromium is installed")],
)
def test_without_a_browser(tmp_path: Path, demanded: str, status: int, words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", TEST],
        cwd=ROOT,
        env={**os.environ, "PATH": str(tmp_path), "BALACLAVA_DEMAND_BROWSER": demanded},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == status, done.stdout[-2000:]
    assert words in done.stdout
    (line,) = [line for line in (ROOT / ".ci/run").read_text().splitlines() if "make test" in line]
    assert line == "BALACLAVA_DEMAND_BROWSER=1 make test"
