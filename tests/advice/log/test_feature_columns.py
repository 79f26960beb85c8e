"""Feature columns as numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from balaclava.advice.log.feature_columns import fit_scaling, read_features
from balaclava.advice.log.log_reading import summarise_log
from balaclava.errors import ParameterError


def test_features_as_they_come() -> None:
    columns = {"age": pa.array(["40", "50", "60"]), "device": pa.array(["phone", "pc", "phone"])}
    features = read_features("log.csv", columns, commas_between_cells=True, decimal=None)
    assert features.names == ("age", "device=pc")
    assert features.table.tolist() == [[40, 0], [50, 1], [60, 0]]
    lengths = np.linalg.norm(fit_scaling(features).rows(1e6 * features.table), axis=1)
    assert (lengths <= 1 + 1e-12).all()
    names = {"name": pa.array([f"person {i}" for i in range(20)])}
    with pytest.raises(ParameterError, match="or give a column of 2 to 12 different words"):
        read_features("log.csv", names, commas_between_cells=True, decimal=None)


def test_rows_left_out_are_left_out_of_features(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    rows = [f"{arm},{i % 2},{i}" for arm in "ab" for i in range(30)] + ["c,1,7", "a,1,NA"]
    path.write_text("\n".join(["text,came,age", *rows]) + "\n")
    from balaclava.logs.cells import ReadOptions

    log = summarise_log(
        path, arm="text", reward="came", features=["age"], min_rows=20,
        read_options=ReadOptions(drop_missing=True),
    )  # fmt: skip
    assert log.features is not None
    assert log.features.table[:, 0].tolist() == [*range(30), *range(30)]
