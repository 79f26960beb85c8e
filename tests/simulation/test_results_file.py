"""Results files of earlier versions: read with the numbers that were written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import balaclava as bl
from balaclava.errors import ResultsFileError

OLDER = Path(__file__).parent / "older_files"
NUMBERS = json.loads((OLDER / "numbers.json").read_text())


@pytest.mark.parametrize("name", ["results_v1", "late_v1"])
def test_a_file_of_format_1_is_read_with_its_numbers(name: str) -> None:
    results = bl.load(OLDER / f"{name}.parquet")
    assert results.labels == list(NUMBERS[name])
    for label, numbers in NUMBERS[name].items():
        assert results.regret(label).tolist() == numbers["regret"]
        assert results.pulls(label).tolist() == numbers["pulls"]


def test_a_file_of_format_1_keeps_what_else_it_says() -> None:
    results, late = (bl.load(OLDER / f"{name}.parquet") for name in ("results_v1", "late_v1"))
    np.testing.assert_equal([list(row) for row in results.winners()], NUMBERS["winners"])
    assert (results.horizon, results.seed, results.checkpoints.tolist()) == (
        *(2_000, 7),
        [500, 1_000, 1_500, 2_000],
    )
    assert results.guarantee("careful") == "ε=1 per trajectory"
    assert str(late.feedback) == "geometric delay of mean 20, 5 % lost"
    assert results.versions is not None
    assert results.versions["balaclava"] == "0.1.0"


@pytest.mark.parametrize(("schema", "advice"), [(2, "upgrade balaclava"), (0, "use the version")])
def test_another_format_is_refused_in_a_sentence(tmp_path: Path, schema: int, advice: str) -> None:
    table = pq.read_table(OLDER / "late_v1.parquet")
    said: dict[str, Any] = json.loads(table.schema.metadata[b"balaclava"])
    header = {b"balaclava": json.dumps({**said, "schema": schema}).encode()}
    pq.write_table(table.replace_schema_metadata(header), tmp_path / "other.parquet")
    with pytest.raises(
        ResultsFileError, match=rf"has format {schema}, but this version reads 1; {advice}"
    ):
        bl.load(tmp_path / "other.parquet")
