"""Final regret against delta and epsilon."""

from __future__ import annotations

from pathlib import Path

import balaclava as bl
from tests.papers.wang2024.saved_files import check_files


def test_curves_against_delta(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    made = bl.reproduce(
        "wang2024-fig6",
        scale="tiny",
        out=tmp_path,
        progress=lambda played, total: told.append((played, total)),
    )
    check_files(made, ["parquet", "parquet", "png", "txt"])
    assert sorted(made.results) == ["a", "b"]
    assert bl.load(tmp_path / "wang2024-fig6a.parquet").labels == made.results["a"].labels
    assert made.results["a"].labels[0] == "dp-ftpl-gauss δ=0.9"
    # One count for both panels: 2 policies, 3 values, 2 repetitions of 300 rounds each.
    assert told[-1] == (7200, 7200)
    assert [played for played, _ in told] == sorted(played for played, _ in told)
    assert "smaller than the paper's: 2 repetitions of 300 rounds" in " ".join(made.text.split())
    again = bl.reproduce("wang2024-fig6", scale="tiny", out=tmp_path / "again", workers=1)
    assert again.text == made.text
