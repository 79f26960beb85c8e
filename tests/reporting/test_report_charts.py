"""Looks of lines."""

from __future__ import annotations

from balaclava.reporting.report_charts import LineLook


def test_fifty_policies_look_different() -> None:
    assert len({LineLook(i).css for i in range(84)}) == 84
