"""Reports of devices: the levels that they accept."""

from __future__ import annotations

import math

import numpy as np
import pytest

import balaclava as bl
from balaclava.errors import ParameterError
from balaclava.privacy.device_report import truncated_report


@pytest.mark.parametrize(
    "level",
    [math.nan, math.inf, 0.0, -37.25, 1e-300, 1e300, 10**5000, True, "37.25", None],
    ids=lambda level: type(level).__name__,
)
def test_a_level_that_no_report_can_keep_is_refused_and_not_repeated(level):
    policy = bl.policy(
        "ldpr-se", arms=2, epsilon=1.0, horizon=100, moment_order=2, moment_bound=1.0
    )
    for report in (
        lambda: truncated_report(1.0, level=level, epsilon=1.0),
        lambda: policy.report(1.0, level) if level is not None else policy.report(1.0),
    ):
        with pytest.raises(ParameterError, match="level") as refused:
            report()
        assert "37.25" not in str(refused.value)  # it may be a reward, given in the wrong place


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.int64, int, np.longdouble])
def test_a_level_of_any_kind_of_number_is_that_number(kind):
    """Doubling a short float would overflow. 400 draws of scale 1e5: chance of a mean beyond a
    half of the scale's 1 is below 1e-20.
    """
    reports = [truncated_report(1.0, level=kind(50_000), epsilon=1.0) for _ in range(400)]
    assert 0.5 < np.abs(reports).mean() / 1e5 < 1.5
