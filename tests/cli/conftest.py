"""What tests of commands share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import EXPERIMENT


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "small.toml"
    path.write_text(EXPERIMENT)
    return path
