"""A log file as columns of cells: CSV or Parquet, compressed or not, in any encoding."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import math
import os
import re
import sys
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from balaclava._core.extras import require_extra
from balaclava.errors import ParameterError, nearest

PIPE = "-"  # the path of standard input
_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", " ": "spaces"}
_SEPARATOR_NAMES = dict(tab="\t", comma=",", semicolon=";", bar="|", space=" ") | {"\\t": "\t"}
_DETECTED_SEPARATORS = ",;\t|"
_BYTE_ORDER_MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_USUAL_ENCODINGS = ("utf-8", "utf-8-sig")  # not worth mentioning
_HEADER_CHARACTERS = 1 << 16  # searched for the header; one row rarely has more
_EXCEL_SEPARATOR_LINE = re.compile(r"sep=([,;|\t])\r?\n")
# Magic numbers of file formats.
_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1"
_ZIP, _OLD_EXCEL = b"PK\x03\x04", b"\xd0\xcf\x11\xe0"
_HOW_TO_EXPORT = (
    "in Excel choose File, Save As, CSV UTF-8; in LibreOffice File, Save As, Text CSV; or run "
    "libreoffice --headless --convert-to csv FILE"
)


class ReadOptions(NamedTuple):
    """How to read a file; None detects."""

    sep: str | None = None
    encoding: str | None = None
    decimal: str | None = None
    drop_missing: bool = False
    missing: float | None = None  # the reward of a row without one

    def checked(self) -> ReadOptions:
        """Check the options, and replace names of separators by characters."""
        sep = self.sep if self.sep is None else _SEPARATOR_NAMES.get(self.sep.lower(), self.sep)
        if sep is not None and (len(sep) != 1 or not sep.isascii() or sep in '"\n\r'):
            raise ParameterError(
                f"sep = {self.sep!r} is not allowed; give one character such as ';', or tab"
            )
        if self.encoding is not None:
            try:
                codecs.lookup(self.encoding)
            except LookupError:
                raise ParameterError(
                    f"encoding = {self.encoding!r} is not known; give one such as utf-8, latin-1, "
                    "cp1252 or utf-16"
                ) from None
        if self.missing is not None and not math.isfinite(self.missing):
            raise ParameterError(f"missing = {self.missing:g} is not finite; give one such as 0")
        if self.decimal not in (None, ",", "."):
            raise ParameterError(f"decimal = {self.decimal!r} is not allowed; give ',' or '.'")
        return self._replace(sep=sep)


class Columns(NamedTuple):
    """Columns of a file as text or typed cells, and the detected format."""

    cells: dict[str, Any]  # by purpose
    kind: str  # of file: "CSV" or "Parquet"
    detected: tuple[str, ...] = ()
    commas_between_cells: bool = True


def read_columns(source: str, wanted: Mapping[str, str], options: ReadOptions) -> Columns:
    """Read the wanted columns, given as {purpose: name of the column}."""
    require_extra("pyarrow", "reading a log")
    by_name: dict[str, str] = {}
    for parameter, column in wanted.items():
        if column in by_name:
            both = f"{by_name[column]} and {parameter}"
            raise ParameterError(f"{both} are both {column!r}; give the names of two columns")
        by_name[column] = parameter
    data, packing = _contents(source)
    label = "the pipe" if source == PIPE else source
    if data.startswith(_PARQUET):
        columns = _from_parquet(label, data, wanted)
    else:
        columns = _from_text(label, data, wanted, options)
    return columns._replace(detected=(*packing, *columns.detected))


def _contents(source: str) -> tuple[bytes, tuple[str, ...]]:
    """The content of the file or the pipe, decompressed."""
    try:
        data = sys.stdin.buffer.read() if source == PIPE else Path(source).read_bytes()
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else "the file is damaged"
        raise ParameterError(f"{source} cannot be read: {why}; check the path") from None
    packing: tuple[str, ...] = ()
    if data.startswith(_GZIP):
        try:
            data, packing = gzip.decompress(data), ("packed with gzip",)
        except (OSError, EOFError, zlib.error):
            why = "is damaged: gzip cannot unpack it; copy it again"
            raise ParameterError(f"{source} {why}") from None
    if data.startswith(_OLD_EXCEL) or (data.startswith(_ZIP) and _is_workbook(data)):
        raise ParameterError(f"{source} is a spreadsheet; save the sheet as CSV: {_HOW_TO_EXPORT}")
    if data.startswith(_ZIP):
        raise ParameterError(f"{source} is a zip file; unpack it and give the CSV file inside")
    if not data:
        raise ParameterError(f"{source} is empty; give a header and one row for each decision")
    return data, packing


def _is_workbook(data: bytes) -> bool:
    beginning = data[:4000]
    return any(mark in beginning for mark in (b"[Content_Types].xml", b"xl/", b"opendocument"))


def _from_parquet(source: str, data: bytes, wanted: Mapping[str, str]) -> Columns:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(pa.BufferReader(data))
        _positions(source, file.schema_arrow.names, wanted)
        table = file.read(columns=list(wanted.values()))
    except (pa.ArrowException, OSError):
        raise ParameterError(f"{source} is not a well-formed Parquet file") from None
    cells = {name: table.column(column).combine_chunks() for name, column in wanted.items()}
    return Columns(cells, "Parquet")


def _from_text(
    source: str, data: bytes, wanted: Mapping[str, str], options: ReadOptions
) -> Columns:
    text, encoding = _decoded(source, data, options.encoding)
    mark = _EXCEL_SEPARATOR_LINE.match(text)
    text = text[mark.end() :] if mark else text
    separator, names = _header(text, wanted, options.sep or (mark[1] if mark else None))
    places = _positions(source, names, wanted)
    table = _parsed(source, text, separator, len(names), places)
    detected = [] if encoding in _USUAL_ENCODINGS else [f"text in {encoding}"]
    if separator != ",":
        detected.append(f"{_SEPARATORS.get(separator, repr(separator))} between cells")
    cells = {name: table.column(str(place)).combine_chunks() for name, place in places.items()}
    return Columns(cells, "CSV", tuple(detected), separator == ",")


def _decoded(source: str, data: bytes, encoding: str | None) -> tuple[str, str]:
    """The text and its encoding: by its byte order mark, else UTF-8, else that of Windows."""
    marked = next((name for mark, name in _BYTE_ORDER_MARKS.items() if data.startswith(mark)), None)
    likely = (marked,) if marked else ("utf-8", "cp1252", "latin-1")
    for name in likely if encoding is None else (encoding,):
        try:
            text = data.decode(name)
        except (UnicodeDecodeError, LookupError):  # some codecs are not for text
            continue
        if "\0" not in text:
            return text.removeprefix("\ufeff"), name
    if encoding is not None:
        raise ParameterError(f"{source} is not text in {encoding}; omit the encoding to detect it")
    raise ParameterError(f"{source} is not a CSV or Parquet file; save it as CSV in UTF-8")


def _header(text: str, wanted: Mapping[str, str], separator: str | None) -> tuple[str, list[str]]:
    """The separator and the first row: those with the wanted columns, else with most cells."""
    beginning = text[:_HEADER_CHARACTERS]
    rows = {}
    for each in _DETECTED_SEPARATORS if separator is None else separator:
        try:
            first = next(csv.reader(io.StringIO(beginning, newline=""), delimiter=each), [])
        except csv.Error:
            continue
        rows[each] = [cell.strip() for cell in first]
    for each, names in rows.items():
        if set(wanted.values()) <= set(names):
            return each, names
    return max(rows.items(), key=lambda row: len(row[1]), default=(separator or ",", []))


def _positions(source: str, names: Sequence[str], wanted: Mapping[str, str]) -> dict[str, int]:
    """The positions of the columns.

    A file without a header may have rewards in its first row: an error must not quote them.
    """
    values = re.compile(r"\W*\d|(true|false|yes|no|na|nan)$", re.I)
    for parameter, column in wanted.items():
        if column not in names:
            hint = "its first row does not name columns"
            hint = hint if any(map(values.match, names)) else nearest(column, names)
            raise ParameterError(f"{source} has no column {column!r} ({parameter}); {hint}")
        if list(names).count(column) > 1:
            raise ParameterError(
                f"{source} has more than one column {column!r} ({parameter}); rename all but one"
            )
    return {parameter: list(names).index(column) for parameter, column in wanted.items()}


def _parsed(source: str, text: str, separator: str, width: int, places: dict[str, int]) -> Any:
    """Parse the columns as text; they are named by position."""
    import pyarrow as pa
    from pyarrow import csv as arrow

    broken: list[int | None] = []

    def refuse_row(row: Any) -> str:
        broken.append(row.number)
        return "error"

    names = [str(i) for i in range(width)]
    columns = [names[i] for i in places.values()]
    try:
        return arrow.read_csv(
            pa.BufferReader(text.encode()),
            # With several threads pyarrow does not count the rows.
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
        # pyarrow's message would quote the row.
        line = f" at line {broken[0]}" if broken and broken[0] else ""
        raise ParameterError(
            f"{source} is not a well-formed CSV file{line}; give as many cells in each row as in "
            "the first"
        ) from None
