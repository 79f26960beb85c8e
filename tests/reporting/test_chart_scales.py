"""Scales and ticks of charts."""

from __future__ import annotations

from balaclava._core.number_format import tick_label
from balaclava.reporting.chart_scales import Scale, fit_scale


def test_scales() -> None:
    assert fit_scale("linear", [3.0, 12.0]) == Scale("linear", 0.0, 12.0)
    assert (
        fit_scale("linear", [-2.0, 5.0]).low == -2.0
    )  # own loss may be below that of the best arm
    assert fit_scale("log", [0.0, -1.0, 4.0, 400.0]) == Scale("log", 4.0, 400.0)
    assert fit_scale("log", [1e-30, 1.0]).low == 1e-6
    assert fit_scale("log", []).low < fit_scale("log", []).high
    assert fit_scale("linear", [0.0]).high == 1.0
    assert fit_scale("log", [5.0]).ticks()
    for scale in (Scale("linear", 0, 70), Scale("log", 3, 8), Scale("log", 0.02, 9e5)):
        ticks = scale.ticks()
        assert 3 <= len(ticks) <= 9
        assert all(scale.low <= tick <= scale.high for tick in ticks)
        assert len({tick_label(tick) for tick in ticks}) == len(ticks)
    assert Scale("log", 1, 100)(0.0) == 0.0  # at the edge, not at minus infinity
