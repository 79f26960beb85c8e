"""A shop with a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from balaclava.service.service import Service
from tests.service.engine.test_cleanup import Shop
from tests.service.manual_service import ManualClock


@pytest.fixture
def shop(
    open_service: Callable[..., Service], database: str, monkeypatch: pytest.MonkeyPatch
) -> Shop:
    clock = ManualClock()
    monkeypatch.setattr("balaclava.service.service.Clock", lambda: clock)
    return Shop(open_service(database), clock)
