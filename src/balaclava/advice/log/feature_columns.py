"""Columns of features in a log: read as numbers, and brought to rows that policies take."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from balaclava.errors import ParameterError
from balaclava.logs.numerals import read_numbers
from balaclava.logs.reader import as_labels

FEATURE = "feature "  # before the number of a column, where a reader names what it is for
_MOST_WORDS = 12  # different ones in a column
_LONG = 0.95  # quantile of the lengths of rows that becomes length 1


class FeatureColumns(NamedTuple):
    """What is known of each row before its decision."""

    names: tuple[str, ...]
    table: np.ndarray  # [row, feature]

    def of(self, rows: np.ndarray) -> FeatureColumns:
        """Those of some rows."""
        return self._replace(table=self.table[rows])


class FeatureScaling(NamedTuple):
    """How features become rows of length 1 at most, an intercept first: (1, u) / sqrt 2.

    u holds (feature - centre) / spread, divided by `length`, and is shortened to length 1 where it
    is longer. Features are public: these numbers may be taken from the log.
    """

    names: tuple[str, ...]
    centres: np.ndarray
    spreads: np.ndarray
    length: float

    def rows(self, table: np.ndarray) -> np.ndarray:
        """The rows that a policy is given.

        >>> scaling = Scaling(("age",), np.array([40.0]), np.array([10.0]), 2.0)
        >>> scaling.rows(np.array([[40.0], [50.0], [90.0]])).round(3).tolist()
        [[0.707, 0.0], [0.707, 0.354], [0.707, 0.707]]
        """
        scaled = (table - self.centres) / (self.spreads * self.length)
        scaled /= np.maximum(np.linalg.norm(scaled, axis=1, keepdims=True), 1.0)
        return np.hstack([np.ones((len(table), 1)), scaled]) / np.sqrt(2.0)

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        pairs = zip(self.names, self.centres.tolist(), self.spreads.tolist(), strict=True)
        features = {name: {"centre": centre, "spread": spread} for name, centre, spread in pairs}
        return {"features": features, "length": self.length}


def fit_scaling(features: FeatureColumns) -> FeatureScaling:
    """Columns centred and scaled, and a length that 95 % of the rows do not exceed."""
    centres, spreads = features.table.mean(axis=0), features.table.std(axis=0)
    spreads = np.where(spreads > 0, spreads, 1.0)
    lengths = np.linalg.norm((features.table - centres) / spreads, axis=1)
    return FeatureScaling(
        features.names, centres, spreads, float(np.quantile(lengths, _LONG)) or 1.0
    )


def read_features(
    path: str, columns: dict[str, Any], *, commas_between_cells: bool, decimal: str | None
) -> FeatureColumns:
    """Columns of numbers as they are; columns of a few words as one feature for each but one."""
    names: list[str] = []
    parts: list[np.ndarray] = []
    for column, cells in columns.items():
        where = f"{path}: column {column!r}"
        try:
            numbers, _ = read_numbers(
                where, cells, commas_between_cells=commas_between_cells, decimal=decimal
            )
            names.append(column)
            parts.append(numbers[:, None])
        except ParameterError as error:
            labels, codes = as_labels(where, cells)
            if not 2 <= len(labels) <= _MOST_WORDS:
                raise ParameterError(
                    f"{error}; or give a column of 2 to {_MOST_WORDS} different words"
                ) from None
            words = labels.to_pylist()
            names += [f"{column}={word}" for word in words[1:]]
            parts.append((codes[:, None] == np.arange(1, len(words))).astype(np.float64))
    return FeatureColumns(tuple(names), np.hstack(parts))
