"""The one reader of logs: a CSV or Parquet file with one row a decision, opened and read once.

Separator, encoding and the way numbers are written are detected, and said. Rewards are somebody's
data: an error names a row and a column, never a reward.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.parts import require_part
from balaclava.environments.numerals import FIRST_ROW, first_row, read_numbers
from balaclava.errors import ParameterError, nearest

Label = int | str

_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_MARKS = {  # the bytes that some encodings begin with
    b"\xef\xbb\xbf": "utf-8-sig",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}
_USUAL = ("utf-8", "utf-8-sig")
_HEADER_CHARACTERS = 1 << 16
_GZIP, _PARQUET, _ZIP = b"\x1f\x8b", b"PAR1", b"PK\x03\x04"


@dataclass(frozen=True)
class LoggedRewards:
    """The rewards of each arm, and what had to be detected to read them."""

    by_arm: dict[Label, np.ndarray]
    detected: tuple[str, ...]


class Columns(NamedTuple):
    """The two columns as they stand in the file, and what had to be detected."""

    arms: Any
    rewards: Any
    detected: tuple[str, ...] = ()
    commas_between_cells: bool = True


def read_log(path: str | os.PathLike[str], *, arm: str, reward: str) -> LoggedRewards:
    """The rewards of each arm in a log.

    Arms are sorted by label: by number where all labels are whole numbers, else as text.

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
    require_part("pyarrow", "reading a log")
    source = os.fspath(path)
    if arm == reward:
        raise ParameterError(f"arm and reward are both {arm!r}; give the names of two columns")
    data, packing = _contents(source)
    if data.startswith(_PARQUET):
        columns = _from_parquet(source, data, arm, reward)
    else:
        columns = _from_text(source, data, arm, reward)
    labels = _as_text(f"{source}: column {arm!r}", columns.arms)
    rewards, notation = read_numbers(
        f"{source}: column {reward!r}",
        columns.rewards,
        commas_between_cells=columns.commas_between_cells,
    )
    if rewards.size == 0:
        raise ParameterError(f"{source} has no rows; give one for each decision")
    return LoggedRewards(_split(labels, rewards), (*packing, *columns.detected, *notation))


def in_order(names: Sequence[str]) -> list[Label]:
    """The labels, sorted: as numbers if all are whole numbers, else as text."""
    if all(re.fullmatch(r"0|-?[1-9][0-9]*", name) for name in names):
        return sorted(int(name) for name in names)
    return sorted(names)


def _contents(source: str) -> tuple[bytes, tuple[str, ...]]:
    """What the file holds, unpacked."""
    try:
        data = Path(source).read_bytes()
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else "it is damaged"
        raise ParameterError(f"{source} cannot be read: {why}; check the path") from None
    packing: tuple[str, ...] = ()
    if data.startswith(_GZIP):
        try:
            data, packing = gzip.decompress(data), ("packed with gzip",)
        except (OSError, EOFError, zlib.error):
            raise ParameterError(f"{source} is damaged: gzip cannot unpack it") from None
    if data.startswith(_ZIP):
        raise ParameterError(
            f"{source} is a spreadsheet or a zip file; unpack it, or save the sheet as CSV in UTF-8"
        )
    if not data:
        raise ParameterError(f"{source} is empty; give a header and one row for each decision")
    return data, packing


def _from_parquet(source: str, data: bytes, arm: str, reward: str) -> Columns:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(pa.BufferReader(data))
        _places(source, file.schema_arrow.names, arm, reward)
        table = file.read(columns=[arm, reward])
    except (pa.ArrowException, OSError):
        raise ParameterError(f"{source} is not a well-formed Parquet file") from None
    return Columns(table.column(arm).combine_chunks(), table.column(reward).combine_chunks())


def _from_text(source: str, data: bytes, arm: str, reward: str) -> Columns:
    text, encoding = _decoded(source, data)
    separator, names = _header(text, arm, reward)
    arms, rewards = _places(source, names, arm, reward)
    table = _parsed(source, text, separator, len(names), (arms, rewards))
    detected = [] if encoding in _USUAL else [f"text in {encoding}"]
    if separator != ",":
        detected.append(f"{_SEPARATORS[separator]} between cells")
    labels, cells = (table.column(i).combine_chunks() for i in range(2))
    return Columns(labels, cells, tuple(detected), separator == ",")


def _decoded(source: str, data: bytes) -> tuple[str, str]:
    """The text, and its encoding: by its first bytes, else UTF-8, else what Windows writes."""
    marked = next((name for mark, name in _MARKS.items() if data.startswith(mark)), None)
    for encoding in (marked,) if marked else ("utf-8", "cp1252", "latin-1"):
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError:
            continue
        if "\0" not in text:
            return text, encoding
    raise ParameterError(f"{source} is not a CSV or Parquet file; save it as CSV in UTF-8")


def _header(text: str, arm: str, reward: str) -> tuple[str, list[str]]:
    """What stands between cells, and the first row: with both columns if need be, else longest."""
    beginning = text[:_HEADER_CHARACTERS]
    rows = {}
    for separator in _SEPARATORS:
        try:
            first = next(csv.reader(io.StringIO(beginning, newline=""), delimiter=separator), [])
        except csv.Error:
            continue
        rows[separator] = [cell.strip() for cell in first]
    for separator, names in rows.items():
        if arm in names and reward in names:
            return separator, names
    return max(rows.items(), key=lambda row: len(row[1]), default=(",", []))


def _places(source: str, names: Sequence[str], arm: str, reward: str) -> tuple[int, int]:
    """Which columns are meant. Without a header the first rewards would stand there: say none."""
    for parameter, column in (("arm", arm), ("reward", reward)):
        if column not in names:
            hint = (
                "its first row does not name columns"
                if any(re.match(r"\W*\d|(true|false|yes|no|na|nan)$", name, re.I) for name in names)
                else nearest(column, names)
            )
            raise ParameterError(f"{source} has no column {column!r} ({parameter}); {hint}")
        if list(names).count(column) > 1:
            raise ParameterError(
                f"{source} has more than one column {column!r} ({parameter}); rename all but one"
            )
    return list(names).index(arm), list(names).index(reward)


def _parsed(source: str, text: str, separator: str, width: int, places: tuple[int, int]) -> Any:
    """Two columns of text, as a table."""
    import pyarrow as pa
    from pyarrow import csv as arrow

    broken: list[int | None] = []

    def refuse_row(row: Any) -> str:
        broken.append(row.number)
        return "error"

    names = [str(i) for i in range(width)]
    columns = [names[i] for i in places]
    try:
        return arrow.read_csv(
            pa.BufferReader(text.encode()),
            # One thread, so that a broken row has its number.
            arrow.ReadOptions(use_threads=False, column_names=names, skip_rows_after_names=1),
            arrow.ParseOptions(
                delimiter=separator, newlines_in_values=True, invalid_row_handler=refuse_row
            ),
            arrow.ConvertOptions(
                include_columns=columns,
                column_types=dict.fromkeys(columns, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
            ),
        )
    except pa.ArrowException:
        # pyarrow's own message would quote the row.
        line = f" at line {broken[0]}" if broken and broken[0] else ""
        raise ParameterError(
            f"{source} is not a well-formed CSV file{line}; give as many cells in each row as in "
            "the first"
        ) from None


def _as_text(where: str, column: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        labels = pc.utf8_trim_whitespace(column.cast(pa.string()))
    except pa.ArrowException:
        raise ParameterError(f"{where} holds {column.type}; give whole numbers or text") from None
    empty = pc.fill_null(pc.equal(labels, ""), True)
    if pc.any(empty).as_py():
        raise ParameterError(
            f"{where} is empty in row {first_row(empty)} {FIRST_ROW}; give every row an arm"
        )
    return labels


def _split(labels: Any, rewards: np.ndarray) -> dict[Label, np.ndarray]:
    """The rewards of each arm, in the order of the file."""
    encoded = labels.dictionary_encode()
    codes = encoded.indices.to_numpy()
    names = encoded.dictionary.to_pylist()
    ends = np.cumsum(np.bincount(codes))[:-1]
    parts = dict(zip(names, np.split(rewards[np.argsort(codes, kind="stable")], ends), strict=True))
    for part in parts.values():
        part.flags.writeable = False
    return {label: parts[str(label)] for label in in_order(names)}
