"""Several processes decide for one experiment, and are killed: nothing lost, nothing twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.service.conftest import postgres_process
from tests.service.kills import check_kills

pytestmark = pytest.mark.crash


def test_processes_killed_for_some_seconds(tmp_path: Path, postgres: str) -> None:
    check_kills(tmp_path, postgres, 4.0)


@pytest.mark.slow
def test_a_hundred_processes_killed(tmp_path: Path, postgres: str) -> None:
    check_kills(tmp_path, postgres, 60.0, least=100)


@pytest.mark.slow
def test_any_process_killed_for_ten_minutes(tmp_path: Path) -> None:
    with postgres_process() as database:
        check_kills(tmp_path, database.get_uri(), 600.0, database)
