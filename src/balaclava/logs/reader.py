"""The reader of logs: a CSV or Parquet file with one row per decision, read once.

Separator, encoding and notation of numbers are detected and reported. Rewards are confidential: an
error names a row and a column, never a reward.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from balaclava._core.extras import require_extra
from balaclava.errors import ParameterError
from balaclava.logs.cells import Columns, ReadOptions, read_columns
from balaclava.logs.numerals import missing, read_numbers, refuse_rows, to_array

Label = int | str
_NO_REWARD = "if that is no purchase, give --missing 0; if it is unknown, --drop-missing"
_LABEL_ROWS = "give every row a label, or drop such rows with --drop-missing"


@dataclass(frozen=True)
class LoggedRewards:
    """The rewards of each arm, and the detected format of the file."""

    by_arm: dict[Label, np.ndarray]
    detected: tuple[str, ...]
    kind: str = "CSV"
    dropped: int = 0  # rows with a missing value
    # The same rows in the order of the file: arm number, reward, and further columns.
    arms: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    rewards: np.ndarray = field(default_factory=lambda: np.empty(0))
    others: dict[str, Any] = field(default_factory=dict)
    commas_between_cells: bool = True

    def with_arms(self, chosen: np.ndarray) -> "LoggedRewards":
        """The rows of some arms, given as a mask over all arms; `others` stays whole."""
        rows = chosen[self.arms]
        return replace(
            self,
            by_arm={
                label: each for i, (label, each) in enumerate(self.by_arm.items()) if chosen[i]
            },
            arms=(np.cumsum(chosen) - 1)[self.arms[rows]],
            rewards=self.rewards[rows],
        )


def read_log(
    path: str | os.PathLike[str],
    *,
    arm: str,
    reward: str,
    others: Mapping[str, str] | None = None,
    read_options: ReadOptions | None = None,
) -> LoggedRewards:
    """Read the rewards of each arm in a log.

    Arms are sorted by label: as numbers if all labels are whole numbers, else as text. `others`
    names further columns, as {purpose: name of the column}. The path "-" is standard input.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile() as file:
        ...     _ = file.write("Seite;gewählt\\nb;0,5\\na;1\\nb;1,5\\n".encode("latin-1"))
        ...     file.flush()
        ...     log = read_log(file.name, arm="Seite", reward="gewählt")
        >>> {arm: rewards.tolist() for arm, rewards in log.by_arm.items()}
        {'a': [1.0], 'b': [0.5, 1.5]}
        >>> log.detected
        ('text in cp1252', 'semicolons between cells', 'decimal commas')
    """
    source, options = os.fspath(path), (read_options or ReadOptions()).checked()
    wanted = {"arm": arm, "reward": reward, **(others or {})}
    columns, dropped = read_rows(source, wanted, options)
    rewards, notation = read_rewards(kept_rows(source, dropped), columns, reward, options)
    return group_rewards(source, arm, columns, rewards, notation, dropped)


def read_rows(source: str, wanted: Mapping[str, str], options: ReadOptions) -> tuple[Columns, int]:
    """The wanted columns, and how many rows were dropped because they lack a value."""
    require_extra("pyarrow", "reading a log")
    columns = read_columns(source, wanted, options)
    columns, dropped = _without_missing(columns, options) if options.drop_missing else (columns, 0)
    if dropped and not len(next(iter(columns.cells.values()))):
        raise ParameterError(
            f"{source}: each of its {dropped:,} rows lacks a value in one of the columns "
            f"{', '.join(map(repr, wanted.values()))}, so all were dropped; check these columns"
        )
    return columns, dropped


def kept_rows(source: str, dropped: int) -> str:
    """How errors name a file whose rows they count without those that were dropped."""
    return f"{source} without the {dropped:,} dropped" if dropped else source


def group_rewards(
    source: str,
    arm: str,
    columns: Columns,
    rewards: np.ndarray,
    notation: Sequence[str],
    dropped: int,
) -> LoggedRewards:
    """The rewards by arm; `rewards` has the rewards of the rows of `columns`."""
    names, codes = as_labels(f"{source}: column {arm!r}", columns.cells["arm"])
    if rewards.size == 0:
        raise ParameterError(f"{source} has no rows; give one for each decision")
    by_arm, codes = _split(names, codes, rewards)
    return LoggedRewards(
        by_arm,
        (*columns.detected, *notation),
        columns.kind,
        dropped,
        codes,
        rewards,
        {name: cells for name, cells in columns.cells.items() if name not in ("arm", "reward")},
        columns.commas_between_cells,
    )


def read_rewards(
    source: str, columns: Columns, reward: str, options: ReadOptions
) -> tuple[np.ndarray, list[str]]:
    """The rewards as numbers, and their notation; `reward` is the name of their column."""
    cells, value = columns.cells["reward"], options.missing
    empty = np.zeros(len(cells), bool) if value is None else missing(cells)
    numbers, notation = read_numbers(
        f"{source}: column {reward!r}",
        _filled(cells, empty) if empty.any() else cells,
        commas_between_cells=columns.commas_between_cells,
        decimal=options.decimal,
        if_empty=_NO_REWARD,
    )
    if value is not None and empty.any():
        numbers = np.where(empty, value, numbers)
        notation = [*notation, f"{int(empty.sum()):,} empty rewards as {value:g}"]
    return numbers, notation


def _filled(cells: Any, empty: np.ndarray) -> Any:
    """The cells with the first one that is not empty in place of the empty ones."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if empty.all():
        return pa.array(np.zeros(len(cells)))
    return pc.if_else(pa.array(empty), cells[int(np.argmin(empty))], cells)


def sorted_labels(names: Sequence[str]) -> list[Label]:
    """Sort labels: as numbers if all are whole numbers, else as text."""
    if all(re.fullmatch(r"0|-?[1-9][0-9]*", name) for name in names):
        return sorted(int(name) for name in names)
    return sorted(names)


def _without_missing(columns: Columns, options: ReadOptions) -> tuple[Columns, int]:
    """The rows without missing values, and the number of rows dropped."""
    import pyarrow as pa

    # An arm may be called NA: a label is missing only if it is empty.
    labels = ("arm", "person", "by")
    gone = [
        missing(cells, words=name not in labels)
        for name, cells in columns.cells.items()
        if name != "reward" or options.missing is None
    ]
    keep = ~np.logical_or.reduce(gone)
    mask = pa.array(keep)
    cells = {name: column.filter(mask) for name, column in columns.cells.items()}
    return columns._replace(cells=cells), int((~keep).sum())


def as_labels(where: str, column: Any) -> tuple[Any, np.ndarray]:
    """The different labels of a column, and the number of each row's label."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        rows = column.cast(pa.string()).dictionary_encode()
    except pa.ArrowException:
        raise ParameterError(f"{where} holds {column.type}; give whole numbers or text") from None
    refuse_rows(where, rows.is_null(), "is empty", _LABEL_ROWS)
    # Each label is trimmed once, not once per row.
    labels = pc.utf8_trim_whitespace(rows.dictionary).dictionary_encode()
    codes = to_array(labels.indices)[to_array(rows.indices)]
    empty = to_array(pc.utf8_length(labels.dictionary)) == 0
    refuse_rows(where, empty[codes], "is empty", _LABEL_ROWS)
    return labels.dictionary, codes


def _split(
    labels: Any, numbers: np.ndarray, rewards: np.ndarray
) -> tuple[dict[Label, np.ndarray], np.ndarray]:
    """The rewards of each arm in the order of the file, and the number of each row's arm."""
    names = labels.to_pylist()
    ordered = sorted_labels(names)
    place = {str(label): i for i, label in enumerate(ordered)}
    codes = np.array([place[name] for name in names])[numbers]
    ends = np.cumsum(np.bincount(codes))[:-1]
    keys = codes.astype(np.uint16) if len(names) < 1 << 16 else codes  # short keys sort faster
    parts = np.split(rewards[np.argsort(keys, kind="stable")], ends)
    for part in parts:
        part.flags.writeable = False
    return dict(zip(ordered, parts, strict=True)), codes
