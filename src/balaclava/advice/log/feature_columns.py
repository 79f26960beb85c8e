"""Feature columns of a log: read as numbers, and scaled to rows that policies take."""

from typing import Any, NamedTuple, Self

import numpy as np

from balaclava.errors import ParameterError
from balaclava.logs.numerals import read_numbers
from balaclava.logs.reader import as_labels

_MAX_CATEGORIES = 12  # words in a column, each but one a feature; more rarely pay; a guess
_SCALED_LENGTH_QUANTILE = 0.95  # of the lengths of rows; the 5 % of longer rows are shortened


class FeatureColumns(NamedTuple):
    """Features of each row, known before its decision."""

    names: tuple[str, ...]
    table: np.ndarray  # [row, feature]

    def select(self, rows: np.ndarray) -> Self:
        """The features of some rows, given as a mask."""
        return self._replace(table=self.table[rows])


class FeatureScaling(NamedTuple):
    """Scaling of features to rows of length at most 1, an intercept first: (1, u) / sqrt 2.

    u = (feature - centre) / (spread * length), shortened to length 1 if it is longer. Fitting these
    numbers to the log costs no privacy, because features are public.
    """

    names: tuple[str, ...]
    centres: np.ndarray
    spreads: np.ndarray
    length: float

    def rows(self, table: np.ndarray) -> np.ndarray:
        """The scaled rows, as policies take them.

        >>> scaling = FeatureScaling(("age",), np.array([40.0]), np.array([10.0]), 2.0)
        >>> scaling.rows(np.array([[40.0], [50.0], [90.0]])).round(3).tolist()
        [[0.707, 0.0], [0.707, 0.354], [0.707, 0.707]]
        """
        scaled = (table - self.centres) / (self.spreads * self.length)
        scaled /= np.maximum(np.linalg.norm(scaled, axis=1, keepdims=True), 1.0)
        return np.hstack([np.ones((len(table), 1)), scaled]) / np.sqrt(2.0)

    def to_dict(self) -> dict[str, Any]:
        pairs = zip(self.names, self.centres.tolist(), self.spreads.tolist(), strict=True)
        features = {name: {"centre": centre, "spread": spread} for name, centre, spread in pairs}
        return {"features": features, "length": self.length}


def fit_scaling(features: FeatureColumns) -> FeatureScaling:
    """Centre and scale the columns, and find a length that 95 % of the rows do not exceed."""
    centres, spreads = features.table.mean(axis=0), features.table.std(axis=0)
    spreads = np.where(spreads > 0, spreads, 1.0)
    lengths = np.linalg.norm((features.table - centres) / spreads, axis=1)
    length = float(np.quantile(lengths, _SCALED_LENGTH_QUANTILE)) or 1.0
    return FeatureScaling(features.names, centres, spreads, length)


def read_features(source: str, columns: dict[str, Any], **read_as: Any) -> FeatureColumns:
    """Read columns of numbers, and columns of words as one 0/1 feature per word but one.

    `read_as` are the options of `read_numbers`.
    """
    names: list[str] = []
    parts: list[np.ndarray] = []
    for column, cells in columns.items():
        where = f"{source}: column {column!r}"
        try:
            numbers, _ = read_numbers(where, cells, **read_as)
            names.append(column)
            parts.append(numbers[:, None])
        except ParameterError as error:
            labels, codes = as_labels(where, cells)
            if not 2 <= len(labels) <= _MAX_CATEGORIES:
                raise ParameterError(
                    f"{error}; or give a column of 2 to {_MAX_CATEGORIES} different words"
                ) from None
            words = labels.to_pylist()
            names += [f"{column}={word}" for word in words[1:]]
            parts.append((codes[:, None] == np.arange(1, len(words))).astype(np.float64))
    return FeatureColumns(tuple(names), np.hstack(parts))
