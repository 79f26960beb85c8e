"""Fixtures for tests of pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from balaclava.reporting.report_page import write_page
from tests.reporting.invented_results import invent, some_policies


@pytest.fixture
def page(tmp_path: Path) -> Path:
    invent(some_policies()).save(tmp_path / "some.parquet")
    return write_page(tmp_path / "some.parquet", tmp_path / "some.html")
