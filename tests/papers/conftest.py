"""Fixtures for tests of figures."""

from __future__ import annotations

from typing import Any

import pytest

from balaclava.papers import tao2022, wu2023
from balaclava.papers.harness import figure_calibration


@pytest.fixture
def fixed_scales(monkeypatch: pytest.MonkeyPatch) -> None:
    """No search: that of calibrate is tested with calibrate."""

    def given(
        questions: dict[Any, figure_calibration.ScaleQuestion], *_: object
    ) -> dict[Any, float]:
        fixed = {"dpr-ucb": 0.01, "dpr-se": 0.02}
        return {name: fixed.get(asked.policy.name, 0.125) for name, asked in questions.items()}

    monkeypatch.setattr(tao2022, "find_scales", given)
    monkeypatch.setattr(wu2023, "find_scales", given)
